"""Repeated: the same gradients, at more work, for measuring machines with a problem that is small."""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Problem, Restricts

TRIES = 5
"""Gradients that are timed, by the processor; the fastest counts, for the first ones load and compile."""


@dataclass(frozen=True, eq=False)
class Repeated:
    """A problem whose partial gradients are computed `times` times over; the last one counts.

    >>> from unstraggle.problems import LeastSquares
    >>> Repeated(LeastSquares.split(np.eye(2), np.ones(2), parts=2), times=3).grad(np.zeros(2), 0).tolist()
    [-1.0, -0.0]
    """

    problem: Any
    times: int

    @property
    def k(self) -> int:
        return int(self.problem.k)

    @property
    def dim(self) -> int:
        return int(self.problem.dim)

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(self.problem.dtype)
        return found

    def only(self, parts: Set[int]) -> Repeated:
        return Repeated(self.problem.only(parts), self.times) if isinstance(self.problem, Restricts) else self

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> Any:
        for _ in range(self.times - 1):
            self.problem.grad(params, part, where, step)
        return self.problem.grad(params, part, where, step)


def lasting(problem: Problem, seconds: float) -> Problem:
    """The problem itself where a task takes so long here, else repeated until it does, about."""
    params, taken = np.zeros(problem.dim, problem.dtype), []
    for _ in range(TRIES):
        began = time.process_time()
        problem.grad(params, 0)
        taken.append(time.process_time() - began)
    times = round(seconds / max(min(taken), 1e-9))
    return Repeated(problem, times) if times > 1 else problem
