"""How messages get to the master of a training run that plans for itself: as the planner says, where its engine can."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle.latency import TwoSpeed
from unstraggle.plan import advice, auto

LATENCY = TwoSpeed(fast=0.1, slow=3.0, p=0.15)


@pytest.fixture
def planned(monkeypatch):
    """A planner that advises copies which are fetched."""
    found = auto(LATENCY, 2, rounds=50)
    copies = next(one for one in found.candidates if one.plan.code.name == "fractional_repetition(2, s=1)")
    fetched = replace(copies, transfer="pull")
    said = advice.Advice("Fetch them.", (), fetched, (fetched,), None, False)
    monkeypatch.setattr("unstraggle.plan.auto", lambda *_, **__: said)


def transfer(make, **options):
    data = torch.ones(8, 3), torch.ones(8, 1)
    settings = {"scheme": "auto", "workers": 2, "latency": LATENCY, "check": False}
    with us.torch.Coded(nn.Linear(3, 1), nn.MSELoss(), data, engine=make, **settings, **options) as run:
        assert run.backward().exact and run.code.name == "fractional_repetition(2, s=1)"
        return run.master.transfer


def virtual(problem):
    return us.engines.Virtual(problem, LATENCY, rng=0)


def test_messages_are_fetched_where_that_is_planned_and_can_be_done(planned):
    assert transfer(virtual) == "pull"
    assert transfer(virtual, transfer="push") == "push", "who says so has it"
    assert transfer(lambda problem: us.engines.Voting(virtual(problem))) == "push", "its copies have to be sent"
