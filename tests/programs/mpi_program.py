"""The program of the MPI tests: scenarios of every engine (engines/scenarios.py), and those that only MPI has.

Arguments: a mark for the process list, and names of scenarios.
"""

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from tests.engines import scenarios
from tests.engines.scenarios import raises as refused
from tests.engines.scenarios import run
from tests.problems import CannotStart, Constant, Growing
from unstraggle import Count, Deadline, Invalid, Master, NotRecovered, WorkerFailed, codes
from unstraggle.engines import MPI, Message, Order
from unstraggle.testing import check_engine


def bench():
    return scenarios.Bench(lambda problem, restarts=None, **options: MPI(problem, **options))


@dataclass(frozen=True, eq=False)
class Own(Constant):
    """A problem that only this program defines."""


def problem_of_the_script():
    with Master(codes.uncoded(2), MPI(Own(2))) as master:
        np.testing.assert_allclose(run(master).gradient, 3.0)


def who_lags_behind_skips_rounds():
    """Worker 1 needs 0.5 s per task, rounds take 0.02 s: it computes a few of 40 rounds, and takes the newest one."""
    engine = MPI(Slow(2, worker_part=1))
    with Master(codes.uncoded(2), engine, Count(1)) as master:
        began = time.monotonic()
        estimates = [run(master, delays=np.array([0.02, 0.0])) for _ in range(40)]
        most = (time.monotonic() - began) / 0.5 + 1
        assert 1 <= sum(estimate.stale + estimate.got[1] for estimate in estimates) <= most
        assert len(engine._seats[1].sent) <= 2
        scenarios.until(lambda: run(master, delays=np.array([5.0, 0.0])).got[1])


@dataclass(frozen=True, eq=False)
class Slow(Constant):
    worker_part: int = 0

    def grad(self, params, part, where=slice(None), step=0):
        if part == self.worker_part:
            time.sleep(0.5)
        return super().grad(params, part, where, step)


def orders_to_a_stopped_worker_do_not_pile_up():
    engine = MPI(Constant(4, dim=10**5), heartbeat=1.0)
    with Master(codes.cyclic_repetition(4, s=1), engine) as master:
        run(master, dim=10**5)
        os.kill(engine.pid(2), signal.SIGSTOP)
        scenarios.until(lambda: run(master, dim=10**5, delays=np.full(4, 0.02)).lost == (2,))
        assert len(engine._seats[2].sent) == 2 and len(engine._wire._going) <= 6
        os.kill(engine.pid(2), signal.SIGCONT)


def problem_cannot_start():
    with refused(WorkerFailed, "this problem cannot be unpickled"):
        Master(codes.uncoded(2), MPI(CannotStart()))


def too_few_ranks():
    with refused(Invalid, "n=40 workers needs 41 ranks", "mpiexec -n 41", "mpi_program.py"):
        Master(codes.uncoded(40), MPI(Constant(40)))


def one_engine_at_a_time():
    with Master(codes.uncoded(2), MPI(Constant(2))), refused(Invalid, "Close that one first"):
        Master(codes.uncoded(2), MPI(Constant(2)))


def idle_ranks_sleep():
    """Less than a tenth of a core each, with an engine and without."""
    engine = MPI(Constant(3))
    with Master(codes.uncoded(3), engine) as master:
        run(master)
        ranks = [psutil.Process(engine.pid(worker)) for worker in range(3)]
        assert _use(ranks, 1.0) < 0.1
    assert _use(ranks, 1.0) < 0.1


