"""Ctrl+C and SIGTERM: the exit code, one line, no traceback; while the program loads, and when it is at work."""

import os
import pty
import signal
import subprocess
import sys

import pytest

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
LINE = "unstraggle: interrupted."
LOADING = """
import os, sys
from unstraggle.app.cli import main

class Here:
    def find_spec(self, name, path, target=None):
        if name == "unstraggle.app.cli.simulate":
            os.kill(os.getpid(), int(sys.argv.pop()))

sys.meta_path.insert(0, Here())
main()
"""


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_while_the_program_loads(number, code):
    command = [sys.executable, "-c", LOADING, "simulate", "uncoded(4)", str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{LINE}\n")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_at_work(number, code):
    """The bar shows when the work has begun."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "unstraggle", "simulate", "uncoded(400)", "--rounds", "2000000000"]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as started:
        os.close(theirs)
        try:
            shown = os.read(ours, 100_000)
            while b"uncoded(400)" not in shown:
                shown += os.read(ours, 100_000)
            started.send_signal(number)
            out, _ = started.communicate()
            shown = os.read(ours, 100_000)
        finally:
            started.kill()
            os.close(ours)
    assert (started.returncode, out) == (code, b"")
    assert LINE in shown.decode() and b"Traceback" not in shown
