"""What a worker of a live engine does with an order. How orders come and messages go is the engine's business."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..worker import Outgoing, Program, work
from .base import Bytes
from .payload import pack

if TYPE_CHECKING:
    from ..problems.base import Problem

Times = list[tuple[float, float]]
Send = Callable[[Outgoing, Bytes, int, Times], None]
"""send(message, payload, checksum, times of the tasks since the last message)"""


class Abandoned(Exception):
    """The round is over or cancelled: the worker need not go on."""


@dataclass(frozen=True, eq=False)
class Job:
    """An order as a worker sees it. origin: when the round began, on this worker's monotonic clock."""

    round: int
    step: int
    params: NDArray[Any]
    origin: float
    delays: NDArray[np.float64] | None = None

    def now(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self.origin


@dataclass(frozen=True, eq=False)
class Share:
    """What a worker gets once: its program, its share of the problem, and where blocks and numbers stand.

    delays of a job are indexed by the number of the message in the program, 0, 1, ... checked: whether payloads get checksums.
    """

    program: Program
    problem: Problem
    slices: tuple[slice, ...]
    dtype: np.dtype[Any]
    checked: bool = True

    @property
    def worker(self) -> int:
        return self.program.worker


def run(share: Share, job: Job, send: Send, stopped: Callable[[], bool], wait: Callable[[float], None]) -> None:
    """Compute an order and send each message when it is due. wait(t): until t seconds after the start, or raise `Abandoned`.

    All tasks of an order get the same array of parameters, and no other order gets it: a problem may tell orders apart by it.
    """
    times: Times = []
    place = {message.index: number for number, message in enumerate(share.program.messages)}
    params, problem, slices, now = job.params.view(), share.problem, share.slices, job.now

    def grad(part: int, block: int) -> Any:
        began = now()
        partial = problem.grad(params, part, slices[block], job.step)
        times.append((began, now()))
        return partial

    def accumulate(part: int, block: int, coef: Any, total: Any) -> Any:
        began = now()
        total = problem.accumulate(params, part, slices[block], job.step, coef, total)  # type: ignore[attr-defined]
        times.append((began, now()))
        return total

    def deliver(message: Outgoing, numbers: Any) -> None:
        if job.delays is not None and now() < (due := float(job.delays[place[message.index]])):
            wait(due)
            times[:] = stretched(times, now(), share.program.work[: message.after])
        payload, checksum = pack(message, numbers, job.round, share.dtype, share.checked)
        send(message, payload, checksum, times)
        times.clear()

    adds = hasattr(problem, "accumulate") and share.dtype.kind != "c"
    try:
        work(share.program, grad, deliver, stopped, accumulate if adds else None)
    except Abandoned:
        return


def stretched(times: Times, end: float, work: tuple[float, ...]) -> Times:
    """Times of the last tasks as if they had lasted until `end`, each for its share of the work: an injected delay slows them
    all. work: of all tasks so far."""
    if not times:
        return []
    begin, last = times[0][0], np.array(work[-len(times) :] if work else [1.0] * len(times))
    ends = begin + (end - begin) * np.cumsum(last) / last.sum()
    return list(zip([begin, *ends[:-1].tolist()], ends.tolist(), strict=True))


def share_of(problem: Any, program: Program) -> Problem:
    """A problem without the partitions that a program does not need, if it can be cut: `problem.only(parts)`, or
    `problem.share(worker, parts)` where it wants to know whose share it is."""
    parts = {part for part, _ in program.tasks}
    if hasattr(problem, "share"):
        return problem.share(program.worker, parts)  # type: ignore[no-any-return]
    if hasattr(problem, "only"):
        return problem.only(parts)  # type: ignore[no-any-return]
    return problem  # type: ignore[no-any-return]
