"""Workers that stay slow for many rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..doors import door
from ..errors import Invalid
from .base import OneSpeed, Times, require_one_speed


@door
@dataclass(frozen=True)
class Persistent(OneSpeed):
    """Every worker switches between two latency models and stays with each for a while: stragglers that persist.

    p: share of rounds in which a worker is slow. stay: rounds that it stays slow on average; stay = 1 / (1 - p) is no
    memory at all. Workers are independent of one another.
    """

    fast: Any
    slow: Any
    p: float
    stay: float

    def __post_init__(self) -> None:
        require_one_speed("Persistent", self.fast, self.slow)
        if not 0 < self.p < 1 or not np.isfinite(self.stay) or self.stay < 1 or self.p / self.stay > 1 - self.p:
            raise Invalid(
                f"Persistent needs 0 < p < 1 and stay >= max(1, p / (1 - p)) rounds, but got p={self.p}, stay={self.stay}."
            )

    def states(self, n: int, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, n) 1 where a worker is slow; the first round is drawn from the long-run shares."""
        leave, enter = 1 / self.stay, self.p / (1 - self.p) / self.stay
        draws = rng.random((rounds, n))
        slow = np.empty((rounds, n), dtype=bool)
        slow[:1] = draws[:1] < self.p
        for r in range(1, rounds):
            slow[r] = np.where(slow[r - 1], draws[r] >= leave, draws[r] < enter)
        return slow.astype(float)

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times:
        chain, fast, slow = rng.spawn(3)
        states = self.states(n, rounds, chain)
        return np.asarray(np.where(states > 0, self.slow.speeds(n, rounds, slow), self.fast.speeds(n, rounds, fast)))

    def survival(self, work: Any, deadline: Any) -> Times:
        return np.asarray(self.p * self.slow.survival(work, deadline) + (1 - self.p) * self.fast.survival(work, deadline))
