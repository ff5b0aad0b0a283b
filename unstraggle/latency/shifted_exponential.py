"""Shifted exponential task times, the model of most of the coded computing literature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..code import Code
from ..errors import Invalid
from .base import arrivals


@dataclass(frozen=True)
class ShiftedExponential:
    """A unit of work takes shift + Exp(rate): one draw a worker a round, or (per="task") a fresh draw for every task.

    With one draw, P(s units done by t) = 1 - exp(-rate (t/s - shift)), as in [A] eq. 5. Real traces rarely look like this:
    use it to compare with the papers, and a trace to plan.

    >>> ShiftedExponential(rate=10, shift=0.01).mean
    0.11
    """

    rate: float
    shift: float = 0.0
    per: Literal["round", "task"] = "round"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0 and math.isfinite(self.shift) and self.shift >= 0):
            raise Invalid(f"ShiftedExponential needs rate > 0 and shift >= 0, but got rate={self.rate}, shift={self.shift}.")
        if self.per not in ("round", "task"):
            raise Invalid(f'ShiftedExponential needs per="round" or per="task", but got per={self.per!r}.')

    @property
    def mean(self) -> float:
        """Mean time of a unit of work."""
        return self.shift + 1 / self.rate

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
        """Independent times of a unit of work."""
        times = rng.standard_exponential(shape)
        times /= self.rate
        times += self.shift
        return times

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        if self.per == "task":
            return arrivals(code, self.draw((rounds, len(code.tasks)), rng) * code.tasks.work)
        return self.draw((rounds, code.n), rng)[:, code.messages.worker] * code.ready()

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> NDArray[np.float64] | None:
        """One speed a worker a round; None where every task has its own."""
        return self.draw((rounds, n), rng) if self.per == "round" else None


def Exponential(rate: float, per: Literal["round", "task"] = "round") -> ShiftedExponential:
    """Exponential task times: the shifted exponential without a shift."""
    return ShiftedExponential(rate, 0.0, per)
