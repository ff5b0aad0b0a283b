"""Virtual: real gradients on a sampled clock. One process, and as many workers as one likes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import block_slices
from ..doors import door
from ..errors import Invalid
from ..problems.base import ComputesAll, Listens, Problem
from ..randomness import Seed, generator
from ..runtime.events import Announced, Dropped, Failed
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Message, Order
from ..runtime.payload import number_type, pack
from ..runtime.serve import require_numbers
from ..runtime.worker import encode
from ..scheme.arrivals import Latency, Resumes, checked, delivered, noted, notes, task_seconds, way_of
from ..scheme.busy import Busy
from ..scheme.code import Code
from ..scheme.program import Outgoing
from .base import prepared
from .virtual_fetches import VirtualFetches
from .virtual_shifts import VirtualShifts


@door
class Virtual:
    """Arrival times come from a latency model, payloads from the problem: exactly what a live master would decode, in no time.

    Only messages that are delivered are computed. A problem may have `grads(params, step)`, all partial gradients (k, dim) at
    once, which is used where messages are not of blocks. carry: a worker that is inside a task when a round ends stays in it
    and begins the next round late, as real work does; injected delays of an order take no part in that.
    """

    sampled = keeps = True

    def __init__(self, problem: Problem, latency: Latency, rng: Seed = None, carry: bool = False) -> None:
        self.problem, self._latency, self._rng, self._carry = problem, latency, generator(rng), carry
        self._shifts: VirtualShifts | None = None
        self._clock = 0.0
        self._round = -1
        self._opened = False

    def open(self, code: Code) -> None:
        if self._opened:
            raise Invalid("An engine serves one code. Make another for the next code.")
        self.problem = prepared(self.problem, code)
        self._placement, self._opened = code, True
        self._slices = block_slices(self.problem.dim, code.blocks)
        if code.handing is not None:
            self._shifts = VirtualShifts(code, self.problem, tuple(self._slices), self._carry, way_of(self._latency, code))
        self._busy = Busy(code.n)
        self._take_up(code)

    def _take_up(self, code: Code) -> None:
        """The code of a round, which may be another one each time."""
        self._code, self._numbers = code, number_type(code, np.dtype(self.problem.dtype))
        self._outgoing = [message for worker in range(code.n) for message in code.program(worker).messages]
        self._outgoing.sort(key=lambda message: message.index)

    def start(self, order: Order) -> None:
        if self._shifts is not None:
            self._shifts.start(replace(order, params=order.params.copy()), self._seconds(order))
            return
        code = order.code or self._placement
        if code is not self._code:
            self._take_up(code)
        if order.round != self._round:
            self._busy.end(self._clock)
            self._clock, self._round = 0.0, order.round
            self._silent: set[int] = set()
            self._partials: dict[tuple[int, int], Any] = {}
            self._fetches = VirtualFetches(code, way_of(self._latency, code))
            self._made, self._news = set[int](), list[Incoming]()
            self._times, self._heard = np.full(len(code.messages), np.nan), False
        times = self._clock + order.delays if order.delays is not None else self._draw(order)
        self._order = replace(order, params=order.params.copy())  # its own: the caller may change it, a problem may know it
        fresh = slice(None) if order.workers is None else np.isin(self._code.messages.worker, order.workers)
        self._silent -= set(order.workers or ())
        self._times[fresh] = times[fresh]
        self._queue = np.argsort(self._times, kind="stable")[: int(np.count_nonzero(~np.isnan(self._times)))]
        self._at = 0

    def next(self, until: float | None) -> list[Incoming]:
        """The messages, or notes, of the next moment at which any arrives; when none will any more, those that are lost."""
        if self._shifts is not None:
            return self._shifts.next(until)
        if self._news:
            news, self._news = self._news, []
            return news
        while (time := self._moment) is not None and (until is None or time <= until):
            heard = [m for m in self._take(time) if self._code.messages.worker[m] not in self._silent]
            if time == np.inf:
                return [Dropped(m, self._clock) for m in heard]
            self._clock = time
            send = self._noted if self._order.pull else self._sent
            events = [event for m in heard for event in send(m)]
            events += [event for m, ticket in self._fetches.take(time) for event in self._sent(m, ticket)]
            if events:
                return events
        if until is None:
            raise Invalid(f"{self._code.name}: all messages have arrived, and the stop rule still waits. Give it a deadline.")
        self._clock = max(self._clock, until)
        return []

    @property
    def _moment(self) -> float | None:
        """When something happens next; None for never."""
        if self._at < len(self._queue):
            return min(float(self._times[self._queue[self._at]]), self._fetches.soonest)
        return self._fetches.soonest if self._fetches.soonest < np.inf else None

    def _take(self, time: float) -> list[int]:
        """Messages that come at the same time, off the queue."""
        same = []
        while self._at < len(self._queue) and self._times[self._queue[self._at]] == time:
            same.append(int(self._queue[self._at]))
            self._at += 1
        self._times[same] = np.nan
        return same

    def clock(self) -> float:
        return self._clock if self._shifts is None else self._shifts.clock

    def tell(self, word: Tell) -> None:
        if self._shifts is not None:
            self._shifts.tell(word)
        elif word.round == self._round and word.message in self._made:
            self._fetches.ask(word, self._clock)
        elif word.round == self._round:
            self._news.append(Failed(word.worker, self._clock, self._round, f"Message {word.message} is not there."))

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        if self._shifts is not None:
            return  # who is inside a task stays in it, and the others have nothing to do
        self._silent |= set(workers)
        self._busy.stop(workers, self._clock)

    def close(self) -> None:
        pass

    def _draw(self, order: Order) -> NDArray[np.float64]:
        """(M,) when the messages arrive, on the clock of the round."""
        model: Any = self._latency
        if order.round and isinstance(model, Resumes):
            model = model.from_round(order.round)
        if not self._carry:
            drawn = (
                notes(model, self._code, 1, self._rng) if order.pull else checked(model.sample(self._code, 1, self._rng), model)
            )
            return self._clock + np.asarray(drawn[0])
        durations = task_seconds(model, self._code, 1, self._rng)[0]
        ready = self._busy.begin(self._code, durations, order.workers, self._clock)
        return np.asarray((noted if order.pull else delivered)(model, self._code, ready[None])[0])

    @property
    def carry(self) -> bool:
        """Whether who is inside a task when a round ends stays in it."""
        return self._carry

    def _seconds(self, order: Order) -> NDArray[np.float64]:
        """(T,) how long the tasks of a round take that are handed out; a delay is for all that a worker may do."""
        code = self._code
        if order.delays is not None:
            share = code.tasks.work / np.bincount(code.tasks.worker, code.tasks.work)[code.tasks.worker]
            return np.asarray(order.delays)[code.tasks.worker] * share
        model: Any = self._latency
        if order.round and isinstance(model, Resumes):
            model = model.from_round(order.round)
        return np.asarray(task_seconds(model, code, 1, self._rng)[0])

    def _noted(self, m: int) -> Iterator[Incoming]:
        """A worker has made a message, and says so; or the error of the problem."""
        worker = int(self._code.messages.worker[m])
        try:
            self._compute(self._outgoing[m])
        except Exception:
            self._silent.add(worker)
            yield Failed(worker, self._clock, self._round, traceback.format_exc())
        else:
            self._made.add(m)
            yield Announced(worker, m, self._clock, self._round)

    def _sent(self, m: int, ticket: int = 0) -> Iterator[Incoming]:
        """A message, or the error of the problem, after which its worker sends nothing more in this round."""
        message, worker = self._outgoing[m], int(self._code.messages.worker[m])
        if worker in self._silent:
            return
        try:
            payload, checksum = pack(message, self._payload(message), self._order.step, self._numbers)
        except Exception:
            self._silent.add(worker)
            yield Failed(worker, self._clock, self._round, traceback.format_exc())
        else:
            payload.flags.writeable = False
            yield Message(worker, m, self._round, self._clock, payload, checksum, ticket=ticket)

    def _payload(self, message: Outgoing) -> Any:
        self._compute(message)
        return encode(message, self._partials)

    def _compute(self, message: Outgoing) -> None:
        """The partial gradients of a message, once each."""
        if not self._heard and isinstance(self.problem, Listens):
            self.problem.hear(self._order.context)
        self._heard = True
        if not self._partials and len(self._slices) == 1 and isinstance(self.problem, ComputesAll):
            for part, grad in enumerate(self.problem.grads(self._order.params, self._order.step)):
                self._partials[part, 0] = require_numbers(self.problem, part, grad, self._slices[0])
        for part, block in message.pairs:
            if (part, block) not in self._partials:
                where = self._slices[block]
                partial = self.problem.grad(self._order.params, part, where, self._order.step)
                self._partials[part, block] = require_numbers(self.problem, part, partial, where)
