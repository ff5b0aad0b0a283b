"""Busy: who is inside a task, and for how long, from round to round. A task cannot be interrupted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .code import Code

Times = NDArray[np.float64]

TIE = 1e-9
"""A task that ends this fraction after a round ends at the same time: sums of equal times differ in their last digit."""


class Busy:
    """When workers are free, on the clock of the round: the plain form of carry-over, which `study.carry` does for many rounds.

    A worker that is told to stop (`stop`) finishes the task that it is in, and begins no other; at the end of a task it has
    begun the next one, since it cannot know yet. A task that never ends leaves nothing behind: its worker is lost for the
    round, and there again in the next.

    >>> from unstraggle.codes import uncoded_mmc
    >>> busy = Busy(2)
    >>> busy.begin(uncoded_mmc(2, load=2), np.array([1.0, 1.0, 5.0, 5.0])).tolist()
    [1.0, 2.0, 5.0, 10.0]
    >>> busy.end(1.5)
    >>> busy.free.tolist()
    [0.5, 3.5]
    """

    def __init__(self, n: int) -> None:
        self.free = np.zeros(n)
        self._ends: list[list[float]] = [[] for _ in range(n)]

    def begin(self, code: Code, durations: Times, workers: tuple[int, ...] | None = None, now: float = 0.0) -> Times:
        """Give workers their tasks, which take `durations` (T,): (M,) times at which their messages are ready, others never."""
        ready = np.full(len(code.messages), np.inf)
        for worker in range(code.n) if workers is None else workers:
            self.stop((worker,), now)
            tasks = np.flatnonzero(code.tasks.worker == worker)
            ends = np.cumsum([max(self.free[worker], now), *durations[tasks]])[1:]
            self._ends[worker] = ends.tolist()
            mine = code.messages.worker == worker
            ready[mine] = ends[code.messages.after[mine] - 1]
        return ready

    def stop(self, workers: tuple[int, ...], time: float) -> None:
        """Tell workers to begin no task from this time on."""
        for worker in workers:
            for end in self._ends[worker]:
                if self.free[worker] > time * (1 + TIE):
                    break
                self.free[worker] = end
            self._ends[worker] = []

    def end(self, time: float) -> None:
        """The round is over: from now on the clock is that of the next."""
        self.stop(tuple(range(len(self.free))), time)
        self.free = np.maximum(np.where(np.isfinite(self.free), self.free, 0.0) - time, 0.0)
