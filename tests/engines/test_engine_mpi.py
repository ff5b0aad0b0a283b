"""The MPI engine: real jobs under mpiexec, real signals, nothing left behind.

Its own scenarios stand in programs/mpi_program.py, those of every engine in scenarios.py; one job runs both.
"""

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from unstraggle import Invalid, codes
from unstraggle.engines import MPI, Order, mpi_launch, mpi_wire
from unstraggle.engines.commons import machine
from unstraggle.engines.mpi import command
from unstraggle.engines.mpi_order import PING_TIMES, Clock, pack_order, read_order, round_of
from unstraggle.runtime.serve import Share

from ..problems import Constant
from . import scenarios

PROGRAM = Path(__file__).parent.parent / "programs" / "mpi_program.py"
TOGETHER = (
    "problem_of_the_script",
    "who_lags_behind_skips_rounds",
    "problem_cannot_start",
    "too_few_ranks",
    "one_engine_at_a_time",
    "idle_ranks_sleep",
    "ranks_of_one_machine_listen_nowhere",
    "orders_to_a_stopped_worker_do_not_pile_up",
    "parts_of_messages_go_ahead",
)

try:
    mpi_launch.find_mpiexec()
except Invalid as error:
    needs_mpiexec = pytest.mark.skip(reason=str(error))
else:
    needs_mpiexec = pytest.mark.skipif(sys.platform != "linux", reason="tested with Open MPI on Linux")


def ranks(mark):
    """Processes of a job, found by a word in their command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(mark) in process.cmdline():
                found.append(process)
    return found


HANG = 800
"""Seconds after which a job that has not ended never will."""


@contextlib.contextmanager
def job(mark, n, *arguments, spare=0, without=()):
    """A job of n workers that must leave no process behind when it has ended."""
    line = [word for word in command(n, str(PROGRAM), str(mark), *arguments, spare=spare) if word not in without]
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env}
    with subprocess.Popen(line, **options, start_new_session=True) as process:
        try:
            yield process
        finally:
            limit = time.monotonic() + HANG
            while ranks(mark) and time.monotonic() < limit and process.poll() is not None:
                time.sleep(0.1)
            left = ranks(mark)
            for one in left:
                one.kill()
            assert left == []


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """One job for what kills nobody, MPI's own scenarios and those of every engine, and one for what does."""
    mark = tmp_path_factory.mktemp("together")
    quiet = [scenario.__name__ for scenario in scenarios.QUIET]
    kills = [scenario.__name__ for scenario in scenarios.KILLS]
    return said(mark, 8, *TOGETHER, *quiet) + said(mark, 4, *kills, spare=16)  # more than are killed in all


def said(mark, n, *names, spare=0):
    with job(mark, n, *names, spare=spare) as process:
        out, err = process.communicate(timeout=HANG)
    return out if process.returncode == 0 else out + err


@needs_mpiexec
@pytest.mark.parametrize("scenario", (*TOGETHER, *(scenario.__name__ for scenario in (*scenarios.QUIET, *scenarios.KILLS))))
def test_scenario(scenario, report):
    assert f"passed {scenario}\n" in report, report


@needs_mpiexec
def test_job_goes_on_without_killed_ranks_and_gives_the_exit_code(tmp_path):
    with job(tmp_path, 3, "killed_rank", spare=2) as process:
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == 7, out + err
    segments = out.splitlines()[0].split()
    assert segments and not any(map(os.path.exists, segments))


@needs_mpiexec
@pytest.mark.slow
def test_job_goes_on_and_ends_after_many_kills(tmp_path):
    with job(tmp_path, 6, "many_kills", spare=5) as process:
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == 0, out + err
    assert time.time() - float(out.split()[1]) < 20


@needs_mpiexec
def test_job_ends_with_a_killed_rank_where_mpi_does_not_go_on(tmp_path):
    with job(tmp_path, 2, "killed_in_the_end", without=("--with-ft", "ulfm")) as process:
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == 137, out + err
    assert re.search(r"rank 2 .* exited on\s+signal 9", err)


@needs_mpiexec
@pytest.mark.parametrize("state", ["", "stopped"])
def test_script_that_raises_ends_the_job(state, tmp_path):
    """Also workers in the middle of a task of ten minutes, and those that are stopped."""
    with job(tmp_path, 3, "raises", *filter(None, [state])) as process:
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == 1, out + err
    assert "ValueError: an error of the script" in err
    assert ("did not end within 5 s" in err) == (state == "stopped")


@needs_mpiexec
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_master_let_the_script_clean_up(number, tmp_path):
    with job(tmp_path, 2, "waits") as process:
        os.kill(int(process.stdout.readline().split()[1]), number)
        out, err = process.communicate(timeout=HANG)
    assert process.returncode == 128 + number, out + err
    assert (tmp_path / "cleaned_up").exists(), out + err


