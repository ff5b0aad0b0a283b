"""The benchmarks that hold plans and schemes against live runs: what they are made of, and slowly, that they run."""

import json

import numpy as np
import pytest

from benchmarks import planned, uneven
from benchmarks.lasting import Costly
from benchmarks.planned_settings import DIM, SETTINGS, N
from benchmarks.slow_link import SlowLink
from unstraggle.codes import work_conserving
from unstraggle.plan import auto
from unstraggle.plan.by_part import ByPart
from unstraggle.runtime.events import Finished
from unstraggle.runtime.message import Message, Order


class Told:
    """An engine whose clock and messages are given."""

    def __init__(self):
        self.coming, self.time = [], 0.0

    def start(self, order):
        self.time = 0.0

    def next(self, until):
        come, self.coming = self.coming, []
        self.time = max([self.time if until is None else until, *(one.time for one in come)])
        return come

    def clock(self):
        return self.time


def message(worker, time, size=100):
    return Message(worker, worker, 0, time, np.zeros(size, np.uint8))


def test_a_slow_link_carries_one_message_after_the_other():
    inner = Told()
    link = SlowLink(inner, rate=100.0)
    link.start(Order(0, 0, np.zeros(1)))
    inner.coming = [message(0, 1.0), message(1, 1.5), Finished(2, 0, 1.6)]
    assert [type(one).__name__ for one in link.next(None)] == ["Finished"], "words pass at once"
    assert [(one.worker, one.time) for one in link.next(None)] == [(0, 2.0)]
    assert link.next(2.5) == [] and link.clock() == 2.5
    assert [(one.worker, one.time) for one in link.next(None)] == [(1, 3.0)], "behind the first"
    inner.coming = [message(2, 3.5)]
    assert link.next(3.6) == []
    link.start(Order(1, 1, np.zeros(1)))
    assert link.next(9.0) == [], "it was for a round that is over"


def test_data_of_the_benchmark_cost_what_planners_assume():
    """Live and in theory a partition costs the mean of the stretches that it covers."""
    costs = SETTINGS["data-caused"].draw(3, 0)[1]
    for pieces in (1, 3, 4, 16):
        code = work_conserving(N, load=1, pieces=pieces)
        work = {(part, 0): 1 / pieces for part in range(code.k)}
        problem = Costly(code.k, DIM, np.ones((3, N)), work, costs=costs)
        live = [[problem.seconds(part, slice(None), step) for part in code.tasks.part.tolist()] for step in range(3)]
        assert live == pytest.approx(ByPart(costs).durations(code, 3, np.random.default_rng(0)))


def test_every_family_is_run_once_and_waiting_first():
    advice = auto(np.random.default_rng(0).exponential(1, (40, 4)) + 0.2, max_load=2)
    found = dict(planned.rivals(advice))
    assert list(found)[:2] == ["waiting", planned.family(advice.chosen)] and found["waiting"].name == "wait for all"
    assert {"repetition", "sums_on_request", "work_conserving"} <= set(found) and all(one.exact for one in found.values())


def curve(pace, losses):
    return np.array([pace * np.arange(len(losses)), losses])


def test_seconds_to_a_target_and_what_noise_decides():
    down = np.linspace(4, 1, 12)
    curves = {name: [curve(pace, down) for pace in (1.0, 1.1, 0.9)] for name in (*uneven.SCHEMES, uneven.DDP)}
    curves[uneven.OURS] = [curve(pace, down) for pace in (0.5, 0.55, 0.46)]
    curves["repetition"] = [curve(pace, down) for pace in (0.4, 0.6, 0.5)]
    curves["ignore the slowest"] = [curve(0.1, np.full(12, 4.0))] * 3
    rows = {row["scheme"]: row for row in uneven.rows(curves)}
    assert rows["wait for all"]["steps_to_target"] == 9 and rows["wait for all"]["to_target"][0] == pytest.approx(8.0)
    assert rows[uneven.DDP]["work_conserving_is"] == "faster" and rows["repetition"]["work_conserving_is"] == "not resolved"
    assert rows["ignore the slowest"]["to_target"] is None and rows["ignore the slowest"]["runs_that_reached_it"] == 0
    assert "work_conserving_is" not in rows[uneven.OURS]


@pytest.mark.slow
def test_a_short_run_of_both(monkeypatch, tmp_path):
    """Two settings with few rounds, and a network that is too small to say anything."""
    monkeypatch.setattr("benchmarks.common.RESULTS", tmp_path)
    for module, options in (
        (planned, {"RECORDED": 40, "LIVE": 12, "NAMES": ("unequal workers", "slow link")}),
        (uneven, {"MODELS": ("tiny",), "STEPS": 6, "SEEDS": 2}),
    ):
        for name, value in options.items():
            monkeypatch.setattr(module, name, value)
        module.main()
    found = json.loads((tmp_path / "planned.json").read_text())
    assert [row["setting"] for row in found["planned"]] == ["unequal workers", "slow link"]
    assert all(row["agree"] for row in found["doors"])
    rows = json.loads((tmp_path / "uneven.json").read_text())["tiny"]
    steps = {row["steps_to_target"] for row in rows if row["scheme"] != "ignore the slowest"}
    assert len(rows) == 5 and len(steps) == 1, "exact gradients, equal losses, equal steps"
