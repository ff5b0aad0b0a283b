"""The local engine: what only it has. The scenarios that it shares with other engines are in scenarios.py."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from unstraggle import Invalid, Master, UnstraggleError, codes, trace
from unstraggle.engines import Chaos, Local, base
from unstraggle.engines import local as local_engine
from unstraggle.latency import ShiftedExponential
from unstraggle.problems import LeastSquares
from unstraggle.runtime.serve import Job, share_of, stretched
from unstraggle.runtime.serve import run as serve
from unstraggle.study.replaying import replay

from ..problems import CannotStart, Constant, least_squares
from .left_behind import nothing_left_behind
from .scenarios import run, until

__all__ = ["nothing_left_behind"]
pytestmark = pytest.mark.usefixtures("nothing_left_behind")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV"])
def test_killed_workers_are_lost_at_once_and_come_back(name):
    code = codes.cyclic_repetition(5, s=2)
    engine = Local(Constant(5))
    with Master(code, engine) as master:
        run(master)
        for worker in (1, 3):
            os.kill(engine.pid(worker), getattr(signal, name))
        estimate = run(master, delays=np.array([0.3, 60, 0.3, 60, 0.3]))
        np.testing.assert_allclose(estimate.gradient, 15.0)
        assert estimate.lost == (1, 3)
        until(lambda: not run(master, delays=np.full(5, 0.05)).lost)
        delays = np.array([60.0, 0.0, 60.0, 0.0, 0.0])
        assert run(master, delays=delays).got.tolist() == [False, True, False, True, True]


@pytest.mark.parametrize(("policy", "gradient"), [("approximate", 1.0), ("skip", 0.0)])
def test_policies_go_on_without_the_dead(policy, gradient):
    engine = Local(Constant(2), restarts=0)
    with Master(codes.uncoded(2), engine, on_shortfall=policy) as master:
        run(master)
        os.kill(engine.pid(1), signal.SIGKILL)
        estimate = run(master)
        np.testing.assert_allclose(estimate.gradient, gradient)
        assert (estimate.exact, estimate.skipped, estimate.lost) == (False, policy == "skip", (1,))


def test_approximating_waits_for_those_who_are_still_at_work():
    engine = Local(Constant(4), restarts=0)
    with Master(codes.fractional_repetition(4, s=1), engine, on_shortfall="approximate") as master:
        for worker in (0, 1, 2):
            os.kill(engine.pid(worker), signal.SIGKILL)
        estimate = run(master, delays=np.array([0.0, 0.0, 0.0, 0.5]))  # the round has failed long before that
        assert estimate.got.tolist() == [False, False, False, True] and not estimate.exact


def test_patience_is_learned_from_earlier_rounds():
    with Master(codes.uncoded(2), Local(Constant(2)), on_shortfall="approximate", patience=4.0) as master:
        waits = [run(master, delays=np.full(2, 0.05)).wait for _ in range(6)]
        assert 4.0 * min(waits) <= master._terms().limit <= 4.0 * max(waits) and min(waits) >= 0.05
        estimate = run(master, delays=np.array([0.05, 60.0]))
        assert estimate.got.tolist() == [True, False]
        with pytest.raises(Invalid, match="patience"):
            Master(codes.uncoded(2), Local(Constant(2)), patience=0.5)


def test_a_problem_that_cannot_start(capfd):
    with pytest.raises(UnstraggleError, match="ended while it started"):
        Master(codes.uncoded(2), Local(CannotStart()))
    assert "cannot be unpickled" in capfd.readouterr().err


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_an_engine_that_cannot_be_opened_leaves_nothing(start_method):
    engine = Local(Constant(2), way="ipc", start_method=start_method)
    with pytest.raises(Invalid, match='way="ipc" is for problems on devices'):
        Master(codes.uncoded(2), engine)
    engine.close()
    engine.close()


def test_wrong_numbers_of_partitions_and_options():
    with pytest.raises(Invalid, match="has k=3 partitions, but the problem has 2"):
        Master(codes.uncoded(3), Local(Constant(2)))
    with pytest.raises(Invalid, match="heartbeat"):
        Local(Constant(2), heartbeat=0.1)
    with pytest.raises(Invalid, match="heartbeat"):
        Local(Constant(2), heartbeat=float("inf"))
    with pytest.raises(Invalid, match="spawn"):
        Local(Constant(2), start_method="fork")
    with Master(codes.uncoded(2), Local(Constant(2))) as master:
        with pytest.raises(Invalid, match=r"shape \(8,\)"):
            run(master, dim=7)
        with pytest.raises(Invalid, match="finite"):
            master.gradient(np.full(8, np.nan))


def test_live_rounds_end_when_the_simulated_ones_do():
    """The draws of each round, replayed, end at the measured time or a little before, with the same messages."""
    code = codes.cluster(codes.correlated_mmc(4, load=4, order=2), times=2)
    engine = Chaos(Local(Constant(8)), latency=ShiftedExponential(rate=4.0, shift=0.05), rng=3)
    with Master(code, engine) as master:
        behind, more = [], []
        for _ in range(5):
            estimate = run(master)
            theory = replay(code, engine.delays[None])
            behind.append(estimate.wait - theory.time.mean)
            more.append(estimate.messages - theory.messages.mean)
    assert max(more) >= 0  # on a busy machine messages may change places
    with Master(code, Local(Constant(8))) as master:
        busy = max(run(master).wait for _ in range(5))  # what the machine takes for a round without delays
    assert 0 <= min(behind) < 0.5 + 10 * busy


def test_chaos_on_1000_rounds():
    """Dropped, doubled, damaged, delayed messages and killed workers: never a wrong gradient."""
    code = codes.cyclic_repetition(5, s=2)
    problem, rng = least_squares(code), np.random.default_rng(0)
    engine = Chaos(Local(problem, restarts=10**6), drop=0.02, duplicate=0.05, corrupt=0.05, hold=0.1, kill=0.02, rng=1)
    seen = np.zeros(4, dtype=int)
    with Master(code, engine, patience=5.0) as master:
        for _ in range(1000):
            params = rng.standard_normal(24)
            estimate = master.gradient(params)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(params), rtol=1e-8, atol=1e-8)
            seen += [estimate.damaged, estimate.duplicates, estimate.stale, len(estimate.lost)]
    assert (seen > 20).all()


def test_an_injected_delay_slows_all_tasks_of_a_message(tmp_path):
    """Not only the last one: a trace would show uneven data."""
    code = codes.blocks([1, 3], codes.cyclic_repetition(3, s=1), codes.cyclic_repetition(3, s=2))
    with Master(code, Local(Constant(3, dim=8)), trace=tmp_path / "trace.jsonl") as master:
        run(master, delays=np.where(code.messages.block == 0, 0.5, 1.2))
    recorded = trace.read(tmp_path / "trace.jsonl")
    heard = np.isfinite(recorded.end).all(axis=2)
    lasted = recorded.end[heard] - recorded.start[heard]
    assert len(lasted) and (recorded.end[heard][:, [1, 4]] >= [0.5, 1.2]).all()
    np.testing.assert_allclose(lasted[:, 0], lasted[:, 1], rtol=1e-6)
    np.testing.assert_allclose(lasted[:, [2, 3]], lasted[:, [3, 4]], rtol=1e-6)


def test_times_are_stretched_by_work():
    assert stretched([1.5, 1.6, 1.6, 1.7, 1.7, 1.9], 1.0, 9.0, (7.0, 1.0, 2.0, 1.0)) == [1.0, 3.0, 3.0, 7.0, 7.0, 9.0]
    assert stretched([1.1, 1.5, 1.5, 1.6], 1.0, 3.0, ()) == [1.0, 2.0, 2.0, 3.0]
    assert stretched([], 0.0, 3.0, (1.0,)) == []


def test_who_starts_first_is_not_the_slower_under_injected_delays():
    """Delays count from the start of the round. A task of a worker that got its order later would seem to be shorter."""
    code = codes.uncoded_mmc(2, load=2)
    for behind in (0.0, 0.05):  # seconds that the order takes to the worker
        share, sent = share_of(Constant(code.k), code, 0), []
        job = Job(0, 0, np.zeros(share.problem.dim), time.monotonic() - behind, np.array([0.2, 0.3]))
        serve(share, job, lambda message, payload, checksum, times, sent=sent: sent.append(list(times)), lambda: False, pause)
        assert sent == [[0.0, 0.2], [0.2, 0.3]]


def pause(until):
    time.sleep(max(0.0, until - time.monotonic()))


def test_the_trace_of_a_run(tmp_path):
    code = codes.correlated_mmc(3, load=3, order=2)
    path = tmp_path / "run.jsonl"
    engine = Chaos(Local(Constant(3)), latency=ShiftedExponential(rate=20.0, shift=0.02), rng=0)
    with Master(code, engine, trace=path) as master:
        estimates = [run(master) for _ in range(4)]
    recorded = trace.read(path)
    assert (len(recorded), recorded.n, recorded.tasks) == (4, 3, 3)
    for number, estimate in enumerate(estimates):
        heard = np.isfinite(recorded.end[number])
        assert heard.sum() >= estimate.messages
        assert recorded.arrival[number][heard].max() == pytest.approx(estimate.wait, rel=1e-6)
        split = estimate.split
        assert split.compute + split.transfer + split.slack == pytest.approx(estimate.wait)


SCRIPT = """
import sys, time
import numpy as np
from tests.problems import Constant
from unstraggle import Master, codes
from unstraggle.engines import Local

