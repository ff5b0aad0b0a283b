"""Workers that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..doors import door
from ..errors import Invalid
from .base import OneSpeed, Times, require_one_speed


@door
@dataclass(frozen=True, init=False)
class Heterogeneous(OneSpeed):
    """Every worker has a latency model of its own, the same in every round.

    >>> from unstraggle.latency import Exponential
    >>> Heterogeneous([Exponential(10)] * 3 + [Exponential(2)]).n
    4
    """

    workers: tuple[Any, ...]

    def __init__(self, workers: Sequence[Any]) -> None:
        if not isinstance(workers, Sequence) or not workers:
            raise Invalid(f"Heterogeneous needs a list of latency models, one per worker, but got {workers!r}.")
        require_one_speed("Heterogeneous", *workers)
        object.__setattr__(self, "workers", tuple(workers))

    @property
    def n(self) -> int:
        return len(self.workers)

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times:
        if n != self.n:
            raise Invalid(f"Heterogeneous describes {self.n} workers, but the code has {n}. Give one model for each worker.")
        seeds = rng.spawn(n)
        return np.concatenate([model.speeds(1, rounds, r) for model, r in zip(self.workers, seeds, strict=True)], axis=1)

    def survival(self, work: Any, deadline: Any) -> Times:
        """(n,) P(worker i takes longer than `deadline` for `work` units)."""
        return np.array([model.survival(work, deadline) for model in self.workers])
