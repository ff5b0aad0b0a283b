"""What a worker of a live engine does with an order. How orders come and messages go is the engine's business."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import block_slices
from ..doors import door
from ..errors import Invalid
from ..scheme.program import Outgoing, Program
from .payload import number_type, pack
from .worker import work

if TYPE_CHECKING:
    from ..problems.base import Problem
    from ..scheme.code import Code

Times = list[float]
"""Start, end, start, end, ... of tasks, in seconds since the round began."""
Send = Callable[[Outgoing, Any, int, Times], None]
"""send(message, payload as `pack` gives it, checksum, times of the tasks since the last message, which are cleared then)"""


REAL = "fiub"
"""Kinds of numbers that a partial gradient may have."""


class Abandoned(Exception):
    """The round is over or cancelled: the worker need not go on."""


@dataclass(eq=False, slots=True)
class Job:
    """An order as a worker sees it. origin: when the round began, on this worker's monotonic clock.

    params: an array object of its own, by which a problem may tell this order from others. program: for this round only.
    """

    round: int
    step: int
    params: NDArray[Any]
    origin: float
    delays: NDArray[np.float64] | None = None
    program: Program | None = None
    context: bytes = b""

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

    @cached_property
    def adds(self) -> bool:
        """Whether the problem adds partial gradients up by itself."""
        from ..problems.base import Accumulates

        return isinstance(self.problem, Accumulates) and self.dtype.kind != "c"

    @cached_property
    def listens(self) -> bool:
        """Whether the problem wants what comes with an order."""
        from ..problems.base import Listens

        return isinstance(self.problem, Listens)


@door
def run(share: Share, job: Job, send: Send, stopped: Callable[[], bool], wait: Callable[[float], None]) -> None:
    """Compute an order and send each message when it is due. wait(t): until t on the monotonic clock, or raise `Abandoned`.

    A round of small tasks is over before the caches are warm: what can be prepared once is, and little else is touched.
    """
    times: Times = []
    since = 0.0
    params, step, origin, delays = job.params, job.step, job.origin, job.delays
    problem, slices, clock, program = share.problem, share.slices, time.monotonic, job.program or share.program

    if share.listens:
        problem.hear(job.context)  # type: ignore[attr-defined]

    def grad(part: int, block: int) -> Any:
        began, where = clock(), slices[block]
        partial = problem.grad(params, part, where, step)
        times.extend((began - origin, clock() - origin))
        return require_numbers(problem, part, partial, where)

    def accumulate(part: int, block: int, coef: Any, total: Any) -> Any:
        began, where = clock(), slices[block]
        total = problem.accumulate(params, part, where, step, coef, total)  # type: ignore[attr-defined]
        times.extend((began - origin, clock() - origin))
        return require_numbers(problem, part, total, where)

    def deliver(message: Outgoing, numbers: Any) -> None:
        nonlocal since
        if delays is not None and job.now() < (due := float(delays[program.place[message.index]])):
            wait(origin + due)
            times[:] = stretched(times, since, due, program.work[: message.after])
        since = times[-1] if times else since
        payload, checksum = pack(message, numbers, job.step, share.dtype, share.checked)
        send(message, payload, checksum, times)
        times.clear()

    try:
        work(program, grad, deliver, stopped, accumulate if share.adds else None)
    except Abandoned:
        return


def partial_gradient(share: Share, job: Job, part: int, block: int) -> Any:
    """A partial gradient in a vector of its own, which the problem does not use again."""
    problem, where = share.problem, share.slices[block]
    if share.adds:
        found = problem.accumulate(job.params, part, where, job.step, 1.0, None)  # type: ignore[attr-defined]
        return require_numbers(problem, part, found, where)
    return 1.0 * require_numbers(problem, part, problem.grad(job.params, part, where, job.step), where)


def require_numbers(problem: Problem, part: int, partial: Any, where: slice) -> Any:
    """A partial gradient, or a sum of some, as it is: real numbers, one for each coordinate. NumPy would broadcast others."""
    length = where.stop - where.start
    if np.shape(partial) == (length,) and (partial.dtype.kind in REAL if isinstance(partial, np.ndarray) else _real(partial)):
        return partial
    kind = getattr(partial, "dtype", type(partial).__name__)
    raise Invalid(
        f"{type(problem).__name__}.grad must give {length} real numbers, one for each coordinate of {where}, but for partition "
        f"{part} it gave shape {np.shape(partial)} of {kind}. Sum over the samples, and take the coordinates `where`."
    )


def _real(partial: Any) -> bool:
    """Whether numbers that are not NumPy's, such as a tensor, are real."""
    return hasattr(partial, "dtype") and "complex" not in str(partial.dtype)


def stretched(times: Times, begin: float, end: float, work: tuple[float, ...]) -> Times:
    """Times of the last tasks as if they had lasted from the last message until `end`, each for its share of the work.

    An injected delay slows them all, and counts from the start of the round: a worker that got its order first is not the
    slower for it. work: of all tasks so far."""
    if not times:
        return []
    tasks = len(times) // 2
    last = np.array(work[-tasks:] if work else [1.0] * tasks)
    ends = begin + (end - begin) * np.cumsum(last) / last.sum()
    ends[-1] = end
    return [begin, *np.repeat(ends, 2)[:-1].tolist()]


@door
def share_of(problem: Any, code: Code, worker: int, checked: bool = True) -> Share:
    """What a worker of a code gets once; the problem is one that fits the code (see `engines.prepared`)."""
    program, slices = code.program(worker), tuple(block_slices(problem.dim, code.blocks))
    return Share(program, cut(problem, program), slices, number_type(code, np.dtype(problem.dtype)), checked)


def cut(problem: Any, program: Program) -> Problem:
    """A problem without the partitions that a program does not need, if it can be cut: `problem.only(parts)`, or
    `problem.share(worker, parts)` where it wants to know whose share it is."""
    from ..problems.base import Restricts, Shares

    parts = {part for part, _ in program.tasks}
    if isinstance(problem, Shares):
        return problem.share(program.worker, parts)
    if isinstance(problem, Restricts):
        return problem.only(parts)
    return problem  # type: ignore[no-any-return]
