"""Ctrl+C and SIGTERM: the exit code, one line, no traceback; while the program loads, and when it is at work."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from unstraggle.app.report import write_report
from unstraggle.app.runs import read_run

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
    command = [sys.executable, "-m", "unstraggle", "simulate", "uncoded(400)", "--rounds", "100000000"]
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


HANG = 600
"""Seconds after which a test ends that waits for what never comes."""


def interrupted(number, steps, *command):
    """A command that gets a signal once three steps of it are in a file: (exit code, error stream)."""
    words = [sys.executable, "-m", "unstraggle", *map(str, command)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as started:
        try:
            end = time.monotonic() + HANG
            while not steps.exists() or steps.read_text().count("\n") < 3:
                assert started.poll() is None and time.monotonic() < end
                time.sleep(0.02)
            started.send_signal(number)
            said = started.communicate(timeout=HANG)[1]
        finally:
            started.kill()
    return started.returncode, said


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_run_keeps_what_it_has_done(number, code, tmp_path):
    options = ("--latency", "ShiftedExponential(rate=100, shift=0.01)", "--rounds", "100000", "-o", tmp_path)
    ended, said = interrupted(number, tmp_path / "steps.jsonl", "run", "cyclic_repetition(3, s=1)", *options)
    found = read_run(tmp_path)
    assert ended == code and len(found.steps) >= 3 and len(found.trace) >= 3
    assert said == f"unstraggle: interrupted after {len(found.steps)} rounds, which are in {tmp_path}.\n"
    assert found.summary["interrupted"] and found.summary["rounds"] == len(found.steps)
    assert found.config["options"]["rounds"] == 100000 and "cyclic_repetition(3, s=1)" in write_report(tmp_path).read_text()


def test_a_training_keeps_what_it_has_done(tmp_path):
    options = ("--workers", "4", "--slow", "1", "--factor", "2", "--unit", "0.01", "--steps", "5000", "--repeats", "1")
    folder = tmp_path / "wait-for-all"
    ended, said = interrupted(signal.SIGINT, folder / "steps.jsonl", "train", *options, "-o", tmp_path)
    assert ended == 130 and "Traceback" not in said  # it may say before what starting waits for
    assert said.splitlines()[-1] == f"unstraggle: interrupted; 0 schemes were finished, all steps are in {tmp_path}."
    found = read_run(folder)
    assert len(found.steps) >= 3 and found.summary["interrupted"] and found.summary["steps"] == len(found.steps)
    assert found.config["options"]["steps"] == 5000 and found.has_loss
    whole = json.loads((tmp_path / "summary.json").read_text())
    assert whole["interrupted"] and whole["rows"] == [] and (tmp_path / "config.json").exists()


def test_a_bar_that_stands_says_whom_it_waits_for():
    """Every message vanishes: who is asked again is said below the bar. It was silent."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "unstraggle", "run", "uncoded(2)", "--chaos", "drop=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as started:
        os.close(theirs)
        try:
            shown = b""
            while b"for workers [0, 1]." not in shown:
                shown += os.read(ours, 100_000)
            started.send_signal(signal.SIGINT)
            started.communicate(timeout=HANG)
        finally:
            started.kill()
            os.close(ours)
    assert started.returncode == 130 and b"uncoded(2)" in shown
    assert re.search(rb"Round 0 still waits after [\d.]+ s for workers \[0, 1\]\.", shown)
