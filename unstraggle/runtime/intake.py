"""Intake: the messages of one round. Which are here, which may still come, what follows from them; no I/O, and no decisions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..scheme.code import Code
from ..scheme.decoders import Decoded, decode, is_exact
from ..scheme.recovery import By, Tracker, recovery_of
from .events import Announced, Finished
from .handout import Handout
from .instructions import Tell


class Intake:
    """Messages of workers that go through their programs by themselves: each is sent once, and nothing is said meanwhile.

    got, pending: (M,) what is here, and what may still come. dropped: what will not, though its worker is alive. A code that
    hands out tasks has `SumsOnRequest`, and one whose messages are fetched `OnRequest`; where these differ, this class says
    what the plain case is. fetches: whether payloads have to be fetched when the stop rule is met. withdrawn: how often what
    could be had could not any more.
    """

    fetches, withdrawn = False, 0

    def __init__(self, code: Code) -> None:
        self._code, self.senders = code, code.messages.worker
        self.got: NDArray[np.bool_] = np.zeros(len(code.messages), dtype=bool)
        self.pending: NDArray[np.bool_] = np.ones(len(code.messages), dtype=bool)
        self.dropped: set[int] = set()
        self.count = 0
        self._trackers: dict[By, Tracker] = {}
        self._decoded: tuple[int, Decoded] | None = None

    # What the round asks

    @property
    def exhausted(self) -> bool:
        """Whether nothing more can come by itself."""
        return self.count == len(self.got) or not np.count_nonzero(self.pending)

    @property
    def settled(self) -> bool:
        """Whether all is here that still can come, once not everything can."""
        return self.exhausted

    @property
    def complete(self) -> bool:
        """Whether the payloads are here that will be used."""
        return True

    @property
    def outdated(self) -> bool:
        """Whether what to fetch has to be chosen again."""
        return False

    @property
    def awaited(self) -> NDArray[np.bool_]:
        """(M,) what the round waits for."""
        return self.pending

    @property
    def noted(self) -> dict[int, float]:
        """Who has announced something, and when last."""
        return {}

    @property
    def busy(self) -> tuple[int, ...]:
        """Who is at a task that was handed out."""
        return ()

    def recovered(self, by: By) -> bool:
        """Whether the rule, or the span, says that the exact gradient can be decoded from what is here."""
        return self.tracker(by).met

    def reachable(self, by: By) -> bool:
        """Whether it would say so if all came that still may."""
        possible, rule = self.got | self.pending, self._code.decoder.rule
        return bool(rule.met(possible) if by == "rule" and rule else is_exact(self._code.decoder, possible))

    @property
    def decoded(self) -> Decoded:
        """What the decoder makes of what is here. It is asked once for a set of messages."""
        if self._decoded is None or self._decoded[0] != self.count:
            self._decoded = self.count, decode(self._code.decoder, self.got)
        return self._decoded[1]

    def tracker(self, by: By) -> Tracker:
        if by not in self._trackers:
            tracker = self._trackers[by] = recovery_of(self._code, by).begin()
            for message in np.flatnonzero(self.got).tolist() if self.count else ():
                tracker.add(message)
        return self._trackers[by]

    def served(self, by: By) -> NDArray[np.bool_]:
        """(M,) messages of parts that are recovered: who has no others may stop."""
        tracker = self.tracker(by)
        return np.asarray(tracker.parts_met[tracker.part])

    def alarm(self) -> float | None:
        """When to look again although nothing has come."""
        return None

    # What happens. Each gives the words that follow

    def take(self, message: int, ticket: int) -> bool:
        """A message came. Whether it counts: if it was expected."""
        if self.got[message]:
            return False
        self.got[message], self.pending[message] = True, False
        self.count += 1
        if self.dropped:
            self.dropped.discard(message)
        for tracker in self._trackers.values():
            tracker.add(message)
        return True

    def drop(self, message: int, clock: float) -> list[Tell]:
        """A message will not come, or came damaged."""
        if not self.got[message]:
            self.pending[message] = False
            self.dropped.add(message)
        return []

    def announce(self, event: Announced) -> list[Tell]:
        """A worker has a message and keeps it, which nobody asked it to do here."""
        return []

    def expect(self, worker: int, fresh: bool = False) -> None:
        """A worker has its order: what it owes may come. fresh: it has nothing of what it did before."""
        self._set(worker, True)

    def lose(self, worker: int, clock: float) -> list[Tell]:
        """Nothing more will come from a worker."""
        self._set(worker, False)
        return []

    def fail(self, worker: int, clock: float) -> list[Tell]:
        """The problem raised on a worker, which is alive."""
        return self.lose(worker, clock)

    def join(self, worker: int, clock: float) -> list[Tell]:
        """A worker begins with its order, or goes on with it."""
        return []

    def fetch(self) -> list[Tell]:
        """Ask for what will be used."""
        return []

    def resume(self) -> list[Tell]:
        """What was to be fetched is lost: go on as before."""
        return []

    def close(self) -> None:
        """The round is over."""

    def finished(self, event: Finished, clock: float) -> list[Tell]:
        """A worker has done a task of this round. Its program has said what comes next."""
        return []

    def freed(self, worker: int, clock: float) -> list[Tell]:
        """A worker has left a task of an earlier round."""
        return []

    def tick(self, clock: float) -> list[Tell]:
        """Time has passed."""
        return []

    def settle(self) -> list[Tell]:
        """Not everything can come: the round takes what still can."""
        return []

    def again(self) -> list[Tell] | None:
        """What to say when messages may have vanished; None: their orders must be given again."""
        return None

    def _set(self, worker: int, comes: bool) -> None:
        mine = self.senders == worker
        self.pending[mine] = comes and ~self.got[mine]
        self.dropped -= set(np.flatnonzero(mine).tolist())


class SumsOnRequest(Intake):
    """Messages of a code that hands out tasks: one sum a worker, sent when asked, and again if the worker did more since.

    Who does what, and which results count, is the `Handout`'s business.
    """

    def __init__(self, code: Code, number: int, busy: tuple[int, ...]) -> None:
        super().__init__(code)
        self._handout = Handout(code, number, busy)

    @property
    def exhausted(self) -> bool:
        """A sum that is here may be asked for again, so that only workers that are gone make an end."""
        return not self.pending.any()

    @property
    def settled(self) -> bool:
        return self.exhausted or self._handout.settled

    @property
    def busy(self) -> tuple[int, ...]:
        return tuple(sorted(self._handout.occupied))

    def recovered(self, by: By) -> bool:
        return self._handout.complete

    def reachable(self, by: By) -> bool:
        return self._handout.reachable()

    @property
    def decoded(self) -> Decoded:
        return Decoded(self._handout.weights(len(self.got)), float(np.sqrt(1 - self._handout.covered())))

    def alarm(self) -> float | None:
        return self._handout.alarm()

    def take(self, message: int, ticket: int) -> bool:
        """Only the sum that was asked for last counts. Its worker may get more to do and be asked again: it stays pending."""
        worker = int(self.senders[message])
        if not self._handout.expects(worker, ticket):
            return False
        self.count += not self.got[message]
        self.got[message] = True
        self._handout.arrived(worker)
        return True

    def drop(self, message: int, clock: float) -> list[Tell]:
        return self._handout.damaged(int(self.senders[message]), clock)

    def lose(self, worker: int, clock: float) -> list[Tell]:
        super().lose(worker, clock)
        return self._handout.lose(worker, clock)

    def join(self, worker: int, clock: float) -> list[Tell]:
        return self._handout.join(worker, clock)

    def finished(self, event: Finished, clock: float) -> list[Tell]:
        return self._handout.finished(event.worker, event.task, event.epoch, clock)

    def freed(self, worker: int, clock: float) -> list[Tell]:
        return self._handout.freed(worker, clock)

    def tick(self, clock: float) -> list[Tell]:
        return self._handout.tick(clock)

    def settle(self) -> list[Tell]:
        return self._handout.settle()

    def again(self) -> list[Tell] | None:
        return self._handout.again()

    def _set(self, worker: int, comes: bool) -> None:
        self.pending[self.senders == worker] = comes
