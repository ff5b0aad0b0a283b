"""How much redundancy a one-message code should have: closed forms, simulation, and workers for which coding does not pay."""

import json

import numpy as np
import pytest

from unstraggle import Invalid, codes, simulate
from unstraggle.app.plots import redundancy_curve
from unstraggle.latency import (
    Bernoulli,
    Empirical,
    Exponential,
    Heterogeneous,
    Network,
    Pareto,
    Persistent,
    ShiftedExponential,
    TwoSpeed,
)
from unstraggle.plan import redundancy


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


def table(plan):
    return {(row["scheme"], row["s"]): row for row in plan.params["table"]}


@pytest.mark.parametrize("n, rate, shift", [(12, 2.0, 0.0), (20, 10.0, 0.05), (40, 10.0, 0.01), (7, 1.0, 0.3)])
def test_shifted_exponential_matches_its_closed_forms(n, rate, shift):
    plan = redundancy(ShiftedExponential(rate, shift), n, rounds=4000, carry=False)
    rows = table(plan)
    cyclic = {s: (s + 1) * (shift + (harmonic(n) - harmonic(s)) / rate) for s in range(n)}
    for s, time in cyclic.items():
        row = rows["cyclic_repetition" if s else "uncoded", s]
        assert row["time"] == pytest.approx(time, rel=1e-9) and row["ci95"] == [row["time"], row["time"]]
    grouped = {s: (s + 1) * shift + harmonic(n // (s + 1)) / rate for s in range(1, n) if n % (s + 1) == 0}
    for s, time in grouped.items():
        row = rows["fractional_repetition", s]
        assert abs(row["time"] - time) <= 2.5 * (row["ci95"][1] - row["ci95"][0]) / 2 + 1e-9
    best = min(*cyclic.values(), *grouped.values())
    chosen = grouped if plan.params["scheme"] == "fractional_repetition" else cyclic
    assert chosen[plan.params["s"]] == pytest.approx(best, rel=0.01)
    assert len(plan.params["table"]) == n + len(grouped)


def test_the_best_s_by_brute_force():
    """Pure exponential: groups cost H_(n/(s+1)) / rate, so all workers do everything; a shift makes less redundancy better."""
    assert redundancy(Exponential(3.0), 12, carry=False).name == "fractional_repetition(12, s=11)"
    assert redundancy(Exponential(3.0), 12, carry=False).cost == pytest.approx(1 / 3)
    assert redundancy(ShiftedExponential(10, 0.05), 20, carry=False).name == "fractional_repetition(20, s=1)"


def test_carry_over_takes_the_gain_from_repetition():
    """Who is in a task when a pair is served begins the next round late: here that costs more than repetition gains."""
    plan = redundancy(ShiftedExponential(10, 0.05), 20, rounds=4000)
    assert plan.name == "uncoded(20)" and plan.ci95 == (plan.cost, plan.cost)
    fresh = table(redundancy(ShiftedExponential(10, 0.05), 20, rounds=4000, carry=False))
    assert all(row["time"] > fresh[key]["time"] for key, row in table(plan).items() if 0 < key[1] < 19)


@pytest.mark.parametrize("n", [5, 7])
def test_cyclic_repetition_where_n_is_prime(n):
    plan = redundancy(TwoSpeed(fast=1.0, slow=50.0, p=0.02), n, carry=False)
    assert plan.params["scheme"] == "cyclic_repetition" and plan.params["s"] == 1
    assert plan.ci95 == (plan.cost, plan.cost) and plan.code.name == plan.name == f"cyclic_repetition({n}, s=1)"


@pytest.mark.parametrize(
    "latency",
    [
        ShiftedExponential(10, 0.02, per="task"),
        Heterogeneous([Exponential(10)] * 4 + [Exponential(1)] * 2),
        Network(Exponential(10), dim=100, bandwidth=1e4),
        Empirical(np.random.default_rng(0).exponential(size=300)),
        Empirical(np.random.default_rng(0).exponential(size=(300, 6))),
        Persistent(Exponential(10), Exponential(1), p=0.2, stay=5),
    ],
    ids=["task", "mixed", "network", "empirical", "rounds", "persistent"],
)
@pytest.mark.parametrize("carry", [False, True])
def test_agrees_with_simulation(latency, carry):
    plan = redundancy(latency, 6, rounds=4000, rng=1, carry=carry)
    assert plan.messages == pytest.approx(simulate(plan.code, latency, rounds=8000, rng=2, carry=carry).messages.mean, rel=0.05)
    for (scheme, s), row in table(plan).items():
        code = codes.uncoded(6) if scheme == "uncoded" else getattr(codes, scheme)(6, s)
        result = simulate(code, latency, rounds=8000, rng=3, carry=carry)
        error = (row["ci95"][1] - row["ci95"][0]) / 2 / 1.96
        assert abs(row["time"] - result.time.mean) <= 5 * np.hypot(error, result.time.se) + 1e-9, (scheme, s)
    assert plan.cost == min(row["time"] for row in plan.params["table"])


def test_common_random_numbers():
    """Groups are never later than cyclic repetition, so with the same draws neither are their means."""
    rows = table(redundancy(Heterogeneous([Exponential(10)] * 6 + [Exponential(1)] * 6), 12, rounds=500, carry=False))
    for s in (1, 2, 3, 5, 11):
        assert rows["fractional_repetition", s]["time"] <= rows["cyclic_repetition", s]["time"]


@pytest.mark.parametrize("latency", [ShiftedExponential(rate=1000, shift=1.0), TwoSpeed(fast=1.0, slow=1.5, p=0.3)])
def test_waiting_for_all_wins_when_workers_hardly_differ(latency):
    plan = redundancy(latency, 12)
    assert plan.name == "uncoded(12)" and plan.params["scheme"] == "uncoded" and plan.params["s"] == 0
    assert plan.messages == pytest.approx(12) and plan.code.name == "uncoded(12)"


def test_one_worker():
    plan = redundancy(Exponential(2.0), 1)
    assert plan.name == "uncoded(1)" and plan.cost == 0.5 and len(plan.params["table"]) == 1
    assert redundancy_curve(plan).axes


def test_infinite_means_are_not_chosen():
    """Pareto with shape 0.6: one worker and the first of one have infinite means, the first of two has not."""
    plan = redundancy(Pareto(0.6), 12, rounds=2000)
    rows = table(plan)
    assert rows["uncoded", 0]["time"] is None and rows["cyclic_repetition", 11]["time"] is not None
    assert rows["fractional_repetition", 1]["time"] is not None and plan.params["s"] >= 1
    assert np.isfinite(plan.cost) and "Infinity" not in json.dumps(plan.to_dict())
    rows = table(redundancy(Pareto(0.3), 12, rounds=2000))
    assert [rows["fractional_repetition", s]["time"] is None for s in (1, 2, 3, 5)] == [True, True, False, False]
    assert redundancy_curve(plan).axes[0].get_xlabel().startswith("stragglers")


def test_equal_seeds_give_equal_plans():
    first, again, other = (redundancy(Exponential(1.0, per="task"), 6, rounds=300, rng=seed) for seed in (1, 1, 2))
    assert first.to_dict() == again.to_dict() != other.to_dict()


def test_many_workers_are_no_problem():
    plan = redundancy(ShiftedExponential(10, 0.01), 600, rounds=500, carry=False)
    assert plan.params["scheme"] == "fractional_repetition" and len(plan.params["table"]) == 600 + 23


class Strange:
    """Order statistics that are not numbers."""

    def order_statistics(self, n):
        return np.full(n, np.nan)

    def sample(self, code, rounds, rng):
        return np.ones((rounds, len(code.messages)))


class Broken:
    def sample(self, code, rounds, rng):
        return np.full((rounds, len(code.messages)), np.nan)


BAD = {
    "no workers": (lambda: redundancy(Exponential(1), 0), "n=0"),
    "no model": (lambda: redundancy(3, 4), "but got 3"),
    "no rounds": (lambda: redundancy(Exponential(1), 4, rounds=0), "rounds=0"),
    "nobody answers": (lambda: redundancy(Bernoulli(0.1), 4), "infinite for all"),
    "hopeless tail": (lambda: redundancy(Pareto(0.05), 4), "infinite for all"),
    "means that are no numbers": (lambda: redundancy(Strange(), 4), "nan"),
    "times that are no numbers": (lambda: redundancy(Broken(), 4), "gave nan"),
    "another number of workers": (lambda: redundancy(Heterogeneous([Exponential(1)] * 3), 4), "3 workers"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    make, words = BAD[name]
    with pytest.raises(Invalid) as caught:
        make()
    assert words in str(caught.value)
