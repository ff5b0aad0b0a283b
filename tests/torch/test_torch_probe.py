"""What a pass costs however few samples it has, measured before the start."""

import logging

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle import engines
from unstraggle.engines import Local, Virtual
from unstraggle.errors import Invalid
from unstraggle.latency import ShiftedExponential
from unstraggle.plan import auto
from unstraggle.plan.handed import PIECES, UNTOLD, finest
from unstraggle.torch import Coded, probe
from unstraggle.torch.probe import PassCost, measured, probed, probed_on_workers
from unstraggle.torch.scheme import resolve
from unstraggle.trace import from_seconds

from ..torch_models import Unpicklable, mlp, scaled, table
from ..torch_models import coded as coded_of


class Machine:
    """A clock that passes run on: a + b samples, with a delay now and then, and a slow first pass of each size."""

    def __init__(self, fixed, each, every=0):
        self.now, self.fixed, self.each, self.every, self.ran = 0.0, fixed, each, every, []

    def run(self, count):
        first = count not in self.ran
        self.ran.append(count)
        late = 100.0 if first or (self.every and len(self.ran) % self.every == 0) else 0.0
        self.now += self.fixed + self.each * count + late

    def clock(self):
        return self.now


@pytest.mark.parametrize("every", [0, 4])
def test_a_and_b_are_found_whatever_single_passes_take(every):
    machine = Machine(0.3, 0.02, every)
    found = measured(machine.run, 40, machine.clock)
    assert found.fixed == pytest.approx(0.3) and found.whole == pytest.approx(0.3 + 0.02 * 40) and found.samples == 40
    assert set(machine.ran) == {10, 20, 40}


def test_a_cost_is_never_negative():
    assert measured((machine := Machine(-0.1, 0.1)).run, 40, machine.clock).fixed == 0.0
    found = measured((machine := Machine(2.0, -0.01)).run, 40, machine.clock)
    assert found.fixed == found.whole > 0


@pytest.mark.parametrize("samples", [0, 1, 3])
def test_too_few_samples_tell_nothing(samples):
    machine = Machine(0.3, 0.02)
    assert measured(machine.run, samples, machine.clock) is None and machine.ran == []


def test_passes_of_a_problem_have_parts_of_a_share_and_leave_nothing_behind(monkeypatch, caplog):
    seen, threads = [], []
    found = PassCost(0.1, 0.2, 8)
    monkeypatch.setattr(probe, "measured", lambda run, samples: [run(count) for count in (3, samples)] and found)
    with coded_of(mlp(), data=table(), scheme="uncoded(2)") as run, caplog.at_level(logging.INFO, "unstraggle"):
        problem = run.problem
        problem.how.__dict__["forward"] = lambda model, batch: (
            seen.append(len(batch[0])) or threads.append(torch.get_num_threads()) or model(batch[0]),
            batch[1],
        )
        before = torch.get_num_threads()
        assert probed(problem, threads=before + 1) is found
        assert seen == [3, 8] and threads == 2 * [before + 1] and torch.get_num_threads() == before
        assert all(p.grad is None for p in problem.model.parameters())
    assert "takes 0.2 s, of which 0.1 s whatever their number" in caplog.text


def test_the_middle_worker_that_can_tell_counts(monkeypatch, caplog):
    costs = iter([PassCost(0.3, 0.4, 8), None, PassCost(0.1, 0.9, 7), PassCost(0.2, 0.3, 8)])
    monkeypatch.setattr(probe, "measured", lambda run, samples: next(costs))
    with coded_of(mlp(), data=table(), scheme="uncoded(4)") as run, caplog.at_level(logging.INFO, "unstraggle"):
        clock = lambda problem: Virtual(problem, ShiftedExponential(rate=1.0), rng=0)  # noqa: E731
        assert probed_on_workers(run.problem, clock) == PassCost(0.2, 0.3, 8)
        assert "On the workers: A pass over the 8 samples of a share takes 0.3 s" in caplog.text
        monkeypatch.setattr(probe, "measured", lambda run, samples: None)
        assert probed_on_workers(run.problem, clock) is None


@pytest.mark.parametrize("options", [{}, {"parts": "random"}, {"forward": scaled, "context": {"temperature": 2.0}}])
def test_workers_measure_on_their_own_samples(options):
    """Processes that have no others, where partitions are fixed, and get the values of a step."""
    with coded_of(mlp(), data=table(), scheme="uncoded(2)", **options) as run:
        found = probed_on_workers(run.problem, Local)
    assert 0 <= found.fixed <= found.whole and found.samples in (8, 25)


