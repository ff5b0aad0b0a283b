"""Carry-over: a worker that is inside a task when a round ends stays in it. The simulator, the replay and a master agree."""

import numpy as np
import pytest

from unstraggle import Count, Deadline, First, Invalid, Linger, Master, Recovered, codes, replay, simulate
from unstraggle.engines import Virtual
from unstraggle.latency import Bernoulli, Exponential, FixedCost, Network, Replay, ShiftedExponential, TwoSpeed
from unstraggle.latency.network import in_turn
from unstraggle.scheme.arrivals import task_seconds
from unstraggle.scheme.busy import Busy
from unstraggle.study.carry import finished, left, left_of_equal
from unstraggle.testing import RecordedTasks

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example
from ..problems import least_squares

PAPER = ShiftedExponential(rate=10, shift=0.01)
ROUNDS = 120


def tasks_for(code, rounds=ROUNDS, seed=0):
    """Continuous times, then times on a grid, so that much happens at once, then tasks that never end."""
    rng = np.random.default_rng(seed)
    times = rng.exponential(size=(rounds, len(code.tasks))) + 0.2
    tied, lossy = slice(rounds // 3, 2 * rounds // 3), slice(2 * rounds // 3, rounds)
    times[tied] = np.ceil(times[tied] * 2) / 2
    times[lossy] = np.where(rng.random(times[lossy].shape) < 0.05, np.inf, times[lossy])
    return times


def assert_same(one, other):
    np.testing.assert_allclose(one.time.values, other.time.values, rtol=1e-12)
    ended = np.isfinite(other.time.values)
    np.testing.assert_array_equal(one.messages.values[ended], other.messages.values[ended])
    np.testing.assert_array_equal(one.exact.values, other.exact.values)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_three_twins(expression):
    """The same tasks through the simulator, the replay and the master on a sampled clock."""
    code = example(expression)
    by, times = "rule" if code.decoder.rule else "span", tasks_for(code)
    slow = replay(code, times, by=by, carry=True)
    assert_same(simulate(code, RecordedTasks(times), rounds=ROUNDS, by=by, carry=True), slow)
    rounds = int(np.append(np.isinf(slow.time.values), True).argmax())  # a master does not end a round that cannot end
    with Master(code, Virtual(least_squares(code, samples=60), RecordedTasks(times), carry=True), Recovered(by)) as master:
        live = [master.gradient(np.zeros(24)) for _ in range(min(rounds, 60))]
    np.testing.assert_allclose([one.wait for one in live], slow.time.values[: len(live)], rtol=1e-12)
    np.testing.assert_array_equal([one.messages for one in live], slow.messages.values[: len(live)])


STOPS = [Deadline(1.5), Count(3), Count(4, of="messages"), First(Recovered("span"), Deadline(1.2)), Linger(Deadline(0.7), 1.5)]


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("expression", ["uncoded_mmc(6, load=3)", APPROXIMATE_EXAMPLES[0]])
def test_every_stop_rule_has_twins(stop, expression):
    code = example(expression)
    if isinstance(stop, First) and expression in APPROXIMATE_EXAMPLES:
        pytest.skip("this code is never recovered")
    times = tasks_for(code)
    slow = replay(code, times, stop, carry=True)
    assert_same(simulate(code, RecordedTasks(times), stop, rounds=ROUNDS, carry=True), slow)
    with Master(code, Virtual(least_squares(code, samples=60), RecordedTasks(times), carry=True), stop) as master:
        live = [master.gradient(np.zeros(24)).wait for _ in range(60)]
    np.testing.assert_allclose(live, slow.time.values[:60], rtol=1e-12)


@pytest.mark.parametrize("by", ["rule", "span"])
def test_workers_of_a_recovered_cluster_are_free_earlier(by):
    code = codes.cluster(codes.uncoded_mmc(4, load=3), times=2)
    times = tasks_for(code)[:80]
    early = replay(code, times, by=by, sending="cluster_stop", carry=True)
    assert_same(simulate(code, RecordedTasks(times), rounds=80, by=by, sending="cluster_stop", carry=True), early)
    assert early.time.mean < replay(code, times, by=by, carry=True).time.mean


def test_the_kernel_does_what_busy_does():
    rng, code = np.random.default_rng(3), codes.uncoded_mmc(5, load=3)
    for _ in range(50):
        durations, free = rng.integers(1, 5, 15) / 2, rng.integers(0, 8, 5) / 2
        told, over = rng.integers(1, 9, 5) / 2, 5.0
        finish = finished(durations[None], code.tasks.queues, free[None])
        rest = left(finish, free[None], np.array([over]), told[None])[0]
        busy = Busy(5)
        busy.free = free.copy()
        busy.begin(code, durations)
        for worker in range(5):
            busy.stop((worker,), told[worker])
        busy.end(over)
        np.testing.assert_array_equal(rest, busy.free)
        speeds = rng.integers(1, 5, 5) / 2
        finish = finished(np.repeat(speeds, 3)[None], code.tasks.queues, free[None])
        rest = left(finish, free[None], np.array([over]), told[None])
        np.testing.assert_array_equal(left_of_equal(speeds[None], 3, free[None], np.array([over]), told[None]), rest)


def test_a_slow_task_stays_slow_until_it_is_done():
    """Worker 0 takes 10 s for its first task; the pair of workers goes on without it, and has it back in round 5."""
    code = codes.fractional_repetition(2, s=1)
    times = np.full((8, 4), 1.0)
    times[0, :2] = 5.0, 6.0
    busy = Busy(2)
    seen = []
    for row in times:
        busy.begin(code, row)
        busy.end(2.0)
        seen.append(busy.free.tolist())
    assert seen[:5] == [[3.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert simulate(code, RecordedTasks(times), rounds=8, carry=True).time.values.tolist() == [2.0] * 8


def test_waiting_for_all_carries_nothing():
    code = codes.uncoded(8)
    fresh, carried = (simulate(code, PAPER, rounds=3000, rng=1, carry=carry) for carry in (False, True))
    np.testing.assert_allclose(fresh.time.values, carried.time.values, rtol=1e-12)


def test_tasks_that_never_end_are_not_carried():
    """A worker that never answers in a round is there again in the next: the model of [C] stays what it is."""
    model, code = Bernoulli(0.3), codes.uncoded(6)
    fresh, carried = (simulate(code, model, Deadline(1.0), rounds=500, rng=1, carry=carry) for carry in (False, True))
    np.testing.assert_array_equal(fresh.messages.values, carried.messages.values)


FIGURE = {
    "uncoded_mmc(40, load=10)": 0.228,
    "fractional_repetition(40, s=9)": 0.358,
    "cluster(correlated_mmc(10, load=10, order=6), times=4)": 0.324,
    "cluster(uncorrelated_mmc(10, load=10, orders=[6, 8, 10]), times=4)": 0.493,
}
TWO = [(8, "uncoded_mmc(8, load=4)", 3.22), (8, "uncoded_mmc(8, load=2)", 3.51), (8, "fractional_repetition(8, s=1)", 3.13)]
TWO += [
    (2, "uncoded(8)", 1.57),
    (2, "uncoded_mmc(8, load=2)", 2.27),
    (3, "uncoded(8)", 2.13),
    (3, "uncoded_mmc(8, load=2)", 2.45),
]


@pytest.mark.parametrize("expression", FIGURE)
def test_figure_1_of_a_with_carry_over(expression):
    """Found first by an independent model of the same rounds."""
    found = simulate(example(expression), PAPER, rounds=16_000, rng=1, carry=True).time
    assert found.mean == pytest.approx(FIGURE[expression], abs=3 * found.se + 0.001)


@pytest.mark.parametrize("slow, expression, expected", TWO)
def test_two_speeds_with_carry_over(slow, expression, expected):
    """The same, with ties: workers that end a task when the round ends have begun the next one."""
    found = simulate(example(expression), TwoSpeed(1, slow, 0.1), rounds=16_000, rng=1, carry=True).time
    assert found.mean == pytest.approx(expected, abs=3 * found.se + 0.01)


def test_segments_side_by_side_are_one_chain():
    """Beyond the first segment the rounds are those of one long chain, but for what is older than the warm-up."""
    code = codes.uncoded_mmc(6, load=3)
    times = np.random.default_rng(2).exponential(size=(1500, 18)) + 0.1
    fast, slow = simulate(code, RecordedTasks(times), rounds=1500, carry=True), replay(code, times, carry=True)
    np.testing.assert_allclose(fast.time.values[:128], slow.time.values[:128], rtol=1e-12)
    assert fast.time.mean == pytest.approx(slow.time.mean, rel=0.002)


def test_results_depend_on_no_threads():
    one, many = (simulate(codes.uncoded_mmc(8, 3), PAPER, rounds=20_000, rng=1, threads=t, carry=True) for t in (1, 3))
    np.testing.assert_array_equal(one.time.values, many.time.values)


def test_intervals_of_a_chain_cover():
    """Rounds that hang together are not counted as if they were independent."""
    code = codes.uncoded_mmc(4, load=4)
    model = Exponential(rate=1.0, per="task")
    truth = simulate(code, model, rounds=100_000, rng=0, carry=True).time.mean
    intervals = [simulate(code, model, rounds=1000, rng=seed, carry=True).time.ci95 for seed in range(1, 101)]
    assert sum(low <= truth <= high for low, high in intervals) >= 88


def test_models_that_only_sample_are_asked_task_by_task():
    class Plain:
        def sample(self, code, rounds, rng):
            return PAPER.sample(code, rounds, rng)

    code = codes.uncoded_mmc(8, load=3)
    known, asked = (simulate(code, model, rounds=500, rng=2, carry=True) for model in (PAPER, Plain()))
    np.testing.assert_allclose(known.time.values, asked.time.values, rtol=1e-9)

    class Dice:
        def sample(self, code, rounds, rng):
            return rng.random((rounds, len(code.messages)))

    with pytest.raises(Invalid, match="durations"):
        simulate(code, Dice(), rounds=10, rng=0, carry=True)


def test_time_is_made_of_fixed_cost_work_and_way():
    code, base = codes.uncoded_mmc(3, load=2), RecordedTasks(np.array([[1.0, 2.0, 3.0, 1.0, 2.0, 5.0]] * 3))
    model = Network(FixedCost(base, seconds=(0.5, 0.0, 0.25)), dim=1000, bandwidth=8000.0, round_trip=0.125, master=16_000.0)
    np.testing.assert_array_equal(task_seconds(model, code, 1, None)[0], [1.5, 2.5, 3.0, 1.0, 2.25, 5.25])
    ready = np.array([[1.5, 4.0, 3.0, 4.0, 2.25, 7.5]])
    np.testing.assert_array_equal(in_turn(ready + 0.5, np.full(6, 0.25)), [[2.25, 4.75, 3.75, 5.0, 3.0, 8.25]])
    np.testing.assert_allclose(model.sample(code, 1, None), in_turn(ready + 0.5, np.full(6, 0.25)) + 0.125)
    times = task_seconds(model, code, 3, None)
    fast = simulate(code, model, rounds=3, carry=True)
    with Master(code, Virtual(least_squares(code, samples=60), model, carry=True)) as master:
        live = [master.gradient(np.zeros(24)).wait for _ in range(3)]
    np.testing.assert_allclose(live, fast.time.values, rtol=1e-12)
    assert fast.time.mean > replay(code, times, carry=True).time.mean


def test_the_link_of_the_master_turns_the_order_of_the_schemes_around():
    """At 3 ms a message sending each partial gradient takes longer than repetition, in the setting of [A]."""
    model = Network(PAPER, dim=750_000, master=1e9)
    for code, wide, narrow in ((codes.uncoded_mmc(40, 10), 0.169, 0.332), (codes.fractional_repetition(40, 9), 0.309, 0.312)):
        means = [simulate(code, way, rounds=8000, rng=1).time.mean for way in (PAPER, model)]
        assert means == pytest.approx([wide, narrow], abs=0.005)


def test_a_replayed_trace_goes_on_behind_a_network():
    """Rounds in several chunks are those of the trace, one after the other."""
    trace = np.random.default_rng(1).exponential(size=(10_000, 3)) + 0.1
    for model in (Network(Replay(trace), dim=1), FixedCost(Replay(trace), 0.0)):
        for carry in (False, True):
            result = simulate(codes.uncoded(3), model, rounds=10_000, carry=carry)
            np.testing.assert_allclose(result.time.values, trace.max(axis=1), rtol=1e-12)
