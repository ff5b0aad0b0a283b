"""Workers that are handed tasks, on a sampled clock: when each is done, and what it then sends."""

from __future__ import annotations

import heapq
import traceback
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..problems.base import Problem
from ..runtime.events import Failed, Finished
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Message, Order
from ..runtime.serve import Job, Share, Times
from ..runtime.shift import Shift
from ..scheme.arrivals import Way, no_way
from ..scheme.code import Code
from ..scheme.program import Outgoing


@dataclass(eq=False)
class Seat:
    """A worker: what it has been told in this round, the task that it is at, and when that ends.

    done: the tasks of this round that it has done. times: begin, end, ... of these, and of the one that it is at.
    """

    shift: Shift
    task: int = -1
    ends: float = 0.0
    done: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class AtLink:
    """A sum that has come through its worker's link, and waits for the master's."""

    message: Message


class VirtualShifts:
    """Does the work of `Virtual` for codes that hand out tasks. carry: who is at a task when the round ends stays in it.

    way: what words, notes and sums cost. A worker has begun with what it has in reserve until the next order is there.
    """

    def __init__(self, code: Code, problem: Problem, slices: tuple[slice, ...], carry: bool, way: Way | None = None) -> None:
        self._code, self._carry, self.clock, self._way = code, carry, 0.0, way or no_way(code)
        dtype = np.dtype(problem.dtype)
        self._shares = [Share(code.program(worker), problem, slices, dtype) for worker in range(code.n)]
        self._seats: list[Seat] = []
        self._events: list[tuple[float, int, int, Any]] = []
        self._tie = count()

    def start(self, order: Order, seconds: NDArray[np.float64]) -> None:
        """A round begins, or is given again to some. seconds: (T,) of all tasks."""
        if order.workers is None:
            self._events = self._left() if self._carry else []
            heapq.heapify(self._events)
            self.clock, self._through, self._seconds = 0.0, 0.0, seconds
            self._seats = [self._seat(order, worker) for worker in range(self._code.n)]
        for worker in order.workers or ():
            self._seats[worker] = self._seat(order, worker)

    def tell(self, word: Tell) -> None:
        if self._way.word:
            self._push(self.clock + self._way.word, word.worker, word)
        else:
            self._hear(word)

    def _hear(self, word: Tell) -> None:
        """A worker that cannot do as it is told fails, as on other engines."""
        seat = self._seats[word.worker]
        try:
            seat.shift.hear(word)
        except Exception:
            failed = Failed(word.worker, self.clock, seat.shift.job.round, traceback.format_exc())
            self._push(self.clock, word.worker, failed)
        self._begin(word.worker, seat)

    def _push(self, time: float, worker: int, event: Any) -> None:
        heapq.heappush(self._events, (time, worker, next(self._tie), event))

    def next(self, until: float | None) -> list[Incoming]:
        """What happens at the next moment."""
        while self._events:
            moment = self._events[0][0]
            if until is not None and moment > until:
                break
            if moment == np.inf:
                raise Invalid(
                    f"{self._code.name}: tasks that never end hold up the round. Use helpers=True, or a finite latency."
                )
            self.clock = moment
            found: list[Incoming] = []
            while self._events and self._events[0][0] == moment:
                _, worker, _, event = heapq.heappop(self._events)
                found += self._happens(worker, event)
            if found:
                return found
        if until is None:
            raise Invalid(f"{self._code.name}: nothing more can happen in this round, and it is not over.")
        self.clock = max(self.clock, until)
        return []

    def _happens(self, worker: int, event: Any) -> list[Incoming]:
        """What the master hears of what happens: a word comes to a worker, a task is done, a sum is at the master's link."""
        if event is None:
            return self._end(worker)
        if isinstance(event, Tell):
            self._hear(event)
            return []
        if isinstance(event, AtLink):
            self._through = max(self._through, self.clock) + float(self._way.master[event.message.index])
            arrives = self._through + self._way.word
            self._push(arrives, worker, replace(event.message, time=arrives))
            return []
        return [event]

    def _left(self) -> list[tuple[float, int, int, Any]]:
        """Tasks of rounds before that workers are still in: they say so when these are done. One without end is dropped."""
        last = {old.worker: (ends, old) for ends, _, _, old in sorted(self._events) if isinstance(old, Finished)}
        for worker, seat in enumerate(self._seats):
            if seat.task >= 0:
                last[worker] = (seat.ends + self._way.word, Finished(worker, seat.task, 0.0, seat.shift.job.round))
        rests = [(ends - self.clock if ends < np.inf else 0.0, old) for ends, old in last.values()]
        return [(rest, old.worker, next(self._tie), replace(old, time=rest)) for rest, old in rests]

    def _seat(self, order: Order, worker: int) -> Seat:
        job = Job(order.round, order.step, order.params, 0.0, context=order.context)
        shift = Shift(self._shares[worker], job, partial(self._say, worker), partial(self._send, worker))
        shift.begin()
        return Seat(shift)

    def _begin(self, worker: int, seat: Seat) -> None:
        """A worker that is free begins with what it was told."""
        if seat.task >= 0 or seat.shift.next < 0:
            return
        seat.task = seat.shift.next
        seat.ends = self.clock + float(self._seconds[seat.task])
        seat.times += (self.clock, seat.ends)
        self._push(seat.ends, worker, None)

    def _end(self, worker: int) -> list[Incoming]:
        """A task is done: its worker says so, and goes on with what it has in reserve."""
        seat, self._said = self._seats[worker], list[Incoming]()
        if seat.task < 0 or seat.ends != self.clock:  # its seat was taken by another process meanwhile
            return []
        seat.done.append(seat.task)
        seat.task = -1
        try:
            seat.shift.do()
        except Exception:
            return [Failed(worker, self.clock, seat.shift.job.round, traceback.format_exc())]
        self._begin(worker, seat)
        return self._said

    def _say(self, worker: int, task: int, epoch: int) -> None:
        heard = self.clock + self._way.word
        note = Finished(worker, task, heard, self._seats[worker].shift.job.round, epoch)
        if self._way.word:
            self._push(heard, worker, note)
        else:
            self._said.append(note)

    def _send(self, worker: int, message: Outgoing, payload: Any, checksum: int, times: Times, ticket: int) -> None:
        seat, data = self._seats[worker], np.array(payload)
        data.flags.writeable = False
        done = tuple(seat.times[: -2 if seat.task >= 0 else None])
        sent = Message(worker, message.index, seat.shift.job.round, self.clock, data, checksum, done, ticket)
        if self._way.master.any() or self._way.word or self._way.link[message.index]:
            self._push(self.clock + float(self._way.link[message.index]), worker, AtLink(sent))
        else:
            self._push(self.clock, worker, sent)
