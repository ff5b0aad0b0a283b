"""Current: the round that is running at a master. Events from an engine to the `Round`, its instructions to the engine."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.base import Engine, Tells
from ..errors import Invalid, NotRecovered
from .estimate import Estimate
from .events import Dropped, Elapsed, Event
from .gather import Gather, Scaling
from .instructions import Ask, Cancel, Fail, Instruction, Say, Tell, Until
from .interrupts import Interrupts
from .log import Log
from .message import Incoming, Message, Order, WorkerFailed
from .round import Round
from .states import State
from .step import computed, spent

log = logging.getLogger("unstraggle")


class Current:
    """The round that is running: events from the engine to the `Round`, its instructions to the engine, payloads to the sum.

    outside: seconds between the last round and this one. beside: what is done while the last messages are added up.
    """

    def __init__(
        self,
        engine: Engine,
        gather: Gather,
        round: Round,
        order: Order,
        log: Log,
        outside: float,
        beside: Callable[[], None],
    ) -> None:
        self._engine, self._gather, self.round, self._order, self._log = engine, gather, round, order, log
        self._outside, self._beside, self._senders = outside, beside, round.code.messages.worker
        self._first = round.begin()
        self.taken: list[Message] = []
        self._until: float | None = None
        self.bytes = 0

    def run(self, interrupts: Interrupts, look: float, meanwhile: Callable[[], None]) -> None:
        """Take events until the round is over. look: seconds between two looks for interrupts. meanwhile: what to do first."""
        self._log.begin(self.round)
        self._follow((), self._first)
        meanwhile()
        while self.round.open:
            incoming = self._engine.next(self._pause(look))
            interrupts.heed()
            if not incoming and not self._due():
                continue
            events = self._sound(incoming) or [Elapsed(self._engine.clock())]
            instructions = self.round.feed(*events)
            self._keep(self.round.taken)
            self._follow(events, instructions)
        self._engine.cancel(self.round.number, tuple(range(self.round.code.n)))

    def _pause(self, look: float) -> float | None:
        """Until when to wait for events."""
        soon = self._engine.clock() + look
        until = soon if self._until is None else min(soon, self._until)
        return until if until < math.inf else None

    def _due(self) -> bool:
        """Whether the round wants to be told that time has passed."""
        return self._until is not None and self._engine.clock() >= self._until

    def _sound(self, incoming: Iterable[Incoming]) -> list[Event | Message]:
        """What the round is told: damaged messages do not count as arrived."""
        number, check, events = self.round.number, self._gather.check, list[Event | Message]()
        for one in incoming:
            if isinstance(one, Message) and one.round == number:
                try:
                    check(one)
                except Invalid:
                    one = Dropped(one.index, one.time, damaged=True)
            events.append(one)
        return events

    def _keep(self, new: list[Message]) -> None:
        """Take the payloads of messages that counted."""
        self.taken += new
        self.bytes += sum(map(len, map(attrgetter("payload"), new)))
        self._gather.add(new)

    def _follow(self, events: Iterable[Event | Message], instructions: tuple[Instruction, ...]) -> None:
        self._log.add(events, instructions)
        failure: Fail | None = None
        for one in instructions:
            if isinstance(one, Until):
                self._until = one.time
            elif isinstance(one, Cancel):
                self._engine.cancel(one.round, one.workers)
            elif isinstance(one, Tell):
                self._tell(one)
            elif isinstance(one, Ask):
                self._engine.start(replace(self._order, workers=one.workers))
            elif isinstance(one, Say):
                log.warning("%s", one.text)
            elif isinstance(one, Fail):
                failure = one
        if failure is not None:
            raise NotRecovered(failure.why) if failure.worker is None else WorkerFailed(failure.worker, failure.details)

    def _tell(self, word: Tell) -> None:
        assert isinstance(self._engine, Tells), "the master has looked at it before the first round"
        self._engine.tell(word)

    # When it is over

    def settle(self, scaling: Scaling | None = None) -> None:
        """Begin to decode what there is, as the round says."""
        skipped = self.round.state is State.SKIPPED
        self._tracks = self._nothing() if skipped else self._gather.finish(self.round.decoded.weights, scaling)

    def estimate(self) -> Estimate:
        """What is decoded. While a device or another thread may be at it, the record is written."""
        self._beside()
        round, skipped = self.round, self.round.state is State.SKIPPED
        done, exact, record = computed(self.taken, round.code), not skipped and round.exact, self._record()
        busy, wait = set(self._senders[round.pending].tolist()), float(round.clock if round.time is None else round.time)
        fine = skipped or self._gather.finite or self._say_it_is_not_finite()
        return Estimate(
            tracks=self._tracks,
            computed=np.array(done),
            exact=exact and fine,
            finite=fine,
            skipped=skipped,
            **record,
            **spent(self.taken, done, wait, self._engine.clock(), self._outside, busy, round.missed, round.noted),
        )

    def _record(self) -> dict[str, Any]:
        """What happened in the round, for its `Estimate`."""
        round = self.round
        used = set(self._senders[round.got].tolist())
        late = set(range(round.code.n)) - used - round.noted.keys() - round.missed
        return {
            "code": round.code.name,
            "round": round.number,
            "step": self._order.step,
            "got": round.got.copy(),
            "arrivals": self._arrivals(),
            "residual": 1.0 if round.state is State.SKIPPED else round.decoded.residual,
            "used": tuple(sorted(used)),
            "late": tuple(sorted(late)),
            "lost": tuple(sorted(round.missed)),
            "messages": int(np.count_nonzero(round.got)),
            "stale": round.late,
            "duplicates": round.duplicates,
            "damaged": round.damaged,
            "bytes": self.bytes,
        }

    def _say_it_is_not_finite(self) -> bool:
        """False. Whose numbers they are is looked for only now: as a rule all are finite."""
        broken = self._gather.broken(self.taken)
        which = f"workers {broken} sent such" if broken else "no message has such, and their sum is too large"
        log.warning(
            "Step %d: the gradient has NaN or infinity: %s. A step with it spoils the parameters: leave it out (finite is "
            "False), clip, or lower the learning rate.",
            self._order.step,
            which,
        )
        return False

    def _arrivals(self) -> NDArray[np.float64]:
        times = np.full(len(self.round.got), np.inf)
        for one in self.taken:
            times[one.index] = one.time
        return times

    def starts(self) -> NDArray[np.float64]:
        """(M,) when the tasks of each message were begun, where it says so; else the start of the round."""
        times = np.zeros(len(self.round.got))
        for one in self.taken:
            times[one.index] = one.times[0] if one.times else 0.0
        return times

    def _nothing(self) -> NDArray[Any]:
        return np.zeros((1, self._engine.problem.dim), self._engine.problem.dtype)
