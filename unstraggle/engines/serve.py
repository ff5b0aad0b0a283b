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

    delays of a job are indexed by the number of the message in the program, 0, 1, ...
    """

    program: Program
    problem: Problem
    slices: tuple[slice, ...]
    dtype: np.dtype[Any]

    @property
    def worker(self) -> int:
        return self.program.worker


def run(share: Share, job: Job, send: Send, stopped: Callable[[], bool], wait: Callable[[float], None]) -> None:
    """Compute an order and send each message when it is due. wait(t): until t seconds after the start, or raise `Abandoned`."""
    times: Times = []
    place = {message.index: number for number, message in enumerate(share.program.messages)}

    def grad(part: int, block: int) -> Any:
        began = job.now()
        partial = share.problem.grad(job.params, part, share.slices[block], job.step)
        times.append((began, job.now()))
        return partial

    def deliver(message: Outgoing, numbers: Any) -> None:
        if job.delays is not None:
            wait(float(job.delays[place[message.index]]))
            times[-1:] = [(began, job.now()) for began, _ in times[-1:]]
        send(message, *pack(message, numbers, job.round, share.dtype), times)
        times.clear()

    try:
        work(share.program, grad, deliver, stopped)
    except Abandoned:
        return


def share_of(problem: Any, program: Program) -> Problem:
    """A problem without the partitions that a program does not need, if it can be cut (`problem.only(parts)`)."""
    if hasattr(problem, "only"):
        return problem.only({part for part, _ in program.tasks})  # type: ignore[no-any-return]
    return problem  # type: ignore[no-any-return]
