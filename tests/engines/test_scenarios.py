"""One fault suite for all engines with processes: scenarios.py on Local. Ray and MPI have theirs in their files."""

from functools import partial

import pytest

from unstraggle.engines import Local

from .left_behind import nothing_left_behind
from .scenarios import ALL, KILLS, Bench, contract_with_kills

__all__ = ["nothing_left_behind"]


@pytest.mark.usefixtures("nothing_left_behind")
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
def test_on_local(scenario):
    scenario(Bench(Local))


@pytest.mark.usefixtures("nothing_left_behind")
@pytest.mark.parametrize(
    "scenario",
    [pytest.param(scenario, marks=[pytest.mark.slow] * (scenario is contract_with_kills)) for scenario in KILLS],
    ids=lambda scenario: scenario.__name__,
)
def test_on_local_with_new_interpreters(scenario):
    scenario(Bench(partial(Local, start_method="spawn")))
