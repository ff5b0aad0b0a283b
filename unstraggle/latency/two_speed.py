"""Workers that are either fast or slow, and workers that either answer or never do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import bdtr

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed
from .base import Family, Times, require, require_count


@door
@dataclass(frozen=True, repr=False)
class TwoSpeed(Family):
    """A unit of work takes `fast` seconds, or with probability p `slow` seconds (which may be infinite).

    >>> TwoSpeed(fast=1, slow=3, p=0.25).mean
    1.5
    """

    fast: float
    slow: float
    p: float

    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, fast=(self.fast, 0))
        if not self.slow >= self.fast:
            raise Invalid(f"{type(self).__name__} needs slow >= fast, but got fast={self.fast!r}, slow={self.slow!r}.")
        if not 0 <= self.p <= 1:
            raise Invalid(f"{type(self).__name__} needs a probability 0 <= p <= 1, but got p={self.p!r}.")

    def quantile(self, lower: Times, upper: Times) -> Times:
        return np.where(upper > self.p, float(self.fast), float(self.slow))  # whole numbers would need kernels of their own

    def survival(self, work: Any, deadline: Any) -> Times:
        time = np.asarray(deadline) / work
        return np.where(time < self.fast, 1.0, np.where(time < self.slow, self.p, 0.0))

    def order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        """Closed form: the q-th is slow if fewer than q workers are fast."""
        late = bdtr(np.arange(require_count(n)), n, 1 - self.p)
        if np.isinf(self.slow):
            return np.where(late > 0, np.inf, self.fast)
        return np.asarray(self.fast + (self.slow - self.fast) * late)

    def harmonic_order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        late = bdtr(np.arange(require_count(n)), n, 1 - self.p)
        with np.errstate(divide="ignore"):  # workers that never answer
            return np.asarray(1 / ((1 - late) / self.fast + late / self.slow))


@door
def Bernoulli(p: float, time: float = 1.0) -> TwoSpeed:
    """Workers that take `time` seconds for a unit of work, or with probability p never answer in a round ([C])."""
    return TwoSpeed(fast=time, slow=np.inf, p=p)
