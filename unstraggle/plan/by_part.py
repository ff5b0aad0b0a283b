"""Rounds in which the data, not the workers, decide how long a task takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..latency import arrivals
from ..scheme.code import Code
from ..trace import Trace

Times = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ByPart:
    """values: (rounds, cells) seconds of a unit of work in equal stretches of the data; a partition takes the mean of its own.

    >>> from unstraggle.codes import uncoded
    >>> data = ByPart(np.array([[1.0, 2.0, 3.0, 5.0]]))
    >>> data.durations(uncoded(2), 1, np.random.default_rng(0)).tolist()
    [[1.5, 4.0]]
    """

    values: Times

    def from_round(self, first: int) -> ByPart:
        """The same rounds, beginning with a later one."""
        return ByPart(np.roll(self.values, -first, axis=0))

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        return np.asarray(self._parts(code.k, rounds)[:, code.tasks.part] * code.tasks.work)

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        return arrivals(code, self.durations(code, rounds, rng))

    def _parts(self, k: int, rounds: int) -> Times:
        """(rounds, k) seconds of a unit of work in each of k equal partitions."""
        times = self.values[np.arange(rounds) % len(self.values)]
        cells = times.shape[1]
        until = np.concatenate([np.zeros((rounds, 1)), times.cumsum(axis=1)], axis=1)
        edge = np.arange(k + 1) * cells / k
        cell = np.minimum(edge.astype(np.int64), cells - 1)
        there = until[:, cell] + (edge - cell) * times[:, cell]
        return np.asarray(np.diff(there, axis=1) * k / cells)


def cells(trace: Trace, seconds: Times) -> Times:
    """(rounds, cells) seconds of a unit of work, by task where all tasks have the same work, else by worker.

    seconds: (rounds, workers), for rounds in which a task did not end, and where tasks differ.
    """
    if trace.tasks == 1 or np.ptp(trace.work) > 0:
        return seconds
    times = trace.durations / trace.work
    times = np.where(np.isfinite(times), times, seconds[:, :, None])
    return np.asarray(times.reshape(len(times), -1))