def whole_shares(rounds=200, n=4):
    """Whole shares, of which one in eight takes three times as long: they do not tell what a piece would cost."""
    rng = np.random.default_rng(0)
    return np.where(rng.random((rounds, n)) < 0.125, 3.0, 1.0) + rng.random((rounds, n)) / 50


def pieces_of(advice):
    found = [one for one in advice.candidates if one.name.startswith("work_conserving")]
    return min(found, key=lambda one: one.seen).plan.code.k // 4


def test_the_planner_cuts_less_where_pieces_are_dear():
    assert [finest(from_seconds(whole_shares()), cost) for cost in (None, 0.0, 0.5)] == [UNTOLD, PIECES[-1], PIECES[-1]]
    cheap, dear = (auto(whole_shares(), rounds=2000, task_cost=cost) for cost in (0.0, 0.5))
    assert pieces_of(cheap) > pieces_of(dear)
    best = [min(one.seen for one in advice.candidates if one.exact) for advice in (cheap, dear)]
    assert best[0] < best[1]
    assert any("small pieces are dear" in reason for reason in dear.reasons)
    assert "--uneven" not in " ".join(cheap.reasons) and "--uneven" in " ".join(auto(whole_shares(), rounds=2000).reasons)


def test_a_trace_that_tells_is_believed():
    times = 0.5 + np.random.default_rng(0).uniform(1, 2, (60, 4, 1)) * [0.25, 0.75]
    trace = from_seconds(times, work=[0.25, 0.75])
    told, given = (auto(trace, rounds=500, task_cost=cost) for cost in (None, 0.1))
    assert [one.time for one in told.candidates] == [one.time for one in given.candidates]


def test_a_cost_below_zero_is_refused():
    with pytest.raises(Invalid, match="task_cost >= 0"):
        auto(whole_shares(), task_cost=-0.1)


def test_only_what_a_trace_does_not_tell_is_measured():
    asked = []
    cost = lambda: asked.append(1) or 0.5  # noqa: E731
    dear, _, _, _ = resolve("auto", 4, whole_shares(), 10, task_cost=cost)
    cheap, _, _, _ = resolve("auto", 4, whole_shares(), 10, task_cost=lambda: 0.0)
    assert len(asked) == 1 and dear.k < cheap.k
    times = 0.5 + np.random.default_rng(0).uniform(1, 2, (60, 4, 1)) * [0.25, 0.75]
    resolve("auto", 4, from_seconds(times, work=[0.25, 0.75]), 10, task_cost=cost)
    resolve("auto", 4, ShiftedExponential(rate=1.0), 10, task_cost=cost)
    resolve("auto", 4, None, 10, task_cost=cost)
    assert len(asked) == 1


@pytest.mark.parametrize(("options", "asked"), [({}, 1), ({"check": False}, 0), ({"engine": "virtual"}, 0)])
def test_a_run_measures_before_it_plans(monkeypatch, options, asked):
    seen = []
    monkeypatch.setattr(probe, "probed", lambda problem, threads: seen.append((problem.k, threads)) or PassCost(50.0, 60.0, 8))
    options = {"workers": 4, "latency": whole_shares(), "batch_size": 32, "trial": 0, **options}
    with Coded(mlp(), nn.CrossEntropyLoss(), table(), **options) as run:
        assert seen == [(4, 1)] * asked and run.cost == (PassCost(50.0, 60.0, 8) if asked else None)
        assert (run.code.name == "uncoded(4)") is bool(asked)  # pieces that cost 50 s are worth nothing
        assert run.backward().exact


def test_on_other_engines_a_run_measures_on_their_workers(monkeypatch):
    made = []
    monkeypatch.setattr(probe, "probed_on_workers", lambda problem, make: made.append(make(problem)) or PassCost(50.0, 60.0, 8))
    monkeypatch.setattr(engines, "MPI", lambda problem, **options: options or Local(problem))
    options = {"workers": 4, "latency": whole_shares(), "batch_size": 32, "engine": "mpi", "trial": 0}
    with Coded(mlp(), nn.CrossEntropyLoss(), table(), **options) as run:
        assert made == [{"way": "host"}] and run.cost == PassCost(50.0, 60.0, 8) and run.code.name == "uncoded(4)"


def test_what_cannot_be_sent_to_be_measured_is_named(monkeypatch):
    monkeypatch.setattr(engines, "MPI", lambda problem, way: Local(problem))
    options = {"workers": 4, "latency": whole_shares(), "batch_size": 16, "engine": "mpi"}
    with pytest.raises(Invalid, match="dataset"):
        Coded(mlp(), nn.CrossEntropyLoss(), Unpicklable(), **options)
