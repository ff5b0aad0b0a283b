"""Processes that compute, and do not interrupt others when they wake up."""

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
