"""Workers that are forked from a process of their engine: as good as new ones, and they end with the master."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from unstraggle import Master, UnstraggleError, codes
from unstraggle.engines import Local
from unstraggle.engines.nursery import PATIENCE, Nursery
from unstraggle.testing import check_engine

from ..problems import Asks, Constant
from .test_engine_local import SCRIPT, nothing_left_behind, run

__all__ = ["nothing_left_behind"]


def nurseries():
    return [child for child in psutil.Process().children() if "nursery_server" in " ".join(child.cmdline())]


def ask(**options):
    """(workers, 3) what each worker finds."""
    with Master(codes.uncoded(2), Local(Asks(2), **options)) as master:
        return run(master, dim=6).gradient.reshape(2, 3)


def test_workers_of_one_engine_are_siblings_and_end_with_it():
    with Master(codes.uncoded(3), Local(Constant(3))) as master:
        (nursery,) = nurseries()
        assert {psutil.Process(master.engine.pid(worker)).ppid() for worker in range(3)} == {nursery.pid}
        run(master)
    assert not nursery.is_running()


def test_new_interpreters_do_as_well():
    report = check_engine(lambda problem: Local(problem, start_method="spawn"), [codes.cyclic_repetition(3, s=1)], rounds=2)
    assert report.rounds == 2 and not nurseries()


def test_every_engine_has_the_environment_of_its_start(monkeypatch):
    assert ask()[:, :2].tolist() == [[1, 0], [1, 0]]
    monkeypatch.setenv("ASKED", "7")
    assert ask(threads=2)[:, :2].tolist() == [[2, 7], [2, 7]]


def test_forks_draw_different_numbers():
    found = [*ask()[:, 2], *ask()[:, 2]]
    assert len(set(found)) == 4


def test_a_killed_nursery_is_replaced():
    """Its workers end, for nobody would know when they do; those of the next one go on."""
    with Master(codes.uncoded(3), Local(Constant(3))) as master:
        before = run(master).gradient
        (nursery,) = nurseries()
        nursery.kill()
        deadline = time.monotonic() + 10
        while master.engine.pid(0) is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        again = run(master)
        np.testing.assert_array_equal(again.gradient, before)
        assert again.time < PATIENCE, "it waited for exit codes that nobody knows"
        assert nurseries() and nurseries() != [nursery]


def test_a_nursery_that_cannot_begin_names_the_way_out(capfd):
    nursery = Nursery({}, ["no_such_module"])
    with pytest.raises(UnstraggleError, match=r'exit code 1\).*start_method="spawn"'):
        nursery.start(b"", None)
    assert "no_such_module" in capfd.readouterr().err


def test_the_exit_code_of_a_worker(capfd):
    """By a share that is no share, and by a signal."""
    nursery = Nursery({})
    first, second = nursery.start(b"", None), nursery.start(b"", None)
    second.kill()
    assert second.join(10) and second.exitcode == -signal.SIGKILL
    assert first.join(10) and first.exitcode == 1
    for child in (first, second):
        assert not child.is_alive()
        child.kill()
        child.close()
    nursery.close()
    assert "EOFError" in capfd.readouterr().err


def test_a_stopped_worker_ends_with_the_master_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(script), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as master:
        pids = [int(pid) for pid in re.findall(r"\d+", master.stdout.readline())]
        os.kill(pids[0], signal.SIGSTOP)
        master.kill()
        limit = time.monotonic() + 5
        while any(map(psutil.pid_exists, pids)) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not any(map(psutil.pid_exists, pids))
