"""Shifted exponential task times, the model of most of the coded computing literature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import digamma

from ..doors import door
from ..randomness import Seed
from .base import Family, Times, require, require_count, require_shift


@door
@dataclass(frozen=True, repr=False)
class ShiftedExponential(Family):
    """A unit of work takes shift + Exp(rate): one draw per worker and round, or (per="task") a fresh draw for every task.

    With one draw, P(s units done by t) = 1 - exp(-rate (t/s - shift)), as in [A] eq. 5. Real traces rarely look like this:
    use it to compare with the papers, and a trace to plan.

    >>> ShiftedExponential(rate=10, shift=0.01).mean
    0.11
    """

    rate: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, rate=(self.rate, 0))
        require_shift(self, self.shift)

    def quantile(self, lower: Times, upper: Times) -> Times:
        return np.asarray(self.shift + np.where(lower < 0.5, -np.log1p(-lower), -np.log(upper)) / self.rate)

    def survival(self, work: Any, deadline: Any) -> Times:
        return np.asarray(np.exp(-self.rate * np.maximum(np.asarray(deadline) / work - self.shift, 0)))

    @property
    def mean(self) -> float:
        return self.shift + 1 / self.rate

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Times:
        times = rng.standard_exponential(shape)
        times /= self.rate
        times += self.shift
        return times

    def order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        """Closed form: shift + (H_n - H_(n - q)) / rate."""
        q = np.arange(1, require_count(n) + 1)
        return np.asarray(self.shift + (digamma(n + 1) - digamma(n - q + 1)) / self.rate)


@door
def Exponential(rate: float, per: Literal["round", "task"] = "round") -> ShiftedExponential:
    """Exponential task times: the shifted exponential without a shift."""
    return ShiftedExponential(rate, 0.0, per=per)