if __name__ == "__main__":
    master = Master(codes.uncoded(3), Local(Constant(3, seconds=float(sys.argv[1]))))
    print("pids", *(master.engine.pid(worker) for worker in range(3)), flush=True)
    while True:
        master.gradient(np.zeros(8))
"""


@pytest.mark.parametrize(("number", "seconds"), [("SIGKILL", "0"), ("SIGKILL", "60"), ("SIGTERM", "60"), ("SIGINT", "60")])
def test_workers_end_when_the_master_does(number, seconds, tmp_path):
    """Whatever they are doing."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), seconds]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as master:
        pids = [int(pid) for pid in master.stdout.readline().split()[1:]]
        time.sleep(0.3)
        master.send_signal(getattr(signal, number))
        until(lambda: not any(map(psutil.pid_exists, pids)))
        master.wait()


def test_a_script_without_guard_is_told_so_where_workers_are_spawned(tmp_path):
    """By Python's own words in the workers and by ours at the master, and by nothing that only follows from it. Forked workers
    need no guard: see test_travel.py."""
    script = tmp_path / "script.py"
    spawned = SCRIPT.replace("sys.argv[1])))", 'sys.argv[1])), start_method="spawn")')
    assert spawned != SCRIPT
    script.write_text(spawned.replace('if __name__ == "__main__":', "if True:"))
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, str(script), "0"], capture_output=True, text=True, env=env)
    assert done.returncode == 1 and "needs the guard `if __name__" in done.stderr.splitlines()[-1]
    assert "AssertionError" not in done.stderr


