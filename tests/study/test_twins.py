"""Twins: for every code and stop rule, vectorised times equal an event replay through a real Round."""

import numpy as np
import pytest

from unstraggle import Count, Deadline, First, Linger, Recovered, replay, simulate
from unstraggle.latency import ShiftedExponential
from unstraggle.testing import Recorded

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example

STOPS = {
    "recovered by rule": Recovered("rule"),
    "recovered by span": Recovered("span"),
    "deadline": Deadline(2.5),
    "count of workers": Count(1),
    "count of messages": Count(1, of="messages"),
    "first of recovered and deadline": First(Recovered("span"), Deadline(2.0)),
    "first of two counts": First(Count(1), Count(1, of="messages")),
    "linger after recovered": Linger(Recovered("span"), 1.3),
    "linger after a deadline": Linger(Deadline(1.0), 2.0),
}

ASKING = {"recovered by rule", "recovered by span", "first of recovered and deadline", "linger after recovered"}
"""Stop rules that ask the decoder, so that each code answers in its own way; the others only see times and workers."""
TWO = ("cyclic_repetition(9, s=4)", "cluster(uncorrelated_mmc(5, load=5, orders=[3, 5]), times=2)")
"""One message per worker, and several that arrive in their own time."""
ROUNDS = 240
"""Half of them with continuous times, a quarter with ties, a quarter with losses."""
CASES = [(name, expression) for name in STOPS for expression in (EXAMPLES if name in ASKING else TWO)]


def arrivals_for(code, rounds, seed):
    """Continuous times, then rounds with ties, then rounds in which messages never arrive."""
    rng = np.random.default_rng(seed)
    times = ShiftedExponential(rate=1.0, shift=0.2).sample(code, rounds, rng)
    tied, lossy = slice(rounds // 2, 3 * rounds // 4), slice(3 * rounds // 4, rounds)
    times[tied] = np.ceil(times[tied] * 2) / 2
    times[lossy] = np.where(rng.random(times[lossy].shape) < 0.2, np.inf, times[lossy])
    return times


@pytest.mark.parametrize("name, expression", CASES)
def test_simulated_equals_replayed(name, expression):
    code, stop = example(expression), STOPS[name]
    if code.decoder.rule is None and name == "recovered by rule":
        pytest.skip("this code has no rule: it is decided by span only")
    by = "rule" if code.decoder.rule else "span"
    if isinstance(stop, Count) and code.n > 2:
        stop = Count(code.n // 2, of=stop.of)
    arrivals = arrivals_for(code, ROUNDS, seed=7)
    fast = simulate(code, Recorded(arrivals), stop, rounds=ROUNDS, by=by)
    slow = replay(code, arrivals, stop, by=by)
    assert np.allclose(fast.time.values, slow.time.values, rtol=1e-12, atol=0, equal_nan=False)
    assert np.array_equal(fast.exact.values, slow.exact.values)
    ended = np.isfinite(slow.time.values)
    assert np.array_equal(fast.messages.values[ended], slow.messages.values[ended])


@pytest.mark.parametrize("expression", [e for e in EXAMPLES if e.startswith(("cluster", "hybrid(cluster", "stack", "blocks"))])
@pytest.mark.parametrize("by", ["rule", "span"])
def test_early_stop_of_clusters_is_the_same_live(expression, by):
    code = example(expression)
    arrivals = arrivals_for(code, 160, seed=3)[:120]
    fast = simulate(code, Recorded(arrivals), rounds=120, by=by, sending="cluster_stop")
    slow = replay(code, arrivals, by=by, sending="cluster_stop")
    assert np.array_equal(fast.messages.values, slow.messages.values)
    assert np.array_equal(fast.time.values, slow.time.values)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_by_span_is_never_later_than_by_rule(expression):
    code = example(expression)
    if code.decoder.rule is None:
        pytest.skip("this code has no rule: it is decided by span only")
    arrivals = arrivals_for(code, 1000, seed=11)
    span, rule = (Recovered(by).time(code, arrivals) for by in ("span", "rule"))
    assert (span <= rule).all()


@pytest.mark.parametrize("expression", EXAMPLES)
def test_one_speed_a_worker_needs_no_arrival_times(expression):
    """The fused path of the simulator gives what writing out all arrivals gives."""
    code, latency = example(expression), ShiftedExponential(rate=3.0, shift=0.1)
    if code.decoder.rule is None:
        pytest.skip("this code has no rule: it is decided by span only")

    class Written:
        def sample(self, code, rounds, rng):
            return latency.sample(code, rounds, rng)

    fused = simulate(code, latency, rounds=500, rng=5)
    written = simulate(code, Written(), rounds=500, rng=5)
    assert np.array_equal(fused.time.values, written.time.values)
    assert np.array_equal(fused.messages.values, written.messages.values)


@pytest.mark.parametrize("expression", APPROXIMATE_EXAMPLES)
@pytest.mark.parametrize("name", ["deadline", "count of workers", "linger after a deadline"])
def test_approximate_codes_are_simulated_as_they_run(expression, name):
    """They stop by the clock; whether a round was exact is decided by span."""
    code = example(expression)
    arrivals = arrivals_for(code, 160, seed=5)
    fast, slow = (
        simulate(code, Recorded(arrivals), STOPS[name], rounds=160, by="span"),
        replay(code, arrivals, STOPS[name], by="span"),
    )
    assert np.allclose(fast.time.values, slow.time.values, rtol=1e-12, atol=0)
    assert np.array_equal(fast.messages.values, slow.messages.values) and np.array_equal(fast.exact.values, slow.exact.values)
