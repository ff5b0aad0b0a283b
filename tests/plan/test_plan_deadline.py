"""plan.deadline: the deadline and the code belong together, and the code is unbiased for the work that it really gives."""

from functools import cache

import numpy as np
import pytest

from unstraggle import Deadline, Invalid, plan
from unstraggle.latency import Empirical, Heterogeneous, Pareto, ShiftedExponential, TwoSpeed, Weibull
from unstraggle.plan import least_bound, mean_squared_error
from unstraggle.plan.deadline import _survival, _trial

deadline = cache(plan.deadline)

UNIT = ShiftedExponential(rate=1, shift=1)
UNEQUAL = Heterogeneous([UNIT] * 8 + [ShiftedExponential(rate=0.1, shift=1)] * 2)
MODELS = [(UNIT, 10), (Pareto(shape=1.5), 7), (Weibull(shape=0.6), 12), (UNEQUAL, 10), (Empirical([1.0, 1.5, 2.0, 9.0]), 6)]


def work_of(code):
    """(n,) units of work that a code gives each worker."""
    return np.bincount(code.tasks.worker, weights=code.tasks.work, minlength=code.n)


@pytest.mark.parametrize("latency, n", MODELS, ids=lambda value: str(value)[:30])
def test_code_is_unbiased_for_the_work_it_gives(latency, n):
    plan = deadline(latency, n)
    tau, p = plan.params["tau"], np.array(plan.params["p"])
    assert plan.stop == Deadline(tau)
    working = work_of(plan.code) > 0
    assert p[working] == pytest.approx(_survival(latency, np.maximum(work_of(plan.code), 1e-9), tau)[working])
    error = mean_squared_error(plan.code, p, "identical")
    assert error.unbiased and error.relative == pytest.approx(plan.params["error"])
    assert plan.cost == pytest.approx(tau * (1 + error.relative))


def test_estimates_of_simulated_rounds_are_unbiased():
    plan = deadline(UNEQUAL, 10)
    arrivals = UNEQUAL.sample(plan.code, 40_000, np.random.default_rng(1))
    weights = plan.code.decoder.weights(arrivals <= plan.params["tau"])[:, 0]
    coefficients = weights @ plan.code.messages.coef.toarray()
    errors = coefficients.std(axis=0) / np.sqrt(len(coefficients))
    assert (np.abs(coefficients.mean(axis=0) - 1) <= 4.5 * errors + 1e-12).all()


def test_no_other_deadline_is_better():
    plan = deadline(UNIT, 12)
    for factor in (0.5, 0.7, 0.9, 1.1, 1.4, 2.0):
        other = _trial(UNIT, 12, 12, factor * plan.params["tau"], None, None, None, "qsgd")
        assert other is None or other.cost >= 0.999 * plan.cost


def test_equal_workers_meet_the_optimal_bound():
    plan = deadline(UNIT, 8)
    assert plan.params["error"] == pytest.approx(least_bound(plan.params["p"], k=8) / 64)


def test_slow_workers_get_less():
    plan = deadline(UNEQUAL, 10)
    p = np.array(plan.params["p"])
    sums = np.bincount(plan.code.messages.worker, np.asarray(plan.code.messages.coef.sum(axis=1)).ravel(), 10) * (1 - p)
    assert sums[8:].mean() < 0.5 * sums[:8].mean()
    without = deadline(Heterogeneous([UNIT] * 8 + [ShiftedExponential(rate=1e-9, shift=1)] * 2), 10)
    assert plan.cost <= 1.02 * without.cost, "slow workers never harm"


def test_workers_that_differ_all_get_work_if_partitions_are_fine_enough():
    """Two fast workers and four slow ones: whole partitions are too much for the slow, smaller ones are not."""
    latency = Heterogeneous([ShiftedExponential(rate=10, shift=0.1)] * 2 + [ShiftedExponential(rate=3, shift=0.3)] * 4)
    coarse, fine = deadline(latency, 6), deadline(latency, 6, k=24)
    work = work_of(fine.code)
    assert (work > 0).all() and work[:2].mean() > 1.5 * work[2:].mean()
    assert fine.cost < 0.65 * coarse.cost


def test_finer_partitions_do_not_make_it_later():
    assert deadline(UNEQUAL, 10, k=40).cost <= 1.01 * deadline(UNEQUAL, 10).cost


def test_bits_and_links_are_planned_with_it():
    plan = deadline(UNIT, 10, dim=10_000, budget=60)
    assert sum(plan.params["bits"]) == 60 and set(plan.code.messages.bits) <= set(plan.params["bits"])
    assert [codec.bits for codec in plan.code.messages.codec] == plan.code.messages.bits.tolist()
    assert mean_squared_error(plan.code, plan.params["p"], "identical").unbiased
    slow = deadline(UNIT, 10, dim=10_000, bandwidth=1e4)
    assert slow.params["tau"] > deadline(UNIT, 10).params["tau"] + 3, "a message takes four seconds"
    assert deadline(UNIT, 10, dim=10_000, bandwidth=1e12).params["tau"] == pytest.approx(
        deadline(UNIT, 10).params["tau"], rel=0.05
    )


def test_one_worker_and_workers_that_may_never_answer():
    assert deadline(UNIT, 1).code.n == 1
    never = deadline(TwoSpeed(fast=1, slow=np.inf, p=0.3), 6)
    assert np.array(never.params["p"]) == pytest.approx(np.full(6, 0.3)) and never.params["tau"] == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: deadline(UNIT, 0), "n=0"),
        (lambda: deadline(UNEQUAL, 9), "10 workers"),
        (lambda: deadline(ShiftedExponential(1, per="task"), 5), "one speed"),
        (lambda: deadline(UNIT, 5, budget=30), "dim"),
        (lambda: deadline(UNIT, 5, dim=10, bandwidth=0), "bandwidth > 0"),
        (lambda: deadline(UNIT, 5, dim=10, budget=5), "budget"),
        (lambda: deadline(TwoSpeed(fast=1, slow=np.inf, p=1.0), 3), "no time"),
    ],
    ids=range(7),
)
def test_bad_input(call, words):
    with pytest.raises(Invalid) as caught:
        call()
    assert words in str(caught.value)
