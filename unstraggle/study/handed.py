"""Rounds of codes that hand out tasks: simulated by compiled kernels, and replayed through a real `Round`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.virtual_shifts import VirtualShifts
from ..runtime.events import Arrived, Elapsed, Event
from ..runtime.instructions import Instruction, Tell, Until
from ..runtime.message import Incoming, Message, Order
from ..runtime.round import Round
from ..runtime.terms import Terms
from ..scheme.arrivals import Speeds, Way, checked, computing, no_way, task_seconds, way_of
from ..scheme.code import Code
from ..scheme.handing import table_of
from ..scheme.stop import Recovered

Times = NDArray[np.float64]
NOTHING = np.empty((0, 0))


def handed(
    code: Code, latency: Any, rounds: int, rng: np.random.Generator, free: Times, carry: bool
) -> tuple[Times, Times, Times]:
    """(R,) ends of rounds, (R,) sums sent, and (n,) when workers are free after the last one. free: before the first one."""
    assert code.handing is not None
    way, model = way_of(latency, code), computing(latency)
    speeds = model.speeds(code.n, rounds, rng) if isinstance(model, Speeds) and not code.handing.in_order else None
    if speeds is not None:
        return _rounds(code, NOTHING, checked(speeds, model), way, free, carry)
    return _rounds(code, task_seconds(model, code, rounds, rng), NOTHING, way, free, carry)


def _rounds(code: Code, seconds: Times, speeds: Times, way: Way, free: Times, carry: bool) -> tuple[Times, Times, Times]:
    """By the seconds of tasks, or by speeds of workers where these are not empty. All lies row by row in memory: the kernel,
    which takes long to compile, would be compiled again for every other order."""
    from . import handed_state
    from .handed_kernel import handed_rounds, in_order_rounds

    assert code.handing is not None
    seconds = np.ascontiguousarray(seconds)
    link = way.link[np.argsort(code.messages.worker)]  # one sum a worker
    lasting = handed_state.Way(float(way.word), link, np.argsort(link, kind="stable"), float(way.master.max()))
    if code.handing.in_order:
        return in_order_rounds(seconds, code.tasks.queues, code.tasks.part, code.k, lasting, free, carry)  # type: ignore[no-any-return]
    rounds, rules, late = max(len(seconds), len(speeds)), _rules(code), free.copy()
    ends, senders = np.empty(rounds), np.empty(rounds, np.int64)  # type: Times, Any
    took = handed_state.Seconds(seconds, speeds, bool(speeds.size))
    handed_rounds(took, rules, lasting, *handed_state.board(rules), late, carry, ends, senders)
    return ends, senders, late


def simulated(code: Code, seconds: Times, carry: bool, way: Way | None = None) -> tuple[Times, Times]:
    """(R,) ends and sums sent of rounds whose tasks take `seconds` (R, T), one after the other from free workers."""
    return _rounds(code, seconds, NOTHING, way or no_way(code), np.zeros(code.n), carry)[:2]


@lru_cache(maxsize=64)
def _rules(code: Code) -> Any:
    """The table of a code as the kernel wants it."""
    from .handed_state import Rules

    table, how = table_of(code), code.handing
    assert how is not None
    own, count = _padded(table.own, how.reserve + 2)
    others, _ = _padded(table.others, 1)
    part, owner = own.ravel(), np.repeat(np.arange(code.n, dtype=own.dtype), own.shape[1])
    first = np.arange(code.n) * own.shape[1]
    uneven = bool((table.work != table.work[0]).any())
    unit = 0.0 if uneven else float(table.work[0])
    task, work, end = np.ascontiguousarray(table.task[:, part]), table.work[part], (first + count).astype(own.dtype)
    return Rules(part, owner, task, work, uneven, unit, first, count, end, others, how.helpers, how.reserve)


def _padded(rows: tuple[tuple[int, ...], ...], more: int) -> tuple[Any, Any]:
    """Rows of unequal length as a table, padded with the number of the row in at least `more` columns; and their lengths."""
    from .handed_state import INDEX

    count = np.array([len(row) for row in rows])
    table = np.tile(np.arange(len(rows), dtype=INDEX)[:, None], count.max() + more)
    for row, found in zip(rows, table, strict=True):
        found[: len(row)] = row
    return table, count


def replayed(code: Code, seconds: Times, carry: bool, way: Way | None = None) -> tuple[Times, Times, Times]:
    """(R,) ends, sums sent and residuals of rounds whose tasks take `seconds` (R, T), event by event through a real `Round`."""
    shifts = VirtualShifts(code, Nothing(code.k), (slice(0, 1),), carry, way)
    ended: list[Round] = []
    busy: tuple[int, ...] = ()
    for number, row in enumerate(seconds):
        round = Round(code, Recovered(), number, Terms(busy=busy))
        shifts.start(Order(number, number, np.zeros(1)), row)
        _play(round, shifts)
        busy = round.busy if carry else ()
        ended.append(round)
    times = np.array([round.time for round in ended])
    return times, np.array([int(round.got.sum()) for round in ended]), np.array([round.decoded.residual for round in ended])


def _play(round: Round, shifts: VirtualShifts) -> None:
    until = _follow(round.begin(), shifts, None)
    while round.open:
        events: list[Event] = [_event(one) for one in shifts.next(until)]
        until = _follow(round.feed(*(events or [Elapsed(shifts.clock)])), shifts, until)


def _follow(instructions: tuple[Instruction, ...], shifts: VirtualShifts, until: float | None) -> float | None:
    for one in instructions:
        if isinstance(one, Tell):
            shifts.tell(one)
        elif isinstance(one, Until):
            until = one.time
    return until


def _event(incoming: Incoming) -> Event:
    if not isinstance(incoming, Message):
        return incoming
    return Arrived(incoming.index, incoming.time, incoming.round, incoming.ticket)


class Nothing:
    """A problem without data, for rounds of which only the times count."""

    dim, dtype = 1, np.dtype(np.float64)

    def __init__(self, k: int) -> None:
        self.k = k

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        return np.ones(1)