def test_ctrl_c_in_the_middle_of_a_burial_spoils_nothing(monkeypatch):
    """It comes when the burial is over, and the next round goes on with a successor."""
    engine, forget = Local(Constant(2)), local_engine.forget

    def interrupted(process):
        signal.raise_signal(signal.SIGINT)
        forget(process)

    with Master(codes.uncoded(2), engine) as master:
        run(master)
        monkeypatch.setattr(local_engine, "forget", interrupted)
        os.kill(engine.pid(0), signal.SIGKILL)
        with pytest.raises(KeyboardInterrupt):
            run(master)
        monkeypatch.undo()
        np.testing.assert_allclose(run(master).gradient, 3.0)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("processors, crowded", [(1, True), (2, True), (3, False)])
def test_it_says_whether_workers_leave_the_master_a_processor(monkeypatch, processors, crowded):
    monkeypatch.setattr(local_engine, "cores", lambda: processors)
    with Master(codes.uncoded(2), Local(least_squares(codes.uncoded(2), dim=3))) as master:
        assert base.crowded(master.engine) is crowded
        assert master.gradient(np.zeros(3)).exact


@pytest.mark.parametrize("dim", [100, 1000, 20_000])
def test_payloads_of_every_length_get_to_their_slots(dim):
    """Short ones as bytes, longer ones by a copy, and long ones are added up there, where a problem can do that."""
    rows = np.random.default_rng(0).standard_normal((6, dim))
    problem = LeastSquares.split(rows, np.ones(6), parts=3)
    with Master(codes.uncoded(3), Local(problem)) as master:
        for params in (np.zeros(dim), np.full(dim, 0.1)):
            found, expected = master.gradient(params).gradient, sum(problem.grad(params, part) for part in range(3))
            np.testing.assert_allclose(found, expected, rtol=1e-12)
