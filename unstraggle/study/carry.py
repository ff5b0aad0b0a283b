"""Rounds that follow one another: who is inside a task when a round ends stays in it, and begins the next round late.

A task cannot be interrupted. What is left of it is its worker's offset in the next round; between tasks a worker drops a round
that is over. Who ends a task at the very moment when the round does has begun the next one: it cannot know yet. A task that
never ends is a worker that is lost for a round, not work: it leaves nothing behind.
`scheme.busy.Busy` is the plain form of one round, which these kernels must equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..scheme.busy import TIE

Times = NDArray[np.float64]
Rows = NDArray[np.int64]
"""Numbers of rounds (c,)."""

Columns = tuple[NDArray[Any], ...]
"""What is kept of rounds, an array for each kind of number. The first are their ends."""

Play = Callable[[Times], tuple[Columns, Times]]
"""Ends of tasks (c, n, some) to what is kept of the rounds, and when workers are told to stop: (c, 1) or (c, n)."""

SEGMENT, WARM = 128, 32
"""Rounds are gone through in segments side by side, each warmed up on the rounds before it. The first starts with all free, so
that up to so many rounds are just what a live run would do."""


class Work(Protocol):
    """What workers do in rounds: when tasks end if workers are free at `late` (c, n), and what is left of them."""

    def ends(self, rows: Rows, late: Times) -> Times:
        """(c, n, some)"""
        ...

    def left(self, rows: Rows, ends: Times, late: Times, over: Times, told: Times) -> Times:
        """(c, n) at the ends of the rounds `over` (c,), of the tasks that were begun before workers were `told` to stop."""
        ...


def chained(
    rounds: int, work: Work, play: Play, free: Times, segment: int = SEGMENT, warm: int = WARM
) -> tuple[Columns, Times]:
    """Play rounds one after the other, with what workers have left of their tasks; and what they have left in the end.

    free: (n,) when they are, in the first round.
    """
    starts = np.arange(0, rounds, segment)
    offsets = np.zeros((len(starts), len(free)))
    offsets[0] = free
    kept: Columns = ()
    for t in range(-warm if rounds > segment else 0, min(segment, rounds)):
        lanes = np.flatnonzero((starts + t >= 0) & (starts + t < rounds))
        if not len(lanes):
            continue
        rows, late = starts[lanes] + t, offsets[lanes]
        ends = work.ends(rows, late)
        columns, told = play(ends)
        offsets[lanes] = work.left(rows, ends, late, columns[0], told)
        if t >= 0:
            kept = kept or tuple(np.empty(rounds, dtype=column.dtype) for column in columns)
            for whole, column in zip(kept, columns, strict=True):
                whole[rows] = column
    return kept, offsets[-1]


@dataclass(frozen=True, eq=False)
class OwnTimes:
    """Every task takes its own `durations` (R, T). queues: (n, longest) task numbers of each worker, padded with -1."""

    durations: Times
    queues: NDArray[np.int64]

    def ends(self, rows: Rows, late: Times) -> Times:
        return np.asarray(finished(self.durations[rows], self.queues, late))

    def left(self, rows: Rows, ends: Times, late: Times, over: Times, told: Times) -> Times:
        return np.asarray(left(ends, late, over, told))


@dataclass(frozen=True, eq=False)
class OneSpeed:
    """A worker takes `speeds` (R, n) for a unit of work, and has done `work` (n, longest) units with each of its tasks."""

    speeds: Times
    work: Times

    def ends(self, rows: Rows, late: Times) -> Times:
        return np.asarray(finished_at_speed(self.speeds[rows], self.work, late))

    def left(self, rows: Rows, ends: Times, late: Times, over: Times, told: Times) -> Times:
        return np.asarray(left(ends, late, over, told))


@dataclass(frozen=True, eq=False)
class EqualTasks:
    """A worker takes `speeds` (R, n) for each of steps[-1] equal tasks; only the ends of those in `steps` are of interest."""

    speeds: Times
    steps: tuple[int, ...]

    def ends(self, rows: Rows, late: Times) -> Times:
        return np.asarray(late[:, :, None] + self.speeds[rows][:, :, None] * np.array(self.steps, dtype=float))

    def left(self, rows: Rows, ends: Times, late: Times, over: Times, told: Times) -> Times:
        return np.asarray(left_of_equal(self.speeds[rows], self.steps[-1], late, over, told))


@njit(nogil=True, cache=True)
def finished(durations, queues, offsets):  # type: ignore[no-untyped-def]
    """(c, n, longest) when the tasks end whose workers are free at `offsets` (c, n); padded with the last one."""
    rounds, (workers, longest) = len(durations), queues.shape
    ends = np.empty((rounds, workers, longest))
    for r in range(rounds):
        for worker in range(workers):
            time = offsets[r, worker]
            for place in range(longest):
                if queues[worker, place] >= 0:
                    time += durations[r, queues[worker, place]]
                ends[r, worker, place] = time
    return ends


@njit(nogil=True, cache=True)
def finished_at_speed(speeds, work, offsets):  # type: ignore[no-untyped-def]
    """The same where a worker has one speed in a round: work (n, longest) is what is done with each task."""
    rounds, (workers, longest) = len(speeds), work.shape
    ends = np.empty((rounds, workers, longest))
    for r in range(rounds):
        for worker in range(workers):
            for place in range(longest):
                ends[r, worker, place] = offsets[r, worker] + speeds[r, worker] * work[worker, place]
    return ends


@njit(nogil=True, cache=True)
def left(finish, offsets, over, told):  # type: ignore[no-untyped-def]
    """(c, n) what is left, when the rounds are over (c,), of the tasks that were begun before workers were told to stop."""
    rounds, workers, longest = finish.shape
    rest = np.zeros((rounds, workers))
    for r in range(rounds):
        for worker in range(workers):
            stop = told[r, worker if told.shape[1] > 1 else 0] * (1 + TIE)
            end = offsets[r, worker]
            for place in range(longest):
                if end > stop:
                    break
                end = finish[r, worker, place]
            if over[r] < end < np.inf:
                rest[r, worker] = end - over[r]
    return rest


@njit(nogil=True, cache=True)
def left_of_equal(speeds, tasks, offsets, over, told):  # type: ignore[no-untyped-def]
    """The same for workers with so many equal tasks, whose ends need not be written out."""
    rounds, workers = speeds.shape
    rest = np.zeros((rounds, workers))
    for r in range(rounds):
        if over[r] == np.inf:
            continue
        for worker in range(workers):
            stop, end = told[r, worker if told.shape[1] > 1 else 0] * (1 + TIE), offsets[r, worker]
            if end <= stop:
                end += min(float(tasks), np.floor((stop - end) / speeds[r, worker]) + 1) * speeds[r, worker]
            if over[r] < end < np.inf:
                rest[r, worker] = end - over[r]
    return rest
