"""Voting: any engine, whose workers are believed only where several say the same. Finds workers that compute wrong numbers."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count
from ..doors import door
from ..errors import Invalid
from ..runtime.events import Dropped, Failed, Joined, Lost
from ..runtime.message import Incoming, Message, Order
from ..runtime.payload import number_type
from ..scheme.code import Code
from .base import Engine
from .wrapper import Wrapper

log = logging.getLogger("unstraggle")

ROUNDING = 1000
"""By so many times the smallest step of a number copies may differ that were added up in another order."""


@dataclass(eq=False)
class Ballot:
    """The copies of one message, from different workers.

    held: those that are here and not yet believed. silent: those that will not come by themselves. truth: what enough of them
    say, once that is known.
    """

    members: tuple[int, ...]
    agree: int
    tolerance: float
    held: dict[int, tuple[Any, NDArray[Any]]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    truth: NDArray[Any] | None = None

    def cast(self, member: int, what: Any, numbers: NDArray[Any]) -> tuple[list[Any], list[int]]:
        """A copy came: what is believed now, and who is outvoted.

        >>> ballot = Ballot((0, 1, 2), agree=2, tolerance=0.0)
        >>> ballot.cast(0, "a", np.ones(1)), ballot.cast(1, "b", np.zeros(1)), ballot.cast(2, "c", np.ones(1))
        (([], []), ([], []), (['a', 'c'], [1]))
        """
        self.silent.discard(member)
        self.held[member] = what, numbers
        if self.truth is None and len(self._same(numbers)) >= self.agree:
            self.truth = numbers
        return self._sorted() if self.truth is not None else ([], [])

    def _same(self, numbers: NDArray[Any]) -> list[int]:
        return [member for member, (_, other) in self.held.items() if same(numbers, other, self.tolerance)]

    def _sorted(self) -> tuple[list[Any], list[int]]:
        """Those that are here, by whether they say what is true; none is held any more."""
        assert self.truth is not None
        right = self._same(self.truth)
        believed, outvoted = [self.held[member][0] for member in right], sorted(self.held.keys() - set(right))
        self.held.clear()
        return believed, outvoted

    def undecided(self) -> list[int]:
        """Copies that wait in vain: those that still may come are too few. They are given up, and may be sent again."""
        if self.truth is not None or not self.held:
            return []
        most = max(len(self._same(numbers)) for _, numbers in self.held.values())
        if most + len(set(self.members) - self.held.keys() - self.silent) >= self.agree:
            return []
        given_up = sorted(self.held)
        self.silent |= set(given_up)
        self.held.clear()
        return given_up


@door
class Voting(Wrapper):
    """Wraps an engine: a message counts when `agree` workers have sent the same, and whoever sent another is outvoted.

    For codes whose messages come from several workers, such as fractional_repetition and uncoded_mmc: by repetition and
    majority vote, f workers that lie, also all the same lie, are tolerated with agree = f + 1 and 2 f + 1 copies, as in DRACO
    (Chen, Wang, Charles and Papailiopoulos, 2018). With fewer copies a lie is found, but not the truth: the round is short of
    messages. Its price is that a round waits for `agree` copies, not for the first. tolerance: relative difference of equal
    messages, by default what rounding makes. outvoted: how often each worker was.

    >>> from unstraggle import Master, codes, engines, latency, problems
    >>> problem = problems.LeastSquares.split(np.eye(6), np.arange(6.0), parts=6)
    >>> engine = Voting(engines.Virtual(problem, latency.ShiftedExponential(rate=1.0), rng=0))
    >>> with Master(codes.fractional_repetition(6, s=2), engine) as master:
    ...     estimate = master.gradient(np.zeros(6))
    >>> estimate.exact, estimate.messages, dict(engine.outvoted)
    (True, 4, {})
    """

    def __init__(self, engine: Engine, agree: int = 2, tolerance: float | None = None) -> None:
        self._agree = require_count("Voting", "agree", agree, 2, 10**6, "So many workers must say the same.")
        if tolerance is not None and not 0 <= tolerance < 1:
            raise Invalid(f"Voting needs a relative tolerance from 0 to below 1, but got {tolerance}.")
        super().__init__(engine)
        self._tolerance = tolerance
        self.outvoted: Counter[int] = Counter()
        self._round = -1

    def open(self, code: Code) -> None:
        copies_of(code, self._agree)
        self._code = code
        self.engine.open(code)

    def start(self, order: Order) -> None:
        """A new round has new ballots; who is asked again may answer otherwise."""
        if order.round != self._round:
            self._round = order.round
            self._take_up(order.code or self._code)
        for member in np.flatnonzero(np.isin(self._senders, order.workers or ())).tolist():
            self._ballots[member].silent.discard(member)
            self._ballots[member].held.pop(member, None)
        self.engine.start(order)

    def _take_up(self, code: Code) -> None:
        self._senders, self._numbers = code.messages.worker, number_type(code, np.dtype(self.problem.dtype))
        rounding = ROUNDING * float(np.finfo(self._numbers).eps)
        tolerance = rounding if self._tolerance is None else self._tolerance
        ballots = [Ballot(copies, self._agree, tolerance) for copies in copies_of(code, self._agree)]
        self._ballots = {member: ballot for ballot in ballots for member in ballot.members}

    def next(self, until: float | None) -> list[Incoming]:
        while True:
            incoming = self.engine.next(until)
            events = [out for one in incoming for out in self._judged(one)] + (self._given_up() if incoming else [])
            if events or (until is not None and self.clock() >= until):
                return events

    def _judged(self, incoming: Incoming) -> list[Incoming]:
        """What becomes of a message of this round. News of workers are passed on."""
        if not isinstance(incoming, Message) or incoming.round != self._round:
            self._note(incoming)
            return [incoming]
        numbers = self._read(incoming)
        if numbers is None:  # damaged on its way: for the master to see
            self._ballots[incoming.index].silent.add(incoming.index)
            return [incoming]
        believed, outvoted = self._ballots[incoming.index].cast(incoming.index, incoming, numbers)
        now: list[Incoming] = [dataclasses.replace(message, time=self.clock()) for message in believed]
        return now + [self._outvote(member) for member in outvoted]

    def _read(self, message: Message) -> NDArray[Any] | None:
        """The numbers of a message, in memory of their own; None where it was damaged."""
        from ..runtime.frame import checksum

        right = message.checksum is None or checksum(message.payload) == message.checksum
        if not right or len(message.payload) % self._numbers.itemsize:
            return None
        return np.frombuffer(bytes(message.payload), self._numbers)

    def _note(self, news: Incoming) -> None:
        """Who will not send what it owes, and who will again."""
        if isinstance(news, Dropped):
            self._ballots[news.message].silent.add(news.message)
        elif isinstance(news, Lost) or (isinstance(news, Failed) and news.round == self._round):
            self._silence(news.worker, True)
        elif isinstance(news, Joined) and not news.fresh:
            self._silence(news.worker, False)

    def _silence(self, worker: int, silent: bool) -> None:
        for member in np.flatnonzero(self._senders == worker).tolist() if self._round >= 0 else ():
            ballot = self._ballots[member]
            if not silent:
                ballot.silent.discard(member)
            elif member not in ballot.held:
                ballot.silent.add(member)

    def _given_up(self) -> list[Incoming]:
        """Copies that wait for others in vain: the master may ask for them again."""
        ballots = dict.fromkeys(self._ballots.values())
        return [Dropped(member, self.clock(), damaged=True) for ballot in ballots for member in ballot.undecided()]

    def _outvote(self, member: int) -> Incoming:
        worker = int(self._senders[member])
        if not self.outvoted[worker]:
            log.warning("Worker %d is outvoted in round %d: its numbers are not those of others.", worker, self._round)
        self.outvoted[worker] += 1
        return Dropped(member, self.clock(), damaged=True)


def same(first: NDArray[Any], second: NDArray[Any], tolerance: float) -> bool:
    """Whether two messages are equal but for rounding; one with NaN equals none."""
    if first.shape != second.shape:
        return False
    scale = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    return bool(np.isfinite(scale) and np.abs(first - second).max(initial=0.0) <= tolerance * scale)


def copies_of(code: Code, agree: int) -> list[tuple[int, ...]]:
    """The messages that say the same, from different workers; refuses codes in which fewer than `agree` do."""
    if code.handing is not None or not code.messages.plain.all():
        raise Invalid(
            f"Voting compares messages that are sent by several workers, number by number, but those of {code.name} are "
            f"{'sums of what was handed out' if code.handing is not None else 'quantised'}. Use fractional_repetition."
        )
    found: dict[Any, list[int]] = {}
    for m in range(len(code.messages)):
        own = slice(*code.messages.coef.indptr[m : m + 2])
        row = zip(code.messages.coef.indices[own].tolist(), code.messages.coef.data[own].tolist(), strict=True)
        found.setdefault((int(code.messages.block[m]), tuple(sorted(row))), []).append(m)
    for copies in found.values():
        senders = len(set(code.messages.worker[copies].tolist()))
        if senders < agree or senders < len(copies):
            raise Invalid(
                f"Voting(agree={agree}) needs every message from {agree} workers, once from each, but message {copies[0]} of "
                f"{code.name} comes {len(copies)} times from {senders}. Use fractional_repetition(n, s={2 * agree - 2}), or "
                f"uncoded_mmc with load={2 * agree - 1}."
            )
    return [tuple(copies) for copies in found.values()]
