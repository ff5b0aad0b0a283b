"""What an engine promises whose workers keep messages (`engines.Keeps`): each is announced, and sent when it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..engines.base import Engine, keeps
from ..runtime.events import Announced, Failed
from ..runtime.instructions import Tell
from ..runtime.message import Message
from .faults import ATTEMPTS
from .trial import FILE, LONG, PAUSE, SLOW, TASKS, WORKERS, Trial, Witness, require
from .watched import BrokenEngine, WatchedTelling


class FetchTrial(Trial):
    """An engine whose workers announce their messages. Tickets count on."""

    pull = True

    def __init__(self, make: Callable[[Any], Engine], folder: Path, within: float) -> None:
        self.tickets: dict[int, int] = {}
        super().__init__(make, folder, within)

    def ask(self, message: int) -> int:
        """Ask for a message; gives the ticket."""
        assert isinstance(self.engine, WatchedTelling)
        ticket = len(self.tickets) + 1
        self.tickets[ticket] = message
        self.engine.tell(Tell(message // TASKS, self.round, ticket=ticket, message=message))
        return ticket

    def fetch(self, message: int) -> None:
        """Ask for a message, and wait until it comes."""
        ticket = self.ask(message)
        self.wait("the answer to a request", lambda: self.answer(ticket) is not None)

    def answer(self, ticket: int) -> Message | None:
        found = [one for one in self.seen if isinstance(one, Message) and one.ticket == ticket]
        return found[0] if found else None

    def announced(self, worker: int) -> list[int]:
        """Messages of this round that a worker has announced."""
        mine = [one for one in self.seen if isinstance(one, Announced) and one.worker == worker]
        return [one.message for one in mine if one.round == self.round]

    def _check_message(self, message: Message) -> None:
        require(self.tickets.get(message.ticket) == message.index, f"message {message.index} comes unasked.")
        super()._check_message(message)


def announced(trial: FetchTrial) -> None:
    """Every message is announced once, by its worker, and none is sent before it is asked for."""
    trial.begin()
    trial.wait("the announcement of all messages", lambda: all(len(trial.announced(w)) >= TASKS for w in range(WORKERS)))
    trial.rest(PAUSE)
    for worker in range(WORKERS):
        found, own = Counter(trial.announced(worker)), Counter(range(worker * TASKS, (worker + 1) * TASKS))
        require(found == own, f"worker {worker} has messages {sorted(own)}, but announced {sorted(found.elements())}.")
    trial.fetch(TASKS + 1)


def asked_twice(trial: FetchTrial) -> None:
    """A message is sent as often as it is asked for, and is not computed again for it."""
    announced(trial)
    tickets = trial.ask(0), trial.ask(0)
    trial.wait("two answers to two requests", lambda: all(map(trial.answer, tickets)))
    first, second = (bytes(trial.answer(ticket).payload) for ticket in tickets)  # type: ignore[union-attr]
    require(first == second, "a message was asked for twice, and two different ones were sent.")


def asked_meanwhile(trial: FetchTrial) -> None:
    """A worker answers while it is in another task."""
    for _ in range(ATTEMPTS):
        trial.begin(SLOW)
        trial.wait("the first announcement of a slow worker", lambda: bool(trial.announced(0)))
        trial.fetch(trial.announced(0)[0])
        if len(trial.announced(0)) < TASKS:
            return
    raise BrokenEngine("The engine is broken: a worker answers only when it has done all of its tasks.")


def asked_for_nothing(trial: FetchTrial) -> None:
    """A worker that is asked for what it has not says so."""
    delays = np.zeros(WORKERS * TASKS)
    delays[TASKS : 2 * TASKS] = LONG
    trial.begin(delays=delays)
    trial.wait("the announcements of others", lambda: len(trial.announced(0)) == TASKS)
    ticket = trial.ask(TASKS)
    trial.wait("word that a message is not there", lambda: any(isinstance(one, Failed) for one in trial.seen))
    require(trial.answer(ticket) is None, "a message was sent that was not announced.")
    announced(trial)


PROMISES = (announced, asked_twice, asked_meanwhile, asked_for_nothing)


def check_fetches(make: Callable[[Any], Engine], folder: Path, within: float) -> tuple[str, ...]:
    """Try all on one engine, if its workers keep messages; gives the names of what was tried."""
    (folder / "fetches").mkdir()
    engine = make(Witness(str(folder / "fetches" / FILE)))
    if not keeps(engine):
        return ()
    trial = FetchTrial(lambda _: engine, folder / "fetches", within)
    try:
        for promise in PROMISES:
            promise(trial)
    finally:
        trial.engine.close()
    return tuple(promise.__name__ for promise in PROMISES)
