"""How worker processes of one machine wake up: without interrupting others, and apart from each other."""

from __future__ import annotations

import contextlib
import os


def yield_to_others() -> None:
    """Where there are fewer processors than processes, a worker that gets its order takes the master's processor, and the next
    worker gets its own order a time slice later: milliseconds. As a batch process, which has the same share of the processors,
    it waits until one is free. Whoever has another policy than the usual one keeps it; so do other systems than Linux.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


class Home:
    """The processor on which one of n workers wakes up, where they fill all processors: `with home:` it sleeps there.

    Linux now and then wakes two workers on one processor, one after the other, and leaves another one idle for milliseconds: as
    long as a short task takes. So while they wait for orders, workers keep to processors of their own; awake they may go
    anywhere. Where processors are left, it finds those by itself. Where somebody else has decided on which ones this thread may
    run, and on other systems than Linux, this does nothing.
    """

    def __init__(self, number: int, n: int) -> None:
        self._all: set[int] = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
        self._own = {sorted(self._all)[number % len(self._all)]} if 1 < len(self._all) <= n else set()

    def __enter__(self) -> None:
        self._move(self._all, self._own)

    def __exit__(self, *error: object) -> None:
        self._move(self._own, self._all)

    def _move(self, before: set[int], then: set[int]) -> None:
        with contextlib.suppress(OSError):
            if self._own and os.sched_getaffinity(0) == before:
                os.sched_setaffinity(0, then)
