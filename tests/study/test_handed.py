"""Rounds that hand out tasks: simulated equals replayed equals a real master, with carry-over and without."""

import numpy as np
import pytest

from tests.examples import HANDED_EXAMPLES, example
from tests.problems import least_squares
from unstraggle import Master, simulate
from unstraggle.codes import uncoded_mmc, work_conserving
from unstraggle.engines import Virtual
from unstraggle.latency import Network, ShiftedExponential, TwoSpeed
from unstraggle.scheme.arrivals import Way
from unstraggle.scheme.code import Code, Messages, Tasks
from unstraggle.scheme.handing import Handing, OnRequest
from unstraggle.scheme.rule import Need
from unstraggle.study import handed_kernel
from unstraggle.study.handed import handed, replayed, simulated

SETTING = ShiftedExponential(rate=10, shift=0.01)


def durations(code, kind, rounds, rng):
    """Seconds of tasks: a speed per worker and round, a draw per task, and two speeds, of which many tasks end together.

    "ties": as many, by eighths, so that sums of them are exact. "rounded": by sevenths, whose sums are equal or differ by
    rounding, which must go the same way in both.
    """
    if kind == "task":
        return rng.exponential(size=(rounds, len(code.tasks)))
    if kind == "ties":
        return rng.integers(1, 4, size=(rounds, len(code.tasks))) / 8
    if kind == "rounded":
        return rng.integers(1, 4, size=(rounds, len(code.tasks))) / 7
    drawn = (
        0.05 + rng.exponential(size=(rounds, code.n))
        if kind == "worker"
        else np.where(rng.random((rounds, code.n)) < 0.3, 8.0, 1.0)
    )
    return drawn[:, code.tasks.worker] * code.tasks.work


@pytest.mark.parametrize("expression", (*HANDED_EXAMPLES, "work_conserving(7, load=3, pieces=2, reserve=2)"))
def test_simulated_rounds_are_those_of_a_real_round(expression):
    code, rng = example(expression), np.random.default_rng(0)
    for carry in (False, True):
        for kind in ("worker", "task", "two"):
            seconds = durations(code, kind, 25, rng)
            times, sums = simulated(code, seconds, carry)
            again, sent, residual = replayed(code, seconds, carry)
            np.testing.assert_allclose(times, again, rtol=1e-12, err_msg=f"{kind} {carry}")
            assert np.array_equal(sums, sent) and (residual == 0).all()


def drawn_code(rng):
    """A few workers that own any partitions, of one size or of several, and may take from any others."""
    n = int(rng.integers(1, 8))
    k = int(rng.integers(n, 5 * n + 1))
    owner, takes, order = rng.integers(n, size=k), rng.random((n, n)) < rng.choice([0.2, 0.6, 1.0]), rng.permutation(k)
    takes[np.diag_indices(n)] = True
    takes[:, owner[0]] |= ~takes[:, owner].any(axis=1)
    worker, place = np.nonzero(takes[:, owner[order]])
    work = rng.choice([0.25, 0.5, 1.0] if rng.random() < 0.5 else [0.5], size=k)[order[place]]
    messages = Messages(np.arange(n), np.bincount(worker), takes[:, owner].astype(float))
    how = Handing(tuple(owner.tolist()), helpers=bool(rng.integers(2)), reserve=int(rng.choice([0, 0, 1, 2])))
    decoder = OnRequest(messages.coef, Need(n, tuple(range(n))))
    return Code("drawn", n, Tasks(worker, order[place], work=work), messages, decoder, handing=how)


@pytest.mark.parametrize("kind", ["worker", "task", "two", "ties", "rounded"])
def test_simulated_rounds_of_drawn_codes_are_those_of_a_real_round(kind):
    """Any owners, sizes, helpers and reserve, with words that take time and without, with carry-over and without."""
    for seed in range(80):
        rng = np.random.default_rng(seed)
        code, carry, word = (
            drawn_code(rng),
            bool(rng.integers(2)),
            rng.choice([0.05, 0.1] if kind == "rounded" else [0.0, 0.0, 0.125]),
        )
        way = Way(word, rng.choice([0.0, 0.25], size=code.n), np.full(code.n, word))
        seconds = durations(code, kind, 5, rng)
        times, sums = simulated(code, seconds, carry, way)
        again, sent, _ = replayed(code, seconds, carry, way)
        np.testing.assert_allclose(times, again, rtol=0 if kind == "rounded" else 1e-12, err_msg=f"{seed}")
        assert np.array_equal(sums, sent), seed


def test_the_kernel_is_compiled_once_whatever_the_order_of_memory():
    for code in (example("work_conserving(5, load=3, pieces=3)"), example("work_conserving(1, load=1, pieces=2)")):
        seconds = durations(code, "task", 4, np.random.default_rng(0))
        times = [simulated(code, order(seconds), carry=True)[0].tolist() for order in (np.ascontiguousarray, np.asfortranarray)]
        assert times[0] == times[1]
    assert len(handed_kernel.handed_rounds.signatures) == 1


@pytest.mark.parametrize("helpers", [False, True])
def test_rounds_by_speeds_are_those_by_seconds_of_tasks(helpers):
    code = work_conserving(7, load=3, pieces=3, helpers=helpers)
    times, sums, _ = handed(code, SETTING, 50, np.random.default_rng(3), np.zeros(7), carry=True)
    speeds = SETTING.speeds(7, 50, np.random.default_rng(3))
    again, sent = simulated(code, speeds[:, code.tasks.worker] * code.tasks.work, carry=True)
    np.testing.assert_allclose(times, again, rtol=1e-12)
    assert np.array_equal(sums, sent)


