"""Front: plans of which none is both faster and cheaper than another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..scheme.stop import Recovered
from .base import Plan


@dataclass(frozen=True, eq=False)
class Front:
    """Plans from the fewest messages per round to the fastest. Prints as a small table.

    >>> from unstraggle.codes import uncoded
    >>> plan = Plan("uncoded(4)", lambda: uncoded(4), cost=0.5, ci95=(0.49, 0.51), messages=4.0)
    >>> print(Front((plan,)))
      messages      time    95 % ±  by    code
          4.00    0.5000    0.0100  rule  uncoded(4)
    """

    plans: tuple[Plan, ...]

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __getitem__(self, number: int) -> Plan:
        return self.plans[number]

    def best(self, max_messages: float | None = None) -> Plan:
        """The fastest plan that sends at most `max_messages` a round on average."""
        allowed = [plan for plan in self.plans if max_messages is None or (plan.messages or 0.0) <= max_messages]
        if not allowed:
            least = min((plan.messages or 0.0 for plan in self.plans), default=float("nan"))
            raise Invalid(
                f"No plan of the front sends at most {max_messages:g} messages per round: the cheapest sends {least:.2f}."
            )
        return min(allowed, key=lambda plan: plan.cost)

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {"plans": [plan.to_dict() for plan in self.plans]}

    def __str__(self) -> str:
        return "\n".join([f"{'messages':>10}{'time':>10}{'95 % ±':>10}  {'by':6}code", *map(_line, self.plans)])


def _line(plan: Plan) -> str:
    by = plan.stop.by if isinstance(plan.stop, Recovered) else "-"
    half = (plan.ci95[1] - plan.ci95[0]) / 2
    return f"{plan.messages or float('nan'):>10.2f}{plan.cost:>10.4f}{half:>10.4f}  {by:6}{plan.name}"


def pareto(times: Sequence[float], messages: Sequence[float]) -> list[int]:
    """Places of the points that no other one beats, fewest messages first; of equal points the first.

    >>> pareto([3.0, 1.0, 2.0, 1.0], [1.0, 9.0, 4.0, 9.5])
    [0, 2, 1]
    """
    chosen: list[int] = []
    for place in sorted(range(len(times)), key=lambda i: (messages[i], times[i], i)):
        if np.isfinite(times[place]) and (not chosen or times[place] < times[chosen[-1]]):
            chosen.append(place)
    return chosen


def thinned(times: Sequence[float], resolution: float) -> list[int]:
    """Places of a front's points without those that gain less than `resolution` over the one before; both ends stay.

    >>> thinned([1.0, 0.999, 0.9, 0.899], resolution=0.01)
    [0, 2, 3]
    """
    chosen: list[int] = []
    for place, time in enumerate(times):
        if not chosen or place == len(times) - 1 or time < (1 - resolution) * times[chosen[-1]]:
            chosen.append(place)
    return chosen


def distance(times: NDArray[np.float64], messages: NDArray[np.float64], front: Sequence[int]) -> NDArray[np.float64]:
    """How much must be taken off both time and messages of a point (as a logarithm) until no other on the front beats it.

    Negative on the front, the more so the further its neighbours are; infinite for points that never end.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        point = np.log(np.stack([times, messages]))
        gaps = (point[:, :, None] - point[:, None, list(front)]).min(axis=0)
    gaps[list(front), np.arange(len(front))] = -np.inf
    return np.where(np.isfinite(times), np.nan_to_num(gaps.max(axis=1, initial=-np.inf), nan=0.0), np.inf)
