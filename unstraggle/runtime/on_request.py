"""OnRequest: messages that workers announce and keep (`transfer="pull"`). What could be had, and what is asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..scheme.code import Code
from ..scheme.decoders import Decoded, decode
from ..scheme.fetching import sure_of, to_fetch
from ..scheme.recovery import By, recovery_of
from .events import Announced
from .instructions import Tell
from .intake import Intake, SumsOnRequest
from .terms import Terms, require_transfer

DAMAGED = 3
"""Payloads of a message that came damaged, after which another one takes its place."""


class OnRequest(Intake):
    """Messages that workers keep. got: what could be had, by which stop rules judge. here: (M,) payloads that came.

    pending: what may still be announced. When the stop rule is met, the round fetches what the decoder will use (`fetch`), and
    chooses again (`outdated`) where a worker is lost that was asked; in the end, what is here is all that was got. Where
    weights are known in advance, the first copy of a message is sure to be used, and asked for as soon as it is announced.

    early: the notion of recovered by which clusters stop. What is used of a part is then asked for when the part is recovered
    by what was announced; when it is here the part is served, and what becomes of its workers does not matter any more.
    """

    fetches = True

    def __init__(self, code: Code, number: int, eps: float, early: By | None = None) -> None:
        super().__init__(code)
        self.here: NDArray[np.bool_] = np.zeros(len(self.got), dtype=bool)
        self.announced: NDArray[np.bool_] = np.zeros(len(self.got), dtype=bool)
        self._early = early
        self._part = np.zeros(len(self.got), dtype=np.int64) if early is None else recovery_of(code, early).part
        self._selected, self._served = (np.zeros(int(self._part.max(initial=0)) + 1, dtype=bool) for _ in range(2))
        self._number, self._eps, self._away = number, eps, set[int]()
        self._when = np.full(len(self.got), np.inf)
        self._wanted, self._instead = self.here.copy(), None  # type: NDArray[np.bool_], NDArray[np.bool_] | None
        self._asked, self._tickets = np.zeros(len(self.got), dtype=bool), 0
        self._damaged = np.zeros(len(self.got), dtype=np.int64)
        self._sure, self._chosen = sure_of(code), dict[int, int]()
        self._fetching = False

    # What the round asks

    @property
    def exhausted(self) -> bool:
        return not self.pending.any()

    @property
    def complete(self) -> bool:
        """Whether all is here that is wanted, or what was asked for instead of it."""
        if self.outdated:
            return False
        return _within(self._wanted, self.here) or (self._instead is not None and _within(self._instead, self.here))

    @property
    def outdated(self) -> bool:
        return not self._selected.all()

    @property
    def awaited(self) -> NDArray[np.bool_]:
        return self._outstanding if self._outstanding.any() else self.pending

    def served(self, by: By) -> NDArray[np.bool_]:
        return np.asarray(self._served[self._part])

    @property
    def noted(self) -> dict[int, float]:
        return {int(self.senders[m]): float(self._when[m]) for m in np.argsort(self._when) if self._when[m] < np.inf}

    @property
    def decoded(self) -> Decoded:
        key = hash(self.got.tobytes())
        if self._decoded is None or self._decoded[0] != key:
            self._decoded = key, decode(self._code.decoder, self.got)
        return self._decoded[1]

    # What happens

    def announce(self, event: Announced) -> list[Tell]:
        """A worker has a message of its own. What one says of those of others does not count; nor yet who is thought lost."""
        message = event.message
        if not 0 <= message < len(self.got) or self.senders[message] != event.worker or self.announced[message]:
            return []
        self.announced[message], self._when[message] = True, event.time
        if event.worker in self._away:
            return []
        self._get(message)
        return [] if self._fetching else self._ask_for_sure(message)

    def take(self, message: int, ticket: int) -> bool:
        """It counts if it was asked for, by whichever request, and is not here yet."""
        if ticket <= 0 or not self._asked[message] or self.here[message]:
            return False
        self.here[message] = True
        self._get(message)
        return True

    def drop(self, message: int, clock: float) -> list[Tell]:
        """It came damaged: ask again, but not for ever; or it will never be announced."""
        if self.here[message]:
            return []
        self._damaged[message] += 1
        if self.got[message] and self._asked[message] and self._damaged[message] < DAMAGED:
            return [self._request(message)]
        words = self._withdraw(message)
        self.dropped.add(message)
        return words

    def expect(self, worker: int, fresh: bool = False) -> None:
        mine = self.senders == worker
        self._damaged[mine] = 0
        if fresh:
            self.announced[mine] = False
        super().expect(worker)

    def lose(self, worker: int, clock: float) -> list[Tell]:
        """What it has announced is out of reach, until it is here again with it."""
        self._away.add(worker)
        mine = np.flatnonzero((self.senders == worker) & self.got & ~self.here).tolist()
        words = [word for message in mine for word in self._withdraw(message, forget=False)]
        return words + super().lose(worker, clock)

    def fail(self, worker: int, clock: float) -> list[Tell]:
        """A worker that raised has what it announced before; but not what it was asked for, or it would have sent it."""
        mine = np.flatnonzero((self.senders == worker) & self._asked & ~self.here).tolist()
        words = [word for message in mine for word in self._withdraw(message)]
        return words + super().lose(worker, clock)

    def join(self, worker: int, clock: float) -> list[Tell]:
        self._away.discard(worker)
        mine = np.flatnonzero((self.senders == worker) & self.announced & ~self.got).tolist()
        for message in mine:
            self._get(message)
        return [word for message in mine for word in self._ask_for_sure(message)]

    def fetch(self) -> list[Tell]:
        """Choose what to fetch, where that was not done yet or has to be done again."""
        self._instead, self._fetching = None, True
        return self._select(np.ones(len(self._selected), dtype=bool))

    def tick(self, clock: float) -> list[Tell]:
        """Where clusters stop: fetch what is used of those that are recovered, and see which are served by now."""
        if self._early is None:
            return []
        met = self.tracker(self._early).parts_met
        words, lacking = self._select(met), np.zeros(len(met), dtype=bool)
        lacking[self._part[self._wanted & ~self.here]] = True
        self._served |= met & ~lacking
        return words

    def resume(self) -> list[Tell]:
        """The round goes on: what was announced meanwhile counts again."""
        self._fetching = False
        if self._early is None:
            self._selected[:] = False
        return [word for message in np.flatnonzero(self.got).tolist() for word in self._ask_for_sure(message)]

    def again(self) -> list[Tell] | None:
        """Requests or payloads may have vanished, or a worker hangs: ask again, and for others that can stand in."""
        late = self._outstanding
        if not late.any():
            return None
        could = np.where(self._served[self._part], self._wanted, self.got & ~late)
        rest = to_fetch(self._code, could[None], self._when[None], self._eps, self._early is not None)[0]
        if rest.any() and decode(self._code.decoder, rest).exact(self._eps):
            self._instead = rest
        asked = late if self._instead is None else late | (self._instead & ~self.here)
        return [self._request(m) for m in np.flatnonzero(asked).tolist()]

    def close(self) -> None:
        """The round is over: what is here is what was got."""
        self.got[:] = self.here
        self.count = int(self.here.sum())

    # How

    def _get(self, message: int) -> None:
        if not self.got[message]:
            super().take(message, 0)

    @property
    def _outstanding(self) -> NDArray[np.bool_]:
        """(M,) what the end of the round waits for; before, more may be missing than what was asked for."""
        return self._wanted & ~self.here & self._fetching

    def _select(self, parts: NDArray[np.bool_]) -> list[Tell]:
        """Choose what to fetch of parts, where that has to be done, and ask for what was not asked for yet. What is here, or
        was asked for, is preferred."""
        fresh = (parts & ~self._selected)[self._part]
        if not fresh.any():
            return []
        self._selected |= parts
        when = np.where(self.here, -2.0, np.where(self._asked, -1.0, self._when))
        chosen = to_fetch(self._code, (self.got & fresh)[None], when[None], self._eps, self._early is not None)[0]
        self._wanted = np.where(fresh, chosen, self._wanted)
        return [self._request(m) for m in np.flatnonzero(self._wanted & fresh & ~self.here & ~self._asked).tolist()]

    def _withdraw(self, message: int, forget: bool = True) -> list[Tell]:
        """It cannot be had any more: whoever counts what is here begins again, and what was chosen may not be enough. Of a part
        that is served nothing is missed."""
        if self._served[self._part[message]]:
            self.pending[message] = False
            return []
        self.announced[message] &= not forget
        if self.got[message]:
            self.count -= 1
            self.withdrawn += 1
            self._trackers.clear()
        self.got[message] = self.pending[message] = self._asked[message] = False
        if self._wanted[message]:
            self._selected[self._part[message]] = False
        if self._sure is None or self._chosen.get(int(self._sure[message])) != message:
            return []
        del self._chosen[int(self._sure[message])]
        others = np.flatnonzero(self.got & (self._sure == self._sure[message]))
        return self._ask_for_sure(int(others[self._when[others].argmin()])) if len(others) else []

    def _ask_for_sure(self, message: int) -> list[Tell]:
        """Ask for a message that will be used whatever else comes: the first of its kind."""
        if self._sure is None or self._sure[message] < 0 or int(self._sure[message]) in self._chosen:
            return []
        self._chosen[int(self._sure[message])] = message
        return [self._request(message)] if not self.here[message] else []

    def _request(self, message: int) -> Tell:
        self._tickets += 1
        self._asked[message] = True
        return Tell(int(self.senders[message]), self._number, ticket=self._tickets, message=message)


def _within(some: NDArray[np.bool_], others: NDArray[np.bool_]) -> bool:
    return not (some & ~others).any()


def intake_of(code: Code, number: int, terms: Terms, early: By | None = None) -> Intake:
    """What takes in the messages of a round. early: by which notion of recovered clusters stop, if they do."""
    if code.handing is not None:
        return SumsOnRequest(code, number, terms.busy)
    pull = require_transfer(terms.transfer) == "pull"
    return OnRequest(code, number, terms.eps, early) if pull else Intake(code)
