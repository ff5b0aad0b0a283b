"""Roles are protocols with optional parts: exported, told apart by isinstance, and no longer asked for by hasattr."""

import re
from pathlib import Path

import numpy as np
import pytest

import unstraggle as us
from unstraggle import engines, latency, problems

ROOT = Path(us.__file__).parents[1]
OPTIONAL = {
    problems: ("Accumulates", "ComputesAll", "Encodes", "HasLoss", "Listens", "Restricts", "Shares", "Stops"),
    latency: ("Delivers", "Durations", "OrderStatistics", "Resumes", "Speeds", "Survival"),
    engines: ("Keeps", "Processes", "Tells"),
}
LEAST_SQUARES = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=2)


class Bare:
    """A latency model with what is needed and no more."""

    def sample(self, code, rounds, rng):
        return np.ones((rounds, len(code.messages)))


def test_roles_are_public():
    assert {"Decoder", "Linear", "Stop"} <= set(us.__all__)
    for module, names in OPTIONAL.items():
        assert set(names) <= set(module.__all__)
    listed = (ROOT / "docs" / "api.md").read_text().split("## Roles")[1].split("\n## ")[0]
    assert all(f"`{name}`" in listed for names in OPTIONAL.values() for name in names)


def test_what_is_declared_is_what_is_asked_for():
    """No module looks for a member of a problem, a latency model or an engine that its role does not declare."""
    members = "grads|accumulate|encode|only|share|loss|sample|speeds|from_round|survival|order_statistics|pid"
    asked = re.compile(rf"""(?:has|get)attr\([\w.()\[\]]+, "(?:{members})"[,)]""")
    found = {path.name: asked.findall(path.read_text()) for path in (ROOT / "unstraggle").rglob("*.py")}
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    ("role", "has", "lacks"),
    [
        (problems.Encodes, LEAST_SQUARES, object()),
        (problems.Restricts, LEAST_SQUARES, object()),
        (problems.Problem, LEAST_SQUARES, Bare()),
        (latency.Latency, Bare(), LEAST_SQUARES),
        (latency.Resumes, latency.Replay(np.ones((3, 2))), Bare()),
        (latency.Durations, latency.Exponential(1.0), Bare()),
        (latency.Delivers, latency.Network(latency.Exponential(1.0), dim=1), latency.Exponential(1.0)),
        (latency.Survival, latency.ShiftedExponential(rate=1), latency.Network(Bare(), 10, 1e9)),
        (latency.Speeds, latency.ShiftedExponential(rate=1), Bare()),
        (latency.OrderStatistics, latency.Pareto(shape=2), Bare()),
        (engines.Processes, engines.Local(LEAST_SQUARES), engines.Virtual(LEAST_SQUARES, Bare())),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_optional_parts_are_recognised(role, has, lacks):
    assert isinstance(has, role) and not isinstance(lacks, role)


def test_a_model_with_sample_only_simulates_and_is_planned_with():
    assert us.simulate(us.codes.uncoded(3), Bare(), rounds=10).time.mean == 1
    assert us.plan.redundancy(Bare(), n=4, rounds=10).code.n == 4
    with pytest.raises(us.Invalid, match=r"deadline needs a latency model that knows P\(late\)"):
        us.plan.deadline(Bare(), n=4)