def ranks_of_one_machine_listen_nowhere():
    """An open connection to a rank that listens, an unfinished HTTP request for instance, made the job hang."""
    engine = MPI(Constant(3))
    with Master(codes.uncoded(3), engine) as master:
        run(master)
        ranks = [psutil.Process(), *(psutil.Process(engine.pid(worker)) for worker in range(3))]
        doors = [one for rank in ranks for one in rank.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        assert not doors, doors


def parts_of_messages_go_ahead():
    """Of one pass and of two, of a pass that comes back, and when one is lost, upon which the message is asked for again."""
    dim = 3 * 10**5
    for code in (codes.uncoded(2), codes.fractional_repetition(2, s=1)):
        engine, seen = MPI(Growing(2, dim=dim)), []
        with Master(code, engine) as master:
            step, take = iter(range(10**6)), engine._parts.take

            def damaged(master=master, step=step):
                now = next(step)
                estimate = run(master, dim=dim, step=now)
                np.testing.assert_allclose(estimate.gradient, 3.0 + 2 * now)
                return estimate.damaged

            engine._parts.take = lambda *part, seen=seen, take=take: (seen.append(part), take(*part))
            while len(seen) < 20:
                assert not damaged()
            assert {part.round % 2 for _, part, _ in seen} == {0, 1}
            engine._parts.take = lambda *part: None
            scenarios.until(damaged)


def _use(processes, seconds):
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(seconds)
    return max(sum(process.cpu_times()[:2]) - was for process, was in zip(processes, before, strict=True)) / seconds


# Each the only one of its job


def killed_rank():
    """A spare rank takes the place of the first that dies; after the second, the rest goes on while it can."""
    print(*{word for word in Path("/proc/self/maps").read_text().split() if "sm_segment" in word}, flush=True)
    engine = MPI(Leaves(3))
    with Master(codes.cyclic_repetition(3, s=1), engine) as master:
        run(master)
        before = engine.pid(2)
        run(master, step=Leaves.step)
        scenarios.until(lambda: run(master, delays=np.full(3, 0.05)) and engine.pid(2) not in (None, before))
        os.kill(engine.pid(1), signal.SIGKILL)
        scenarios.until(lambda: run(master, delays=np.full(3, 0.05)).lost == (1,))
        scenarios.until(lambda: not run(master, delays=np.full(3, 0.05)).lost)
        assert run(master, delays=np.array([60.0, 0, 0])).got.tolist() == [False, True, True]
        os.kill(engine.pid(1), signal.SIGKILL)
        scenarios.until(lambda: run(master, delays=np.full(3, 0.05)).lost == (1,))
        np.testing.assert_allclose(run(master).gradient, 6.0)
        os.kill(engine.pid(0), signal.SIGKILL)
        with refused(NotRecovered, "workers [0, 1] are lost"):
            for _ in range(100):
                run(master, delays=np.full(3, 0.05))
    with refused(Invalid, "n=2 workers needs 3 ranks", "2 are there"):
        Master(codes.uncoded(2), MPI(Constant(2)))
    with Master(codes.uncoded(1), MPI(Constant(1))) as master:
        np.testing.assert_allclose(run(master).gradient, 1.0)
    sys.exit(7)


@dataclass(frozen=True, eq=False)
class Leaves(Constant):
    """Worker 2 leaves by itself at a step, as by exit(); its successor finds another step."""

    here: int = -1
    step = 1000

    def share(self, worker, parts):
        return replace(self, here=worker)

    def grad(self, params, part, where=slice(None), step=0):
        if (self.here, step) == (2, self.step):
            os._exit(7)
        return super().grad(params, part, where, step)


def many_kills():
    """Six ranks die at any time of a round, with large messages on their way; each gradient is exact, and the job ends."""
    engine, rng = MPI(Constant(6, dim=250_000)), np.random.default_rng(0)
    with Master(codes.cyclic_repetition(6, s=2), engine) as master:
        for number in range(120):
            pid = engine.pid(int(rng.integers(6))) if number % 20 == 10 else None
            if pid is not None:
                threading.Timer(0.02 * rng.random(), os.kill, (pid, signal.SIGKILL)).start()
            np.testing.assert_allclose(run(master, dim=250_000).gradient, 21.0)
    print("ended", time.time(), flush=True)


def killed_in_the_end():
    engine = MPI(Constant(2))
    master = Master(codes.uncoded(2), engine)
    run(master)
    os.kill(engine.pid(1), signal.SIGKILL)
    time.sleep(60)


def raises():
    """While a worker is stopped and another one is in the middle of a long task."""
    engine = MPI(Slow(3, seconds=600.0))
    master = Master(codes.uncoded(3), engine, Deadline(0.1))
    run(master)
    if sys.argv[-1] == "stopped":
        os.kill(engine.pid(0), signal.SIGSTOP)
    raise ValueError("an error of the script")


def waits():
    """Until it is told to end."""
    master = Master(codes.uncoded(2), MPI(Constant(2, seconds=60.0)))
    try:
        print("pid", os.getpid(), flush=True)
        run(master)
    finally:
        (Path(sys.argv[1]) / "cleaned_up").touch()


def across_hosts():
    """The test cuts a cable when it reads "cut", puts it back when it reads "lost", and kills that host at "joined"."""
    chosen = [
        codes.cyclic_repetition(4, s=1),
        codes.uncoded_mmc(4, load=3),
        codes.quantize(codes.uncoded(4), bits=8, bucket=512),
    ]
    assert check_engine(MPI, chosen, rounds=2, signals=False).worst_error < 1e-9
    with Master(codes.uncoded(4), MPI(Constant(4, dim=10**5))) as master:
        run(master, dim=10**5)
        before = _left()
        seconds = run(master, dim=10**5).wait
        print("seconds", seconds, "bytes", _left() - before, flush=True)
    _clocks_agree()
    with Master(codes.cyclic_repetition(4, s=2), MPI(Constant(4), heartbeat=1.0)) as master:
        run(master)
        print("cut", flush=True)
        while run(master, delays=np.full(4, 0.05)).lost != (2, 3):
            pass
        print("lost", flush=True)
        while run(master, delays=np.full(4, 0.05)).lost:
            pass
        assert run(master, delays=np.array([60.0, 60.0, 0, 0])).got.tolist() == [False, False, True, True]
        print("joined", flush=True)
        while True:
            run(master, delays=np.full(4, 0.05))


def _left():
    """Bytes that have left this host."""
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def _clocks_agree():
    """Workers on other hosts report their tasks on the master's clock: after the start, before the arrival."""
    engine = MPI(Constant(4, seconds=0.1))
    engine.open(codes.uncoded(4))
    engine.start(Order(0, 0, np.zeros(8)))
    messages = []
    while len(messages) < 4:
        messages += [one for one in engine.next(None) if isinstance(one, Message)]
    engine.close()
    for one in messages:
        assert -0.05 < one.times[0] < one.times[1] < one.time + 0.05, one


def main(names):
    for name in names:
        try:
            own = globals().get(name)
            own() if own is not None else getattr(scenarios, name)(bench())
        except Exception:
            if len(names) == 1:
                raise
            print("failed", name, traceback.format_exc(), flush=True)
        else:
            print("passed", name, flush=True)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(700, exit=True)
    main([name for name in sys.argv[2:] if name != "stopped"])