@needs_mpiexec
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_mpiexec_end_the_job(number, tmp_path):
    """mpiexec kills 0.25 s after its SIGTERM, so that a slow machine need not clean up: see docs/mpi.md."""
    with job(tmp_path, 2, "waits") as process:
        assert process.stdout.readline().startswith("pid ")
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG)
    assert process.returncode != 0, out + err


@needs_mpiexec
@pytest.mark.parametrize("victim", ["master", "mpiexec"])
def test_ranks_end_when_the_master_or_mpiexec_is_killed(victim, tmp_path):
    with job(tmp_path, 2, "waits") as process:
        master = int(process.stdout.readline().split()[1])
        os.kill(master if victim == "master" else process.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=HANG)
    assert process.returncode != 0
    assert victim == "mpiexec" or "the master is gone, so this rank ends" in err, out + err


def test_engine_without_ranks_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--rate", "0.1"])
    with pytest.raises(Invalid, match=r"mpiexec -n 4 python -m unstraggle.engines.mpi train.py --rate 0.1"):
        MPI(Constant(3)).open(codes.uncoded(3))
    for wrong in (0.0, math.inf):
        with pytest.raises(Invalid, match="a finite heartbeat"):
            MPI(Constant(3), heartbeat=wrong)


def test_missing_mpi4py_gives_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(Invalid, match=re.escape("pip install 'unstraggle[mpi]'")):
        MPI(Constant(3)).open(codes.uncoded(3))


def test_missing_mpiexec_gives_a_hint(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(Invalid, match=re.escape("pip install 'unstraggle[mpi]'")):
        command(3, "train.py")


def test_ranks_get_a_place_each_unless_the_user_says_where():
    line = command(3, "train.py", spare=1)
    assert line[line.index("--host") + 1] == "localhost:5" and "--oversubscribe" not in line
    assert line[line.index("btl") + 1] == "self,sm", "ranks of one machine listen nowhere"
    line = command(3, "train.py", options=("--hostfile", "hosts"))
    assert "--host" not in line and line[line.index("--hostfile") + 1] == "hosts" and "btl" not in line


def test_pauses_grow_with_the_time_waited(monkeypatch):
    pauses = []
    monkeypatch.setattr(mpi_wire.time, "sleep", pauses.append)
    pace = mpi_wire.Pace(20e-3)
    for _ in range(1000):
        pace.rest()
    before = np.cumsum(pauses) - pauses
    assert pauses[:6] == [20e-6 * 2**i for i in range(6)]
    assert (np.array(pauses) <= np.maximum(1e-3, 0.02 * before) + 1e-12).all() and pauses[-1] == 20e-3
    assert sum(before < 0.05) < 60 and sum((before > 1.0) & (before < 2.0)) <= 51
    pace.reset()
    pace.rest(5e-6)
    assert pauses[-1] == 5e-6


def test_usage():
    line = [sys.executable, "-m", "unstraggle.engines.mpi"]
    result = subprocess.run(line, capture_output=True, text=True, timeout=HANG)
    assert result.returncode == 1
    assert "mpiexec -n RANKS python -m unstraggle.engines.mpi SCRIPT" in result.stderr


def test_orders_as_bytes():
    code = codes.uncoded(3)
    share = Share(code.program(2), Constant(3, dim=4, type="f4"), (slice(0, 4),), np.dtype("f4"))
    params = np.arange(4, dtype="f4")
    data = pack_order(Order(7, 9, params, None, np.array([0.5, 1.5, 2.5]), None, b"more"), origin=100.0)
    params[:] = 0
    job = read_order(data, share, offset=-40.0)
    assert (job.round, job.step, job.origin, job.delays.tolist()) == (7, 9, 60.0, [2.5])
    assert job.params.tolist() == [0, 1, 2, 3] and job.context == b"more"
    assert job.params.dtype == "f4"
    assert not job.params.flags.writeable
    assert read_order(pack_order(Order(8, 0, params), 0.0), share, 0.0).delays is None
    assert round_of(data) == 7


def test_clock_of_another_machine(monkeypatch):
    """The quickest answer counts: this worker's clock is 100 s ahead, and one answer takes 2 s on its way back."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock("another machine")
    for there, back in [(0.010, 0.014), (0.001, 0.001), (0.0, 2.0), (0.003, 0.001), (0.5, 0.0)]:
        assert not clock.known
        question = clock.ask()
        now[0] += there
        asked, _ = PING_TIMES.unpack(question)
        answer = PING_TIMES.pack(asked, now[0] - 100.0)
        now[0] += back
        clock.take(answer)
    assert clock.known
    assert clock.offset == pytest.approx(100.0, abs=1e-9)
    assert Clock(machine()).known
