"""Lasting: a problem whose tasks take as long as drawn and cannot be left. Apart, because every worker process imports it."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstraggle.engines import Abandoned


@dataclass(frozen=True, eq=False)
class Lasting:
    """A task sleeps for all of its time, whoever waits or has stopped waiting: a worker looks up between two tasks only.

    It sleeps and does not compute, so that many workers fit on few cores and none slows down another. speeds: (steps, workers)
    seconds of a unit of work; steps behind the last take no time. work: units of (partition, first coordinate). The gradient of
    partition p is (p + 1) times 1, 2, ..., so that the sum over all can be checked.
    """

    k: int
    dim: int
    speeds: NDArray[np.float64] = field(repr=False)
    work: Mapping[tuple[int, int], float] = field(repr=False)
    worker: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def share(self, worker: int, parts: Set[int]) -> Lasting:
        return replace(self, worker=worker)

    def encode(self, matrix: Any) -> Lasting:
        """For codes that compute on encoded data: as many partitions as it has; only their times are looked at."""
        return replace(self, k=matrix.shape[0])

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        until = time.monotonic() + self.seconds(part, where, step)
        wake_in_time()
        while (rest := until - time.monotonic()) > 0:
            time.sleep(rest)
        return (part + 1) * np.arange(1.0, self.dim + 1)[where]

    def seconds(self, part: int, where: slice, step: int) -> float:
        """How long the task takes on this worker."""
        if step >= len(self.speeds):
            return 0.0
        return float(self.speeds[step, self.worker]) * self.work[part, where.start or 0]

    @property
    def total(self) -> NDArray[np.float64]:
        """The gradient, summed over all partitions."""
        return np.asarray(self.k * (self.k + 1) / 2 * np.arange(1.0, self.dim + 1))


@dataclass(frozen=True, eq=False)
class Looking(Lasting):
    """Tasks that look every millisecond whether the round is over, and are left then."""

    asked: list[Callable[[], bool]] = field(default_factory=list, repr=False)

    def heed(self, stopped: Callable[[], bool]) -> None:
        self.asked[:] = [stopped]

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        until = time.monotonic() + self.seconds(part, where, step)
        wake_in_time()
        while (rest := until - time.monotonic()) > 0:
            if self.asked[0]():
                raise Abandoned
            time.sleep(min(rest, 1e-3))
        return (part + 1) * np.arange(1.0, self.dim + 1)[where]


@dataclass(frozen=True, eq=False)
class Costly(Lasting):
    """Tasks take fixed + speed * work * what their data cost. Numbers are of four bytes, as those of a network.

    costs: (steps, cells) of equal stretches of the data, 1 on average: they go with the data, whoever computes them, and a
    partition costs the mean of what it covers. Partitions must be of equal size where costs differ.
    """

    fixed: float = 0.0
    costs: NDArray[np.float64] = field(default_factory=lambda: np.ones((1, 1)), repr=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        return super().grad(params, part, where, step).astype(np.float32)

    def seconds(self, part: int, where: slice, step: int) -> float:
        if step >= len(self.speeds):
            return 0.0
        return self.fixed + super().seconds(part, where, step) * self.cost(part, step)

    def cost(self, part: int, step: int) -> float:
        """Of a unit of work of this partition."""
        until = np.concatenate([[0.0], self.costs[step % len(self.costs)].cumsum()])
        first, last = np.interp(np.array([part, part + 1]) / self.k * (len(until) - 1), np.arange(len(until)), until)
        return float((last - first) * self.k / (len(until) - 1))


LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def wake_in_time() -> None:
    """Sleeps of this thread may not be prolonged by up to 50 microseconds to save energy (Linux); elsewhere nothing happens."""
    if LIBRARY is not None:
        LIBRARY.prctl(29, 1)  # PR_SET_TIMERSLACK, a nanosecond
