"""What planners return: a code together with the stop rule that it was designed for, and what it is expected to cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..scheme.code import Code
from ..scheme.stop import Recovered, Stop


@dataclass(frozen=True, eq=False)
class Plan:
    """A design and its expected cost.

    cost: expected time of a round. ci95: its 95 % interval (equal ends where it is computed, not sampled). bound: no design of
    the same kind can cost less; None where nothing is known. params: what was chosen. The code is built when asked for.
    """

    name: str
    build: Callable[[], Code] = field(repr=False)
    cost: float
    ci95: tuple[float, float]
    stop: Stop = field(default_factory=Recovered)
    bound: float | None = None
    messages: float | None = None
    params: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def code(self) -> Code:
        """The code, built on first use."""
        return self.build()

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "name": self.name,
            "cost": self.cost,
            "ci95": list(self.ci95),
            "bound": self.bound,
            "messages": self.messages,
            "stop": str(self.stop),
            "params": self.params,
        }
