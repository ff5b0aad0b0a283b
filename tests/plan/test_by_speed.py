"""What plans make of a trace beside its stragglers: unequal workers, fixed costs, uneven data, blocks."""

import numpy as np
import pytest

from unstraggle import diagnose
from unstraggle.codes import uncoded, uncoded_mmc, work_conserving
from unstraggle.latency import Bernoulli, FixedCost, Replay, ShiftedExponential
from unstraggle.plan import auto
from unstraggle.plan.by_part import ByPart, cells
from unstraggle.plan.by_speed import measured_speeds
from unstraggle.plan.cause import cause
from unstraggle.plan.doubts import doubts
from unstraggle.torch.scheme import resolve
from unstraggle.trace import from_seconds

UNEVEN = np.array([0.25, 0.75])


def rng(seed=0):
    return np.random.default_rng(seed)


def unequal(rounds=40, n=6):
    """Workers of speeds 1 to 3."""
    return (1 + 0.02 * rng().random((rounds, n))) / np.linspace(1, 3, n)


def costly(rounds=60, n=4, cost=0.5):
    """Tasks of a quarter of a share and of the rest, with a fixed cost that is half of the work of a share."""
    speeds = 0.5 + rng(1).exponential(0.5, (rounds, n, 1))
    return from_seconds(cost + speeds * UNEVEN, work=UNEVEN)


def test_unequal_workers_get_work_in_proportion():
    advice = auto(unequal(), round_trip=0.05)
    assert advice.chosen.name.startswith("heterogeneity_aware([1.0, ") and "s=0" in advice.chosen.name
    assert advice.chosen.saving > 0.4
    assert not any(one.name.startswith("heterogeneity_aware") for one in auto(1 + 0.02 * rng().random((40, 6))).candidates)


def test_speeds_are_without_fixed_costs_and_need_workers_that_end():
    model = Replay(unequal(20))
    speeds = measured_speeds(model, 6, 20)
    assert speeds == pytest.approx(np.linspace(1, 3, 6), abs=0.05)
    assert measured_speeds(FixedCost(model, 1.0), 6, 20).tolist() == speeds.tolist()
    assert measured_speeds(Bernoulli(p=0.5), 3, 20).tolist() == [1.0] * 3


def test_a_fixed_cost_is_neither_a_doubt_nor_slow_data():
    """Small tasks take longer for their work: that was "not proportional to work", and looked like uneven data."""
    trace = costly()
    assert doubts(trace) == [] and cause(trace).kind == "changing" and cause(trace).tasks < 0.01
    assert auto(trace).candidates
    curved = from_seconds(rng(5).lognormal(0, 0.05, (60, 4, 3)) * np.array([1.0, 2.0, 3.0]), work=1 / 3)
    assert "not proportional to work" in doubts(curved)[0], "what no fixed cost explains still is"


def test_data_cost_as_much_as_the_tasks_that_were_recorded():
    """The mean over a worker's tasks hides the differences that pieces of them have."""
    tasks = rng(2).lognormal(0, 0.6, (30, 4, 3)) / 3
    recorded = from_seconds(tasks, work=1 / 3)
    data = ByPart(cells(recorded, recorded.seconds))
    assert data.durations(uncoded(4), 30, rng()) == pytest.approx(tasks.sum(axis=2))
    pieces = data.durations(work_conserving(4, load=1, pieces=3), 30, rng())
    assert pieces == pytest.approx(tasks.reshape(30, 12))
    finer = data.durations(work_conserving(4, load=1, pieces=6), 30, rng())
    assert finer == pytest.approx(np.repeat(tasks.reshape(30, 12), 2, axis=1) / 2)
    twice = data.durations(uncoded_mmc(4, load=2), 30, rng()).reshape(30, 4, 2)
    assert twice[:, 0, 1] == pytest.approx(twice[:, 1, 0]), "a copy takes as long elsewhere"
    uneven = from_seconds(tasks[:, :, :2], work=UNEVEN)
    assert cells(uneven, uneven.seconds) is not None and cells(uneven, uneven.seconds).shape == (30, 4)


def test_block_codes_are_advised_where_they_are_asked_for():
    """They presume what most networks cannot do, and `Coded(scheme="auto")` leaves them out: one verdict."""
    model = FixedCost(ShiftedExponential(rate=10, shift=0.01), 1e-9)
    asked, plain = (auto(model, n=6, rounds=600, round_trip=0.1, max_load=1, blocks=blocks) for blocks in (True, False))
    assert len(asked.chosen.plan.code.blocks) > 1 and any("blocks presume" in reason for reason in asked.reasons)
    assert plain.chosen is None or len(plain.chosen.plan.code.blocks) == 1
    assert any(f"{asked.chosen.name} would save" in reason and "blocks=True" in reason for reason in plain.reasons)


@pytest.mark.parametrize(
    "trace",
    [from_seconds(unequal(n=4)), costly()],
    ids=["unequal", "fixed cost"],
)
def test_three_doors_run_the_same_scheme(trace):
    chosen, found = auto(trace).chosen, diagnose(trace)
    name = chosen.plan.code.name if chosen else "uncoded(4)"
    assert resolve("auto", 4, trace, 10)[0].name == name
    assert (f"use {name}" in found.verdict.replace("Use", "use")) == (chosen is not None)
    assert "o code" not in found.verdict or chosen is None
