"""What every engine with processes goes through, on real ones and with real signals: one text for Local, Ray and MPI.

`test_scenarios.py` runs them on Local, `test_engine_ray.py` on Ray, `test_engine_mpi.py` on MPI. What only one engine has stays
in its file.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.dynamic_clustering import Spread, placement
from tests.problems import Constant, Endless, Holds, Lazy, Partly, Slow, least_squares
from unstraggle import Announced, Count, Deadline, Master, NotRecovered, WorkerFailed, codes
from unstraggle.engines import Chaos
from unstraggle.testing import check_engine

LATE = 60.0
LONG = 10**4
"""Coordinates of parameters and messages that stand in shared memory, where processes have some."""


@dataclass(frozen=True)
class Bench:
    """make(problem, heartbeat=..., restarts=...): an engine; one without restarts of its own leaves them out."""

    make: Callable[..., Any]
    codes: Any = None


def run(master, dim=8, **options):
    return master.gradient(np.zeros(dim), **options)


HANG = 600.0
"""Seconds after which what has not happened never will, on a machine as busy as it may be."""


def until(condition):
    limit = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.01)


class raises:
    """pytest.raises, for programs that pytest does not run."""

    def __init__(self, kind, *words):
        self.kind, self.words = kind, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert kind is not None and issubclass(kind, self.kind), f"{self.kind.__name__} expected, but got {error!r}"
        assert all(word in str(error) for word in self.words), str(error)
        self.error = error
        return True


# Without kills


def contract(bench):
    report = check_engine(lambda problem: bench.make(problem, heartbeat=1.0), bench.codes, rounds=2, signals=False, within=HANG)
    assert report.worst_error < 1e-9 and "cancelled" in report.faults


def late_messages_are_not_used_and_waits_are_cut_short(bench):
    with Master(codes.cyclic_repetition(4, s=1), bench.make(Constant(4))) as master:
        for worker in range(4):
            delays = np.zeros(4)
            delays[worker] = LATE
            estimate = run(master, delays=delays)
            np.testing.assert_allclose(estimate.gradient, 10.0)
            assert not estimate.got[worker] and estimate.exact


def a_round_ends_by_count_or_deadline(bench):
    with Master(codes.uncoded(2), bench.make(Constant(2)), Count(1)) as master:
        run(master, delays=np.array([0.0, LATE]))
        assert run(master, delays=np.array([LATE, 0.0])).got.tolist() == [False, True]
    with Master(codes.ignore_stragglers(3), bench.make(Constant(3)), Deadline(0.3)) as master:
        estimate = run(master, delays=np.array([0.0, LATE, 0.0]))
        assert estimate.got.tolist() == [True, False, True] and not estimate.exact
        assert estimate.wait >= 0.3
        np.testing.assert_allclose(estimate.gradient, 1 + 3)


def a_code_that_changes_from_round_to_round(bench):
    """Dynamic clustering: two workers of one cluster are slow until one of them changes places."""
    problem, change = least_squares(placement(), dim=6), Spread()
    delays = np.where(np.isin(np.arange(8), (0, 1)), 0.2, 0.0)
    with Master(placement(), bench.make(problem), change=change) as master:
        first = change.cluster.copy()
        for step in range(4):
            estimate = run(master, dim=6, step=step, delays=delays)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(np.zeros(6)), rtol=1e-9)
            assert estimate.exact
        assert change.cluster[0] != change.cluster[1] and first[0] == first[1]


def messages_of_megabytes(bench):
    """More than are in flight at once, while the worker computes; and parameters as large."""
    code = codes.uncoded_mmc(2, load=2)
    with Master(code, bench.make(Constant(2, dim=10**6, seconds=0.01)), Count(4, of="messages")) as master:
        for _ in range(2):
            np.testing.assert_allclose(run(master, dim=10**6).gradient, 3.0)


def an_error_is_raised_with_its_traceback_where_nobody_else_can_help(bench):
    """Once: what others that hold the same partition report does not end the next round."""
    with Master(codes.fractional_repetition(4, s=3), bench.make(Constant(4, fails_at=(1, 1)))) as master:
        for step in range(4):
            if step == 1:
                with raises(WorkerFailed, "ZeroDivisionError: the loss of part 1", "in grad"):
                    run(master)
            else:
                assert run(master, delays=np.full(4, 0.05)).exact


def an_error_that_others_make_up_for_counts_as_a_loss(bench):
    """A worker that fails twice in a row ends the run."""
    with Master(codes.cyclic_repetition(4, s=1), bench.make(Partly(4, workers=(2,)))) as master:
        run(master)
        delays = np.array([0.5, 0.5, 0.0, 0.5])
        estimate = run(master, delays=delays)
        np.testing.assert_allclose(estimate.gradient, 10.0)
        assert estimate.lost == (2,) and estimate.exact
        with raises(WorkerFailed, "worker 2 cannot divide"):
            run(master, delays=delays)


def a_task_that_holds_the_interpreter_lock_is_waited_for(bench):
    """Longer than the heartbeat: its worker counts as lost, and its message counts when it comes."""
    with Master(codes.uncoded(2), bench.make(Holds(2, seconds=3.0), heartbeat=1.0)) as master:
        for _ in range(2):
            estimate = run(master)
            np.testing.assert_allclose(estimate.gradient, 3.0)
            assert estimate.exact and estimate.lost


def who_is_rounds_behind_harms_nobody(bench):
    """Worker 0 is two rounds behind and more. What it makes of parameters that may have changed is not used."""
    code = codes.cyclic_repetition(3, s=1)
    with Master(code, bench.make(Lazy(3, LONG, seconds=0.3))) as master:
        for step in range(30):
            value = float(step + 1)
            estimate = master.gradient(np.full(LONG, value), delays=np.array([0.0, 0.03, 0.03]))
            np.testing.assert_allclose(estimate.gradient, 6 * value)


def a_stopped_worker_is_lost_and_joins_when_it_goes_on(bench):
    dim = 10**5
    engine = bench.make(Constant(4, dim=dim), heartbeat=1.0)
    with Master(codes.cyclic_repetition(4, s=1), engine) as master:
        run(master, dim)
        pid = engine.pid(2)
        os.kill(pid, signal.SIGSTOP)
        until(lambda: run(master, dim, delays=np.full(4, 0.1)).lost == (2,))
        assert run(master, dim).lost == (2,)
        os.kill(pid, signal.SIGCONT)
        until(lambda: not run(master, dim, delays=np.full(4, 0.1)).lost)
        assert engine.pid(2) == pid
        assert run(master, dim, delays=np.array([LATE, 0, 0, 0])).got.tolist() == [False, True, True, True]


def a_paused_master_loses_nobody(bench):
    """It does not look for longer than a heartbeat, as when it is stopped, or busy between two rounds."""
    with Master(codes.uncoded(2), bench.make(Constant(2), heartbeat=1.0)) as master:
        for _ in range(2):
            assert run(master).lost == ()
            time.sleep(2.5)
        assert run(master).lost == ()


def tasks_are_handed_out_and_a_slow_worker_does_fewer(bench):
    """Worker 0 is in a task of an earlier round when most rounds begin; the others do what it does not."""
    problem = Slow(12, LONG, seconds=0.2)
    with Master(codes.work_conserving(3, load=3, pieces=4), bench.make(problem)) as master:
        for _ in range(6):
            estimate = run(master, LONG)
            np.testing.assert_allclose(estimate.gradient, problem.total)
            assert estimate.exact and estimate.messages <= 3


def handed_tasks_in_reserve_and_in_order(bench):
    for code in (codes.work_conserving(2, load=2, pieces=3, reserve=1), codes.sums_on_request(2, load=2, pieces=2)):
        problem = Slow(code.k, seconds=0.02)
        with Master(code, bench.make(problem)) as master:
            for _ in range(3):
                np.testing.assert_allclose(run(master).gradient, problem.total)


def an_error_in_a_handed_task_is_made_up_for(bench):
    """The worker that fails counts as lost for the round, and ends the run when it fails again."""
    problem = Partly(6, seconds=0.05, workers=(2,))
    with Master(codes.work_conserving(3, load=2, pieces=2), bench.make(problem)) as master:
        run(master)
        estimate = run(master)
        np.testing.assert_allclose(estimate.gradient, problem.total)
        assert estimate.lost == (2,) and estimate.exact
        with raises(WorkerFailed, "worker 2 cannot divide"):
            run(master)


def handed_tasks_under_chaos(bench):
    """Damaged, doubled, delayed and vanished sums and stopped workers: never a wrong gradient."""
    code, rng = codes.work_conserving(4, load=3, pieces=2), np.random.default_rng(0)
    problem = least_squares(code)
    faults = {"drop": 0.02, "duplicate": 0.1, "corrupt": 0.05, "hold": 0.1, "pause": 0.02, "pause_seconds": 0.2}
    with Master(code, Chaos(bench.make(problem), rng=1, **faults), patience=5.0) as master:
        for _ in range(40):
            params = rng.standard_normal(24)
            estimate = master.gradient(params)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(params), rtol=1e-8, atol=1e-8)
            assert estimate.exact


def messages_are_fetched(bench):
    """Only those that are used, whatever the code and the stop rule."""
    for code, most in ((codes.fractional_repetition(4, s=1), 2), (codes.cyclic_repetition(4, s=1), 4), (codes.uncoded(4), 4)):
        with Master(code, bench.make(Constant(4, LONG)), transfer="pull") as master:
            for _ in range(3):
                estimate = run(master, LONG)
                np.testing.assert_allclose(estimate.gradient, 10.0)
                assert estimate.exact and estimate.messages <= most
    with Master(codes.ignore_stragglers(3), bench.make(Constant(3)), Count(2), transfer="pull") as master:
        estimate = run(master, delays=np.array([0.0, LATE, 0.0]))
        assert estimate.got.tolist() == [True, False, True] and estimate.late == (1,)


class OneClusterFirst(Chaos):
    """What workers from the fourth on announce waits until somebody is let go."""

    def __init__(self, engine):
        super().__init__(engine)
        self.let_go, self.waiting = [], []

    def start(self, order):
        self.let_go, self.waiting = [], []
        super().start(order)

    def cancel(self, round, workers):
        self.let_go.append(tuple(workers))
        super().cancel(round, workers)

    def next(self, until):
        if self.let_go and self.waiting:
            events, self.waiting = self.waiting, []
            return events
        events = super().next(until)
        if self.let_go:
            return events
        self.waiting += [one for one in events if isinstance(one, Announced) and one.worker >= 3]
        return [one for one in events if one not in self.waiting]


def a_cluster_is_let_go_when_what_is_used_of_it_was_fetched(bench):
    """While the other one has announced nothing yet. The gradient is exact, and made of as many messages as it takes."""
    code, delays = codes.cluster(codes.cyclic_repetition(3, s=1), times=2), np.array([0.0, 0.0, LATE, 0.0, LATE, 0.0])
    engine = OneClusterFirst(bench.make(Constant(6, LONG)))
    with Master(code, engine, sending="cluster_stop", transfer="pull") as master:
        for _ in range(3):
            estimate = run(master, LONG, delays=delays)
            np.testing.assert_allclose(estimate.gradient, 21.0)
            assert estimate.exact and estimate.got.tolist() == [True, True, False, True, False, True]
            assert engine.let_go[:2] == [(2,), (4,)]


def fetched_messages_under_chaos(bench):
    """Damaged, doubled, delayed and vanished notes and messages, and stopped workers: never a wrong gradient."""
    code, rng = codes.uncoded_mmc(4, load=2), np.random.default_rng(0)
    problem = least_squares(code)
    faults = {"drop": 0.02, "duplicate": 0.1, "corrupt": 0.05, "hold": 0.1, "pause": 0.02, "pause_seconds": 0.2}
    with Master(code, Chaos(bench.make(problem), rng=1, **faults), patience=5.0, transfer="pull") as master:
        for _ in range(40):
            params = rng.standard_normal(24)
            estimate = master.gradient(params)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(params), rtol=1e-8, atol=1e-8)
            assert estimate.exact and estimate.messages <= 8


class Lying(Chaos):
    """Worker 0 announces its message in every other round before it has one."""

    lied = -1

    def next(self, until):
        lies = [Announced(0, 0, self.clock(), self._round)] if self._round % 2 and self.lied != self._round else []
        self.lied = self._round if lies else self.lied
        return lies or super().next(until)


def whoever_announces_what_it_has_not_is_not_believed(bench):
    """It is asked, and cannot answer: another one takes its place. The second time it ends the run, as other errors do."""
    delays = np.array([LATE, 0.0, 0.0, 0.0])
    with Master(codes.fractional_repetition(4, s=1), Lying(bench.make(Constant(4))), transfer="pull") as master:
        for step in range(3):
            estimate = run(master, delays=delays)
            np.testing.assert_allclose(estimate.gradient, 10.0)
            assert estimate.exact and not estimate.got[0] and (estimate.lost == (0,)) == (step == 1)
        with raises(WorkerFailed, "Worker 0 failed", "but has none"):
            run(master, delays=delays)


# With kills


class KillsWhoIsAsked(Chaos):
    """The first worker that is asked for a message is dead before it hears of it."""

    killed = None

    def tell(self, word):
        if self.killed is None:
            self.killed = self.pid(word.worker)
            os.kill(self.killed, signal.SIGKILL)
        super().tell(word)


def who_is_killed_between_announcing_and_sending_is_replaced(bench):
    """By another copy, or by what its successor computes."""
    for code in (codes.fractional_repetition(4, s=1), codes.uncoded(4)):
        with Master(code, KillsWhoIsAsked(bench.make(Constant(4, LONG))), transfer="pull") as master:
            for _ in range(3):
                estimate = run(master, LONG)
                np.testing.assert_allclose(estimate.gradient, 10.0)
                assert estimate.exact
            assert master.engine.killed is not None


def a_worker_that_dies_gives_its_tasks_back(bench):
    """Four kills in ten rounds, while tasks and sums are on their way."""
    problem = Constant(16, LONG, seconds=0.02)
    engine = bench.make(problem)
    with Master(codes.work_conserving(4, load=4, pieces=4), engine) as master:
        for step in range(10):
            if step % 2 and (pid := engine.pid(step % 4)) is not None and step < 9:
                threading.Timer(0.015 * step, os.kill, (pid, signal.SIGKILL)).start()
            estimate = run(master, LONG)
            np.testing.assert_allclose(estimate.gradient, problem.total)
            assert estimate.exact


def contract_with_kills(bench):
    report = check_engine(lambda problem: bench.make(problem, heartbeat=1.0), [], rounds=2, within=HANG)
    assert {"stopped", "killed", "stopped_and_killed"} <= set(report.faults)


def a_killed_worker_is_lost_and_comes_back(bench):
    engine = bench.make(Constant(4, LONG))
    with Master(codes.cyclic_repetition(4, s=1), engine) as master:
        run(master, LONG)
        for seconds in (1.0, 5.0, 25.0):  # a busy machine may take longer to notice
            until(lambda: not run(master, LONG, delays=np.full(4, 0.05)).lost)
            before = engine.pid(2)
            threading.Timer(0.3, os.kill, (before, signal.SIGKILL)).start()
            estimate = run(master, LONG, delays=np.array([seconds, seconds, LATE, seconds]))
            np.testing.assert_allclose(estimate.gradient, 10.0)
            if estimate.lost:
                break
        assert estimate.lost == (2,)
        until(lambda: not run(master, LONG, delays=np.full(4, 0.05)).lost)
        assert run(master, LONG, delays=np.array([LATE, 0, 0, 0])).got.tolist() == [False, True, True, True]
        assert engine.pid(2) not in (None, before)


def a_round_that_needs_a_dead_worker_waits_for_its_successor(bench):
    engine = bench.make(Constant(2))
    with Master(codes.uncoded(2), engine) as master:
        run(master)
        os.kill(engine.pid(0), signal.SIGKILL)
        np.testing.assert_allclose(run(master).gradient, 3.0)


def chaos(bench, rounds=100):
    """Damaged, doubled, delayed and vanished messages and stopped workers: never a wrong gradient."""
    code = codes.cyclic_repetition(4, s=1)
    problem, rng, seen = least_squares(code), np.random.default_rng(0), np.zeros(3, dtype=int)
    faults = {"drop": 0.02, "duplicate": 0.1, "corrupt": 0.05, "hold": 0.1, "pause": 0.01, "pause_seconds": 0.2}
    with Master(code, Chaos(bench.make(problem), rng=1, **faults), patience=5.0) as master:
        for _ in range(rounds):
            params = rng.standard_normal(24)
            estimate = master.gradient(params)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(params), rtol=1e-8, atol=1e-8)
            seen += [estimate.damaged, estimate.duplicates, estimate.stale]
    assert (seen > 0).all()


# Where the engine has restarts


def without_restarts_it_says_who_is_lost(bench):
    engine = bench.make(Constant(2), restarts=0)
    with Master(codes.uncoded(2), engine) as master:
        run(master)
        os.kill(engine.pid(1), signal.SIGKILL)
        with raises(NotRecovered, "round 1 has", "of 2 messages", "workers [1] are lost"):
            run(master)


def stopped_then_killed_without_restarts_is_not_waited_for(bench):
    engine = bench.make(Constant(2), restarts=0, heartbeat=1.0)
    with Master(codes.uncoded(2), engine) as master:
        run(master)
        pid = engine.pid(1)
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(3.0, os.kill, (pid, signal.SIGKILL)).start()
        with raises(NotRecovered, "workers [1] are lost"):
            run(master)


def a_worker_that_dies_of_its_task_is_an_error_in_the_end(bench):
    """It is started again and dies again; nothing hangs."""
    engine = bench.make(Constant(2, dies_at=(0, 1)), restarts=1)
    with Master(codes.uncoded(2), engine) as master, raises(NotRecovered, "workers [1] are lost"):
        run(master)


def a_problem_that_can_stop_leaves_its_task_with_the_round(bench):
    """Else the second round would wait for ever: its one helper is in the task of the first."""
    for code in (codes.fractional_repetition(2, s=1), codes.work_conserving(2, load=2, pieces=2)):
        with Master(code, bench.make(Endless(code.k))) as master:
            for step in range(4):
                estimate = run(master, step=step)
                np.testing.assert_allclose(estimate.gradient, master.engine.problem.total)
                assert estimate.exact and estimate.used == ((step + 1) % 2,)


QUIET = (
    contract,
    late_messages_are_not_used_and_waits_are_cut_short,
    a_round_ends_by_count_or_deadline,
    a_code_that_changes_from_round_to_round,
    messages_of_megabytes,
    an_error_is_raised_with_its_traceback_where_nobody_else_can_help,
    an_error_that_others_make_up_for_counts_as_a_loss,
    a_task_that_holds_the_interpreter_lock_is_waited_for,
    who_is_rounds_behind_harms_nobody,
    a_stopped_worker_is_lost_and_joins_when_it_goes_on,
    a_paused_master_loses_nobody,
    chaos,
    tasks_are_handed_out_and_a_slow_worker_does_fewer,
    handed_tasks_in_reserve_and_in_order,
    an_error_in_a_handed_task_is_made_up_for,
    handed_tasks_under_chaos,
    messages_are_fetched,
    a_cluster_is_let_go_when_what_is_used_of_it_was_fetched,
    fetched_messages_under_chaos,
    whoever_announces_what_it_has_not_is_not_believed,
    a_problem_that_can_stop_leaves_its_task_with_the_round,
)
KILLS = (
    contract_with_kills,
    a_killed_worker_is_lost_and_comes_back,
    a_round_that_needs_a_dead_worker_waits_for_its_successor,
    a_worker_that_dies_gives_its_tasks_back,
    who_is_killed_between_announcing_and_sending_is_replaced,
)
RESTARTS = (
    without_restarts_it_says_who_is_lost,
    stopped_then_killed_without_restarts_is_not_waited_for,
    a_worker_that_dies_of_its_task_is_an_error_in_the_end,
)
ALL = (*QUIET, *KILLS, *RESTARTS)
