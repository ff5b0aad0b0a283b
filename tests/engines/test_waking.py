"""How workers of one machine wake up."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from unstraggle import Master, codes
from unstraggle.engines import Local
from unstraggle.engines.waking import Home, yield_to_others

from ..problems import Constant
from .left_behind import nothing_left_behind
from .scenarios import run, until

__all__ = ["nothing_left_behind"]
pytestmark = [
    pytest.mark.usefixtures("nothing_left_behind"),
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="other systems than Linux have no such calls"),
]
ALL = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
several = pytest.mark.skipif(not 1 < len(ALL) <= 8, reason="as many workers as processors: needs 2 to 8")


class Roaming(Constant):
    """The gradient of every partition is the number of processors on which its worker may compute it."""

    def grad(self, params, part, where=slice(None), step=0):
        return np.full(len(params[where]), float(len(os.sched_getaffinity(0))))


def alone(look):
    """What is seen in a thread of its own: where that may run does not matter to others."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(look).result()


def test_workers_do_not_interrupt_the_master_when_they_wake_up():
    engine = Local(Constant(2))
    with Master(codes.uncoded(2), engine):
        policies = [os.sched_getscheduler(pid) for pid in (0, engine.pid(0), engine.pid(1))]
    assert policies == [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_BATCH]


def test_who_has_another_policy_keeps_it(monkeypatch):
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_IDLE)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *given: pytest.fail("it was given another one"))
    yield_to_others()


@several
def test_workers_sleep_on_processors_of_their_own_and_compute_anywhere():
    code = codes.uncoded(len(ALL))
    engine = Local(Roaming(code.k))
    with Master(code, engine) as master:
        for _ in range(2):
            until(lambda: [os.sched_getaffinity(engine.pid(worker)) for worker in range(code.n)] == [{one} for one in ALL])
            np.testing.assert_allclose(run(master).gradient, code.k * len(ALL))


@several
def test_workers_have_homes_in_turn_where_they_are_more_than_processors():
    def look():
        homes = []
        for number in range(2 * len(ALL)):
            with Home(number, n=2 * len(ALL)):
                homes.append(os.sched_getaffinity(0))
        return homes, sorted(os.sched_getaffinity(0))

    assert alone(look) == ([{one} for one in ALL] * 2, ALL)


@several
def test_where_processors_are_left_nobody_has_a_home():
    def look():
        with Home(0, n=len(ALL) - 1):
            return sorted(os.sched_getaffinity(0))

    assert alone(look) == ALL


@several
@pytest.mark.parametrize("asleep", [True, False])
def test_who_is_put_elsewhere_stays_there(asleep):
    def look():
        home, theirs = Home(0, n=len(ALL)), {ALL[-1]}
        if asleep:
            with home:
                os.sched_setaffinity(0, theirs)
        else:
            os.sched_setaffinity(0, theirs)
        with home:
            inside = os.sched_getaffinity(0)
        return inside, os.sched_getaffinity(0)

    assert alone(look) == ({ALL[-1]}, {ALL[-1]})


@several
def test_a_processor_that_is_gone_is_nobodys_home(monkeypatch):
    def refuse(pid, mask):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with Home(0, n=len(ALL)):
        assert sorted(os.sched_getaffinity(0)) == ALL