@pytest.mark.parametrize("carry", [False, True])
def test_a_master_over_virtual_takes_as_long_as_the_simulation(carry):
    code = work_conserving(5, load=3, pieces=3)
    problem, rounds = least_squares(code), 30
    with Master(code, Virtual(problem, SETTING, rng=7, carry=carry)) as master:
        estimates = [master.gradient(np.full(24, 0.1), step) for step in range(rounds)]
    drawn = np.concatenate([SETTING.speeds(5, 1, rng) for rng in [np.random.default_rng(7)] for _ in range(rounds)])
    times, sums = simulated(code, drawn[:, code.tasks.worker] * code.tasks.work, carry)
    np.testing.assert_allclose([estimate.wait for estimate in estimates], times, rtol=1e-12)
    assert [estimate.messages for estimate in estimates] == sums.tolist()
    for estimate in estimates:
        np.testing.assert_allclose(estimate.gradient, problem.gradient(np.full(24, 0.1)), rtol=1e-9)


def test_the_setting_of_figure_1_of_ozfatura_et_al():
    """K = 40, r = 10, carry-over counted: nothing twice takes at most 0.090 s for 40 sums, helpers make it at most 0.075 s."""
    nothing_twice = simulate(work_conserving(40, load=10, pieces=10, helpers=False), SETTING, rounds=4000, rng=0, carry=True)
    helped = simulate(work_conserving(40, load=10, pieces=10), SETTING, rounds=4000, rng=0, carry=True)
    static = simulate(uncoded_mmc(40, load=10), SETTING, rounds=4000, rng=0, carry=True)
    assert nothing_twice.time.mean < 0.090 and nothing_twice.messages.mean == 40
    assert helped.time.mean < 0.075 and helped.messages.mean <= 40
    assert helped.time.mean < 0.4 * static.time.mean and helped.exact.mean == 1


def test_without_stragglers_helpers_cost_nothing():
    even = TwoSpeed(fast=1.0, slow=1.0, p=0.0)
    for pieces in (1, 4):
        assert simulate(
            work_conserving(8, load=2, pieces=pieces), even, rounds=50, rng=0, carry=True
        ).time.mean == pytest.approx(1.0)


def test_chunks_go_on_where_the_one_before_ended():
    code = work_conserving(4, load=2, pieces=2)
    result = simulate(code, SETTING, rounds=9000, rng=0, carry=True, threads=1)
    assert len(result) == 9000 and np.isfinite(result.time.values).all()


@pytest.mark.parametrize(
    "expression",
    [
        "work_conserving(5, load=3, pieces=3)",
        "work_conserving(6, load=2, pieces=4, reserve=1)",
        "work_conserving(5, load=3, pieces=2, helpers=False, reserve=2)",
        "sums_on_request(5, load=2, pieces=3)",
    ],
)
@pytest.mark.parametrize("carry", [False, True])
def test_words_and_sums_take_their_time(expression, carry):
    """Every note and every word takes half a round trip, sums go through both links; kernel and event twin agree."""
    code, rng = example(expression), np.random.default_rng(1)
    rates = tuple(rng.uniform(1e4, 4e4, code.n).tolist())
    way = Network(SETTING, dim=1000, bandwidth=rates, round_trip=0.12, master=2e5).way(code)
    for kind in ("worker", "task"):
        seconds = durations(code, kind, 25, rng)
        times, sums = simulated(code, seconds, carry, way)
        again, sent, _ = replayed(code, seconds, carry, way)
        np.testing.assert_allclose(times, again, rtol=1e-12, err_msg=kind)
        assert np.array_equal(sums, sent)


def test_a_network_around_the_model_counts_in_simulations_and_on_virtual():
    code, network = work_conserving(5, load=3, pieces=3, reserve=1), Network(SETTING, dim=24, round_trip=0.02, master=1e4)
    problem = least_squares(code)
    with Master(code, Virtual(problem, network, rng=7, carry=True)) as master:
        waits = [master.gradient(np.full(24, 0.1), step).wait for step in range(20)]
    drawn = np.concatenate([SETTING.speeds(5, 1, rng) for rng in [np.random.default_rng(7)] for _ in range(20)])
    times, _ = simulated(code, drawn[:, code.tasks.worker] * code.tasks.work, True, network.way(code))
    np.testing.assert_allclose(waits, times, rtol=1e-12)
    free = simulate(code, SETTING, rounds=2000, rng=0, carry=True).time.mean
    assert simulate(code, network, rounds=2000, rng=0, carry=True).time.mean > free + 2 * 0.02 + 4 * 0.0096  # five sums queue


def test_a_piece_in_reserve_hides_the_way_of_words():
    """Figure 1's setting with 20 ms there and back, a piece taking 22: one piece ahead wins most of it back."""

    def mean(reserve, round_trip):
        code = work_conserving(40, load=10, pieces=5, reserve=reserve)
        return simulate(code, Network(SETTING, dim=1, round_trip=round_trip), rounds=1000, rng=0).time.mean

    assert mean(0, 0.0) == pytest.approx(0.0775, abs=0.001)
    told, ahead = mean(0, 0.02), mean(1, 0.02)
    assert told > 2 * mean(0, 0.0) and ahead < 0.8 * told
