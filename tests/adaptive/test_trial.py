"""What the planner advises is tried before it is believed: confirmed where it helps, given up where it does not."""

import numpy as np
import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle import Invalid
from unstraggle.adaptive.trial import Trial
from unstraggle.torch import Coded

N = 4
DATA = torch.randn(64, 3), torch.randn(64, 1)
STRAGGLING = np.where(np.random.default_rng(0).random((80, N)) < 0.2, 8.0, 1.0)
EVEN = np.ones((80, N))


def planned(clock, **options):
    """A run that planned with stragglers, on workers that have their own times."""

    def engine(problem):
        return us.engines.Virtual(problem, us.latency.Replay(clock), rng=0)

    options = {"latency": us.trace.from_seconds(STRAGGLING), "engine": engine, "batch_size": 32} | options
    return Coded(nn.Linear(3, 1), nn.MSELoss(), DATA, scheme="auto", workers=N, **options)


@pytest.mark.parametrize(("clock", "kept"), [(STRAGGLING, True), (EVEN, False)], ids=["as planned", "otherwise"])
def test_a_plan_is_confirmed_or_given_up(clock, kept):
    with planned(clock) as run:
        advised = run.code.name
        infos = [run.backward() for _ in range(24)]
    codes = [info.code for info in infos]
    assert advised != "uncoded(4)" and codes == [advised] * 10 + ["uncoded(4)"] * 10 + [advised if kept else "uncoded(4)"] * 4
    assert all(info.exact for info in infos)
    told = {info.step: [one["kind"] for one in info.switches] for info in infos if info.switches}
    assert told == {10: ["switch"], 20: ["measured", "switch"] if kept else ["measured"]}
    measured = infos[20].switches[0]
    assert measured["code"] == advised and (measured["measured"] > 0.05) == kept and measured["predicted"] > 0.2
    assert ("confirmed" if kept else "less than 5 %: the run waits for all") in measured["why"]


def test_what_is_worth_having_can_be_said():
    with planned(STRAGGLING, worth=0.99) as run:
        assert run.code.name == "uncoded(4)", "no plan saves as much, so nothing is tried"
    with planned(EVEN, trial=0) as run:
        assert len({run.backward().code for _ in range(24)}) == 1 and run.code.name != "uncoded(4)"
    with pytest.raises(Invalid, match="at least 4 steps"):
        Trial(us.codes.uncoded(2), 0.1, steps=2)


@pytest.mark.parametrize("parts", ["random", "contiguous"])
def test_samples_that_stay_where_they_are_are_not_dealt_to_another_code(parts):
    with planned(EVEN, parts=parts) as run:
        assert len({run.backward().code for _ in range(24)}) == 1 and run.code.name != "uncoded(4)"


def test_work_by_speed():
    speeds = np.tile([1.0, 1.0, 1.0, 3.0], (40, 1))
    options = {"scheme": "balanced", "workers": N, "engine": "virtual", "batch_size": 32}
    with Coded(nn.Linear(3, 1), nn.MSELoss(), DATA, latency=us.trace.from_seconds(speeds), **options) as run:
        info = run.backward()
    assert run.code.name == us.codes.proportional([3, 3, 3, 1], k=run.code.k).name
    assert info.exact and info.wait < 1.5, "waiting for all with equal shares takes 3"
    with pytest.raises(Invalid, match="needs latency=: a trace"):
        Coded(nn.Linear(3, 1), nn.MSELoss(), DATA, **options)
