"""Commands of `unstraggle` for tests: `run` calls the program here, `run_process` starts it as people do.

Starting Python and importing the package costs a second or two of CPU, so tests use `run`. A process is for what only a process
shows: signals, terminals, pipes, environment variables, what is imported; and once for each command.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from typing import NamedTuple

import pytest

from unstraggle.app.cli import main


class Done(NamedTuple):
    """What is left of a command, by the names that subprocess gives them."""

    returncode: int
    stdout: str
    stderr: str


def run(*args, check=True):
    """Run a command in this process. What its workers write is caught, too; errors that would show a traceback are raised."""
    with _written_to(1, "stdout") as out, _written_to(2, "stderr") as err, _as_a_program(args):
        try:
            main()
            returncode = 0
        except SystemExit as end:
            returncode = _exit_code(end)
    return _checked(Done(returncode, out[0], err[0]), check)


def run_process(*args, check=True, **variables):
    """Run a command as a process, with some environment variables."""
    command = [sys.executable, "-m", "unstraggle", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables)
    return _checked(Done(done.returncode, done.stdout, done.stderr), check)


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
def _as_a_program(args):
    """The state of the interpreter that the program reads or changes, put back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # they are printed, not raised
        patch.setattr(sys, "argv", ["unstraggle", *map(str, args)])
        patch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _written_to(number, name):
    """[text] of what is written meanwhile to a file descriptor, by this process and those that it starts."""
    kept, text, file = os.dup(number), [], _file(number)
    os.ftruncate(file, 0)
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
    return os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR | os.O_APPEND)
