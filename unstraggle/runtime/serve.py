"""What a worker of a live engine does with an order. How orders come and messages go is the engine's business."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray
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


Land = Callable[[int, int, Any], Any]
"""land(round, message, numbers): numbers of a message that lie on a device, as an array of the host; others as they are."""

REAL = "fiub"
"""Kinds of numbers that a partial gradient may have."""


class Abandoned(BaseException):
    """The round is over or cancelled: the worker need not go on.

    No error: a problem that stops inside a task (`problems.Stops`) raises it through code which may catch every `Exception`.
    """


@dataclass(eq=False, slots=True)
class Job:
    """An order as a worker sees it. origin: when the round began, on this worker's monotonic clock.

    params: an array object of its own, by which a problem may tell this order from others. program: for this round only.
    hold: (seconds, messages): after so many of its messages the worker waits before it goes on, or until the round is over.
    pull: its messages are announced, and kept until they are asked for.
    """

    round: int
    step: int
    params: NDArray[Any]
    origin: float
    delays: NDArray[np.float64] | None = None
    program: Program | None = None
    context: bytes = b""
    hold: tuple[float, int] = (0.0, 0)
    pull: bool = False

    def now(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self.origin


@dataclass(frozen=True, eq=False)
class Share:
    """What a worker gets once: its program, its share of the problem, and where blocks and numbers stand.

    delays of a job are indexed by the number of the message in the program, 0, 1, ... checked: whether payloads get checksums.
    left: whether numbers of messages are left as they are, for an engine that takes them where they lie. moored: whether they
    come from a device through pinned memory. land: how, once a worker has made ready for that.
    """

    program: Program
    problem: Problem
    slices: tuple[slice, ...]
    dtype: np.dtype[Any]
    checked: bool = True
    left: bool = False
    moored: bool = False
    land: Land | None = None

    @property
    def worker(self) -> int:
        return self.program.worker

    @cached_property
    def shapes(self) -> tuple[tuple[int], ...]:
        """Of partial gradients, for each block."""
        return tuple((block.stop - block.start,) for block in self.slices)

    @cached_property
    def adds(self) -> bool:
        """Whether the problem adds partial gradients up by itself."""
        from ..problems.base import Accumulates

        return isinstance(self.problem, Accumulates) and self.dtype.kind != "c"

    @cached_property
    def joins(self) -> bool:
        """Whether the problem computes several partitions in one pass."""
        from ..problems.base import Joins

        return self.adds and isinstance(self.problem, Joins) and self.problem.joins

    @cached_property
    def overwrites(self) -> bool:
        """Whether the problem may write the first partial gradient of a message over what stands in its place."""
        from ..problems.base import Overwrites

        return self.adds and isinstance(self.problem, Overwrites)

    @cached_property
    def stays(self) -> bool:
        """Whether the problem can compute on parameters where they stand."""
        from ..problems.base import Stays

        return isinstance(self.problem, Stays)

    @cached_property
    def prepares(self) -> bool:
        """Whether the problem can do something for its next order."""
        from ..problems.base import Prepares

        return isinstance(self.problem, Prepares)

    @cached_property
    def listens(self) -> bool:
        """Whether the problem wants what comes with an order."""
        from ..problems.base import Listens

        return isinstance(self.problem, Listens)

    @cached_property
    def heeds(self) -> bool:
        """Whether the problem looks inside a task whether to stop."""
        from ..problems.base import Stops

        return isinstance(self.problem, Stops)


@door
def run(
    share: Share,
    job: Job,
    send: Send,
    stopped: Callable[[], bool],
    wait: Callable[[float], None],
    begin: Callable[[int], Any] | None = None,
) -> None:
    """Compute an order and send each message when it is due. wait(t): until t on the monotonic clock, or raise `Abandoned`.

    begin(message): zeros of the engine's own to which the tasks of a message are added, such as the place from which the master
    reads it, or what stands there where the problem writes over it; or None.

    A round of small tasks is over before the caches are warm: what can be prepared once is, and little else is touched.
    """
    times: Times = []
    since, sent = 0.0, 0
    held_for, held_after = job.hold
    params, step, origin, delays = job.params, job.step, job.origin, job.delays
    problem, slices, clock, program = share.problem, share.slices, time.monotonic, job.program or share.program
    dtype, checked, left, land, shapes = share.dtype, share.checked, share.left, share.land, share.shapes

    if share.listens:
        problem.hear(job.context)  # type: ignore[attr-defined]
    if share.heeds:
        problem.heed(stopped)  # type: ignore[attr-defined]

    def grad(part: int, block: int) -> Any:
        began, where = clock(), slices[block]
        partial = problem.grad(params, part, where, step)
        times.extend((began - origin, clock() - origin))
        usual = type(partial) is ndarray and partial.shape == shapes[block] and partial.dtype.kind in REAL
        return partial if usual else require_numbers(problem, part, partial, where)

    def accumulate(part: int, block: int, coef: Any, total: Any) -> Any:
        began, where = clock(), slices[block]
        total = problem.accumulate(params, part, where, step, coef, total)  # type: ignore[attr-defined]
        times.extend((began - origin, clock() - origin))
        usual = type(total) is ndarray and total.shape == shapes[block] and total.dtype.kind in REAL
        return total if usual else require_numbers(problem, part, total, where)

    def accumulate_all(parts: tuple[int, ...], block: int, coef: Any, total: Any) -> Any:
        began, where = clock(), slices[block]
        total = problem.accumulate_all(params, parts, where, step, coef, total)  # type: ignore[attr-defined]
        ends = np.linspace(began - origin, clock() - origin, len(parts) + 1)
        times.extend(np.repeat(ends, 2)[1:-1].tolist())  # of one pass, each has its share
        return require_numbers(problem, parts[0], total, where)

    def held() -> bool:
        """Between tasks. Who has sent what may be enough waits for the end of the round before it does more."""
        nonlocal held_after
        if sent == held_after:
            held_after = 0
            wait(clock() + held_for)
        return stopped()

    def delay(message: Outgoing) -> None:
        """Injected slowness."""
        nonlocal since
        if job.now() < (due := float(delays[program.place[message.index]])):  # type: ignore[index]
            wait(origin + due)
            times[:] = stretched(times, since, due, program.work[: message.after])
        since = times[-1] if times else since

    def deliver(message: Outgoing, numbers: Any) -> None:
        nonlocal sent
        if delays is not None:
            delay(message)
        if land is not None:
            numbers = land(job.round, message.index, numbers)
        payload, checksum = (numbers, 0) if left else pack(message, numbers, step, dtype, checked)
        send(message, payload, checksum, times)
        times.clear()
        sent += 1

    try:
        adds, joins = accumulate if share.adds else None, accumulate_all if share.joins else None
        work(program, grad, deliver, held if held_after else stopped, adds, begin, joins)
    except Abandoned:
        return


def payload_of(share: Share, job: Job, message: Outgoing, numbers: Any) -> tuple[Any, int]:
    """What goes to the master, and its checksum."""
    if share.land is not None:
        numbers = share.land(job.round, message.index, numbers)
    return (numbers, 0) if share.left else pack(message, numbers, job.step, share.dtype, share.checked)


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
    if np.shape(partial) == (length,) and (partial.dtype.kind in REAL if isinstance(partial, ndarray) else _real(partial)):
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
