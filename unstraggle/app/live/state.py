"""What the live page shows: totals, workers, the last steps and events. Fed by one thread, read by others."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from .record import Record

STEPS, EVENTS = 400, 200
"""Steps and events that are kept."""


class State:
    """Everything of a run that is shown, guarded by a lock."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lock = threading.Lock()
        self.records: deque[Record] = deque(maxlen=STEPS)
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self.totals: Counter[str] = Counter()
        self.seconds = 0.0
        self.used: Counter[int] = Counter()
        self.late: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.gone: frozenset[int] = frozenset()
        self.n = 0

    def add(self, record: Record) -> dict[str, Any]:
        """Take a step; gives what browsers are told of it."""
        with self.lock:
            new = list(self._happened(record))
            self.records.append(record)
            self.events.extend(new)
            self.totals.update(steps=1, exact=int(record.exact), skipped=int(record.skipped), bytes=record.bytes)
            self.totals.update(damaged=record.damaged, duplicates=record.duplicates)
            self.seconds += record.time
            for count, workers in ((self.used, record.used), (self.late, record.late), (self.lost, record.lost)):
                count.update(workers)
            self.gone = frozenset(record.lost)
            self.n = max(self.n, 1 + max((*record.used, *record.late, *record.lost), default=-1))
            return {"record": record.to_dict(), "events": new, **self._now()}

    def snapshot(self) -> dict[str, Any]:
        """All that is kept, for a browser that comes."""
        with self.lock:
            return {"records": [record.to_dict() for record in self.records], "events": list(self.events), **self._now()}

    def _now(self) -> dict[str, Any]:
        workers = [{"used": self.used[w], "late": self.late[w], "lost": self.lost[w]} for w in range(self.n)]
        return {"title": self.title, "totals": dict(self.totals), "seconds": self.seconds, "workers": workers}

    def _happened(self, record: Record) -> Any:
        """Events: what is worth a line in the log."""
        lost = frozenset(record.lost)
        for worker in sorted(lost - self.gone):
            yield _event(record, "lost", f"worker {worker} is lost")
        for worker in sorted(self.gone - lost):
            yield _event(record, "back", f"worker {worker} is back")
        if record.skipped:
            yield _event(record, "skipped", "no gradient could be had: the step was skipped")
        elif not record.exact:
            yield _event(record, "inexact", "the gradient is not exact")
        if record.damaged:
            yield _event(record, "damaged", f"{record.damaged} damaged message{'s' * (record.damaged > 1)} refused")


def _event(record: Record, kind: str, text: str) -> dict[str, Any]:
    return {"step": record.step, "kind": kind, "text": text}
