"""What a trace tells of the way of words and messages, and that plans count it."""

import numpy as np
import pytest

from unstraggle.codes import uncoded
from unstraggle.latency import Network, Replay
from unstraggle.plan import auto
from unstraggle.plan.links import Links, told
from unstraggle.trace import Trace, from_seconds

N = 4


def seconds(rounds=80, seed=0):
    return 0.1 + np.random.default_rng(seed).exponential(0.1, (rounds, N))


def sent(times, size, skew=0.0, **network):
    """A trace of rounds whose messages of so many bytes go through a network, with workers whose clocks are off."""
    model = Network(Replay(times), dim=size // 4, **network)
    arrival = model.deliver(uncoded(N), times)
    start = np.broadcast_to(np.linspace(0, skew, N), times.shape)
    return Trace(start[:, :, None], (start + times)[:, :, None], arrival[:, :, None] + skew, bytes=float(size))


@pytest.mark.parametrize("skew", [0.0, 0.003])
def test_a_round_trip_and_the_masters_link_are_told_apart(skew):
    found = told(sent(seconds(), 4000, skew, round_trip=0.01, master=4000 / 0.03))
    assert found.dim == 1000 and found.round_trip == pytest.approx(0.01 + skew, abs=0.004)
    assert found.master == pytest.approx(4000 / 0.03, rel=0.1) and np.isinf(found.bandwidth)


def test_large_messages_take_their_time_on_a_link_of_their_own():
    """That they are long under way does not mean that words are."""
    found = told(sent(seconds(), 4_000_000, bandwidth=4e6 / 0.05))
    assert found.round_trip == 0 and found.bandwidth == pytest.approx(4e6 / 0.05, rel=0.1)


def test_what_was_not_recorded_takes_no_time():
    times = seconds()
    assert told(from_seconds(times)) == Links() and Links().around("model") == "model"
    quick = sent(times, 4000)
    assert told(quick).round_trip == 0 and np.isinf(told(quick).master)
    no_size = Trace(quick.start, quick.end, quick.arrival)
    assert told(no_size) == Links()


def test_of_several_tasks_the_one_that_sends_counts():
    """A recorder writes the arrival of a message beside all of its tasks, and its size beside the last."""
    one = sent(seconds(), 4000, round_trip=0.01, master=4000 / 0.03)
    half, twice = one.end / 2, np.repeat(one.arrival, 2, axis=2)
    size = np.zeros(twice.shape)
    size[:, :, 1] = 4000.0
    cut = Trace(np.concatenate([one.start, half], 2), np.concatenate([half, one.end], 2), twice, size, work=0.5)
    assert told(cut) == told(one)


def test_plans_count_the_links_of_a_trace_unless_others_are_given():
    """Rounds of a live run took longer than predicted: every word took its time, and nothing said so."""
    free, slow = seconds(), sent(seconds(), 4000, round_trip=0.002, master=4000 / 0.03)

    def waiting(advice):
        return next(one.time for one in advice.candidates if one.name == "wait for all")

    told_so = auto(slow)
    assert waiting(told_so) == pytest.approx(slow.finish[40:].max(axis=1).mean(), rel=0.02)
    given = auto(slow, dim=1000, master=1e12, round_trip=0.0)
    assert waiting(given) == pytest.approx(free[40:].max(axis=1).mean(), rel=0.001)
