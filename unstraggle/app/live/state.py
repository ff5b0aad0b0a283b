"""What the live page shows: totals, workers, the last steps and events. Fed by one thread, read by others."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import Any

from ...adaptive.switch import Switch
from ...runtime.step import Step, record

STEPS, EVENTS = 400, 200
"""Steps and events that are kept."""


class State:
    """Everything of a run that is shown, guarded by a lock."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lock = threading.Lock()
        self.records: deque[dict[str, Any]] = deque(maxlen=STEPS)
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self.totals: Counter[str] = Counter()
        self.wall = self.wait = 0.0
        self.used: Counter[int] = Counter()
        self.late: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.gone: frozenset[int] = frozenset()
        self.n = 0

    def add(self, step: Step, loss: float | None) -> dict[str, Any]:
        """Take a step; gives what browsers are told of it."""
        with self.lock:
            new, told = list(self._happened(step)), record(step, Step) | {"loss": loss}
            self.records.append(told)
            self.events.extend(new)
            self.totals.update(steps=1, exact=int(step.exact), skipped=int(step.skipped), bytes=step.bytes)
            self.totals.update(damaged=step.damaged, duplicates=step.duplicates, stale=step.stale)
            self.wall, self.wait = self.wall + step.wall, self.wait + step.wait
            for count, workers in ((self.used, step.used), (self.late, step.late), (self.lost, step.lost)):
                count.update(workers)
            self.gone = frozenset(step.lost)
            self.n = max(self.n, 1 + max((*step.used, *step.late, *step.lost), default=-1))
            return {"record": told, "events": new, **self._now()}

    def snapshot(self) -> dict[str, Any]:
        """All that is kept, for a browser that comes."""
        with self.lock:
            return {"records": list(self.records), "events": list(self.events), **self._now()}

    def _now(self) -> dict[str, Any]:
        workers = [{"used": self.used[w], "late": self.late[w], "lost": self.lost[w]} for w in range(self.n)]
        return {"title": self.title, "totals": dict(self.totals), "wall": self.wall, "wait": self.wait, "workers": workers}

    def _happened(self, step: Step) -> Any:
        """Events: what is worth a line in the log."""
        lost = frozenset(step.lost)
        for worker in sorted(lost - self.gone):
            yield _event(step, "lost", f"worker {worker} is lost")
        for worker in sorted(self.gone - lost):
            yield _event(step, "back", f"worker {worker} is back")
        for switch in step.switches:
            yield _event(step, "switch", str(Switch.of(switch)))
        if step.skipped:
            yield _event(step, "skipped", "no gradient could be had: the step was skipped")
        elif not step.finite:
            yield _event(step, "inexact", "the gradient has NaN or infinity")
        elif not step.exact:
            yield _event(step, "inexact", "the gradient is not exact")
        if step.damaged:
            yield _event(step, "damaged", f"{step.damaged} damaged message{'s' * (step.damaged > 1)} refused")


def _event(step: Step, kind: str, text: str) -> dict[str, Any]:
    return {"step": step.step, "kind": kind, "text": text}
