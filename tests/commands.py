"""Commands of `unstraggle` and scripts: `run` and `run_script` call them here, `run_process` starts them as people do.

Starting Python and importing the package costs a second or two of CPU, so tests use `run`. A process is for what only a process
shows: signals, terminals, pipes, environment variables, what is imported; and once for each command.
"""

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from unstraggle.app.cli import main

from .launcher import launch


class Done(NamedTuple):
    """What is left of a command, by the names that subprocess gives them."""

    returncode: int
    stdout: str
    stderr: str


def run(*args, check=True):
    """Run a command in this process. What its workers write is caught, too; errors that would show a traceback are raised."""
    return _checked(_called(main, ["unstraggle", *map(str, args)]), check)


def run_script(path, *args, check=True):
    """Run a script in this process, as its main module: workers import it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(path.parent), *sys.path])
        return _checked(_called(lambda: runpy.run_path(str(path), run_name="__main__"), [str(path), *args]), check)


def _called(program, words):
    with _written_to(1, "stdout") as out, _written_to(2, "stderr") as err, _as_a_program(words):
        try:
            program()
            returncode = 0
        except SystemExit as end:
            returncode = _exit_code(end)
    return Done(returncode, out[0], err[0])


def run_process(*args, check=True, **variables):
    """Run a command, or a script, as a process, with some environment variables."""
    program = [] if args and isinstance(args[0], Path) else ["-m", "unstraggle"]
    command = [sys.executable, *program, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)
    return _checked(Done(done.returncode, done.stdout, done.stderr), check)


def run_launched(*args, check=True):
    """Run a command as a process that has its libraries from the start; see launcher.py."""
    return _checked(Done(*launch([*map(str, args)], dict(os.environ))), check)


def _checked(done, check):
    if check:
        assert done.returncode == 0, done.stderr
    return done


def _exit_code(end):
    """As the interpreter has it: nothing is success, a text is printed."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


@contextlib.contextmanager
def _as_a_program(words):
    """The state of the interpreter that the program reads or changes, put back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # they are printed, not raised
        patch.setattr(sys, "argv", words)
        patch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _written_to(number, name):
    """[text] of what is written meanwhile to a file descriptor, by this process and those that it starts."""
    kept, text, file = os.dup(number), [], _file(number).fileno()
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, number)
    try:
        with open(number, "w", closefd=False, encoding="utf-8") as stream, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, name, stream)
            yield text
    finally:
        os.dup2(kept, number)
        os.close(kept)
        text.append(os.pread(file, os.fstat(file).st_size, 0).decode())


@cache
def _file(number):
    """One nameless file for all commands: workers that are forked by an older process write to the same."""
    return tempfile.TemporaryFile()
