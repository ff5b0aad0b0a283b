"""Who has sent what may be enough does not begin redundant work before the round usually ends."""

import numpy as np
import pytest

from unstraggle import Master, codes
from unstraggle.engines import Abandoned, Virtual
from unstraggle.runtime.holding import LEARNED, LEAST, MOST, ROUNDS, Hold, Holding, enough_messages
from unstraggle.runtime.serve import Job, run, share_of

from ..problems import Constant

CODE = codes.uncoded_mmc(3, load=2)
"""Messages 0, 2 and 4 are the first ones of their workers."""


def arrivals(*first):
    times = np.full(6, np.inf)
    times[::2] = first
    return times


def learned(*rounds):
    holding = Holding(CODE)
    for first, starts, end in rounds:
        holding.learn(arrivals(*first), arrivals(*starts), end)
    return holding.hold


FREE = (0.0, 0.0, 0.0)
CALM = ((0.95, 0.99, 1.0), FREE, 1.0)
LATE = ((0.95, 0.99, np.inf), FREE, 2.0)
SLOW = ((0.5, 0.9, 1.0), FREE, 1.0)
CARRIED = ((1.0, 1.05, 1.2), (0.0, 0.05, 0.2), 1.2)
"""Tasks are alike, but two workers were in others when the round began."""


@pytest.mark.parametrize(
    ("expression", "enough"),
    [
        ("uncoded_mmc(4, load=3)", 1),
        ("uncoded(4)", 0),
        ("cyclic_repetition(4, s=1)", 0),
        ("correlated_mmc(4, load=4, order=2)", 1),
        ("stack(uncoded(4), fractional_repetition(4, s=1), shares=[0.5, 0.5])", 0),
        ("work_conserving(3, load=2, pieces=2)", 0),
        ("stochastic(4, p=0.2)", 0),
    ],
)
def test_how_many_messages_of_everybody_are_enough(expression, enough):
    from unstraggle import parse_code

    assert enough_messages(parse_code(expression)) == enough


def test_nothing_is_held_before_enough_rounds_are_known():
    assert learned(*[CALM] * (LEARNED - 1)) is None
    assert learned(*[CALM] * LEARNED) == Hold(pytest.approx(LEAST), 1)
    assert learned(*[((0.85, 0.99, 1.0), FREE, 1.0)] * LEARNED) == Hold(pytest.approx(1.25 * 0.15), 1)


def test_a_straggler_now_and_then_is_no_reason_to_hurry_and_a_usual_one_is():
    assert learned(*[CALM] * 6, *[LATE] * 4) is not None
    assert learned(*[CALM] * 4, *[LATE] * 6) is None
    assert learned(*[SLOW] * 10) is None
    assert learned(*[LATE] * ROUNDS, *[CALM] * ROUNDS) is not None


def test_who_was_in_another_task_is_no_straggler_and_is_waited_for():
    assert learned(*[CARRIED] * LEARNED) == Hold(pytest.approx(1.25 * 0.2), 1)


def test_workers_that_have_lost_step_are_brought_together_at_once():
    assert learned(*[CALM] * 10, *[CARRIED] * 2) == Hold(pytest.approx(1.25 * 0.2), 1)
    assert learned(*[CALM] * 10, *[CARRIED] * 2, *[CALM] * 2) == Hold(pytest.approx(LEAST), 1)


def test_nobody_waits_long():
    far = ((1.0, 2.0, 3.0), (0.0, 1.0, 2.0), 3.0)
    assert learned(*[far] * LEARNED) == Hold(pytest.approx(MOST * 3.0), 1)


def test_codes_without_redundant_messages_learn_nothing():
    holding = Holding(codes.uncoded(3))
    for _ in range(10):
        holding.learn(np.ones(3), np.zeros(3), 1.0)
    assert holding.hold is None


def worked(hold, wait):
    """What a worker sends and how long it is asked to wait."""
    sent, waits = [], []

    def pause(until):
        waits.append(until)
        wait()

    code = codes.uncoded_mmc(3, load=3)
    job = Job(0, 0, np.zeros(8), 0.0, hold=hold)
    run(share_of(Constant(3), code, 0), job, lambda message, *_: sent.append(message.index), lambda: False, pause)
    return sent, len(waits)


def abandon():
    raise Abandoned


def test_a_worker_waits_once_and_goes_on_unless_the_round_is_over():
    assert worked((0.0, 0), abandon) == ([0, 1, 2], 0)
    assert worked((0.5, 1), lambda: None) == ([0, 1, 2], 1)
    assert worked((0.5, 2), abandon) == ([0, 1], 1)


def test_a_master_says_so_in_its_orders():
    """Where everybody is equally fast."""

    class Orders(Virtual):
        def start(self, order):
            self.holds = [*getattr(self, "holds", []), order.hold]
            super().start(order)

    class Same:
        def sample(self, code, rounds, rng):
            return np.tile(code.messages.after * 1.0, (rounds, 1))

    with Master(CODE, Orders(Constant(3), Same(), rng=0)) as master:
        for _ in range(LEARNED + 1):
            master.gradient(np.zeros(8))
        assert master.engine.holds == [None] * LEARNED + [Hold(LEAST, 1)]
