"""Roster: who is here. What an engine notices of its workers in, what the master is told out; no I/O, no clock of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from ..checks import require_workers
from ..doors import door
from .events import Failed, Joined, Lost

LOOKS = 8
"""Looks at the workers in the time of a heartbeat."""
PAUSE = 0.25
"""Seconds before a start that follows on one that failed; twice as long after each further one."""


class Place(Enum):
    """Where a worker stands."""

    STARTING = "starting"
    READY = "ready"
    HUNG = "ready, but without a sign of life for long"
    DUE = "dead, and to be started again"
    GONE = "dead or never ready, and given up"


@dataclass(eq=False, slots=True)
class Entry:
    """What is known of a worker. since: when it came to its place; while it is due, from when on it may be started.

    told: what the master was last told: True ready, False lost and may return, None lost for good.
    """

    place: Place = Place.STARTING
    since: float = 0.0
    heard: float = -math.inf
    starts: int = 1
    misses: int = 0
    failed: int = -1
    told: bool | None = True


@door
class Roster:
    """The workers of an engine: starting, ready, hung, dead, started again, given up.

    Times given to it are of the monotonic clock; those of its events are seconds since `begin`. restarts: how often a worker
    that died is started again. heartbeat: seconds without a sign of life after which a worker is hung. start_within: seconds
    after which a worker that was started again and is not ready is given up.

    >>> roster = Roster(2, restarts=1, heartbeat=10.0, start_within=60.0, now=100.0)
    >>> roster.ready(0, 101.0), roster.ready(1, 101.0)
    (Joined(worker=0, time=1.0, fresh=True), Joined(worker=1, time=1.0, fresh=True))
    >>> roster.died(0, 102.0), roster.due(102.0)
    (Lost(worker=0, time=2.0, returns=True), [0])
    >>> roster.ready(0, 103.0), roster.died(0, 104.0), roster.due(104.0)
    (Joined(worker=0, time=3.0, fresh=True), Lost(worker=0, time=4.0, returns=False), [])
    """

    def __init__(self, n: int, *, restarts: float, heartbeat: float, start_within: float, now: float) -> None:
        require_workers("Roster", n)
        self._restarts, self._heartbeat, self._start_within = restarts, heartbeat, start_within
        self.pause = heartbeat / LOOKS
        """Seconds between two looks."""
        self._origin = self._looked = self._floor = now
        self._entries = [Entry(since=now) for _ in range(n)]
        self._due = self.hung = 0
        self._next = math.inf

    def begin(self, now: float) -> None:
        """A round starts: events are stamped relative to this moment."""
        self._origin = now

    # Who is here

    @property
    def all_ready(self) -> bool:
        return all(entry.place is Place.READY for entry in self._entries)

    def is_ready(self, worker: int) -> bool:
        """Whether a worker takes orders; one that hangs does, when it goes on."""
        return self._entries[worker].place in (Place.READY, Place.HUNG)

    def not_ready(self) -> list[int]:
        return [worker for worker in range(len(self._entries)) if not self.is_ready(worker)]

    def started_again(self, worker: int) -> bool:
        return self._entries[worker].starts > 1

    def given_up(self, worker: int) -> bool:
        return self._entries[worker].place is Place.GONE

    # What happens

    def heard(self, worker: int, now: float) -> Joined | None:
        """A sign of life, as any message is."""
        entry = self._entries[worker]
        if now > entry.heard:
            entry.heard = now
        if entry.place is not Place.HUNG or now < entry.since:
            return None
        return self._join(worker, now, fresh=False)

    def ready(self, worker: int, now: float) -> Joined:
        """A worker has its share, and none of the orders that its predecessor had."""
        entry = self._entries[worker]
        entry.starts += entry.place is Place.DUE  # somebody else has started it before we said so
        entry.heard, entry.misses, entry.failed = now, 0, -1
        return self._join(worker, now, fresh=True)

    def failed(self, worker: int, round: int, details: str, now: float) -> list[Failed | Joined]:
        """The problem raised on a worker: told once a round and worker, since a worker may be asked again."""
        entry, joined = self._entries[worker], self.heard(worker, now)
        events: list[Failed | Joined] = [] if joined is None else [joined]
        if round > entry.failed:
            entry.failed = round
            events.append(Failed(worker, now - self._origin, round, details))
        return events

    def died(self, worker: int, now: float, again: bool | None = None) -> Lost | None:
        """A worker's process or connection ended, or could not be started.

        again: whether it is to be started again, by default while there are restarts.
        """
        entry = self._entries[worker]
        if entry.place is Place.GONE or (entry.place is Place.DUE and again is not False):
            return None
        if again is None:
            again = entry.starts <= self._restarts
        entry.misses = entry.misses + 1 if entry.place is Place.STARTING else 0
        if not again:
            return self._give_up(worker, now)
        self._move(entry, Place.DUE, now + (PAUSE * 2.0 ** (entry.misses - 1) if entry.misses else 0.0))
        self._next = min(self._next, entry.since)
        return self._lose(worker, now, returns=True)

    def due(self, now: float) -> list[int]:
        """Workers that are to be started now. From now on they are starting."""
        if not self._due or now < self._next:
            return []
        chosen = [w for w, entry in enumerate(self._entries) if entry.place is Place.DUE and entry.since <= now]
        for worker in chosen:
            entry = self._entries[worker]
            entry.starts += 1
            self._move(entry, Place.STARTING, now)
        self._next = min((entry.since for entry in self._entries if entry.place is Place.DUE), default=math.inf)
        return chosen

    def time_to_look(self, now: float) -> bool:
        """Whether the last look is an eighth of a heartbeat ago."""
        return (now - self._looked) * LOOKS >= self._heartbeat

    def look(self, now: float) -> list[Lost]:
        """Who hangs, and who was started again and did not get ready in time.

        If the master itself was away for long, the workers get the time of a heartbeat from now on.
        """
        if 2 * (now - self._looked) > self._heartbeat:
            self._floor = now
        self._looked = now
        events = [self._looked_at(worker, entry, now) for worker, entry in enumerate(self._entries)]
        return [event for event in events if event is not None]

    # Changes

    def _looked_at(self, worker: int, entry: Entry, now: float) -> Lost | None:
        if entry.place is Place.READY and now - max(entry.heard, self._floor) > self._heartbeat:
            self._move(entry, Place.HUNG, now)
            return self._lose(worker, now, returns=True)
        if entry.place is Place.STARTING and entry.starts > 1 and now - entry.since > self._start_within:
            return self._give_up(worker, now)
        return None

    def _give_up(self, worker: int, now: float) -> Lost | None:
        self._move(self._entries[worker], Place.GONE, now)
        return self._lose(worker, now, returns=False)

    def _move(self, entry: Entry, place: Place, now: float) -> None:
        self._due += (place is Place.DUE) - (entry.place is Place.DUE)
        self.hung += (place is Place.HUNG) - (entry.place is Place.HUNG)
        entry.place, entry.since = place, now

    def _join(self, worker: int, now: float, *, fresh: bool) -> Joined:
        entry = self._entries[worker]
        self._move(entry, Place.READY, now)
        entry.told = True
        return Joined(worker, now - self._origin, fresh)

    def _lose(self, worker: int, now: float, *, returns: bool) -> Lost | None:
        """Tell it, unless the master knows."""
        entry, told = self._entries[worker], False if returns else None
        if entry.told is told:
            return None
        entry.told = told
        return Lost(worker, now - self._origin, returns)
