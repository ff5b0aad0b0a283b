"""Notice: people are told what they wait for, where starting takes long."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator

log = logging.getLogger("unstraggle")

WITHIN = 1.5
"""Seconds of silence."""


class Notice:
    """Says once what is going on if it is not over soon: to the log, or where nobody reads that, to standard error."""

    def __init__(self, within: float = WITHIN) -> None:
        self._until, self._said = time.monotonic() + within, False

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        timer = threading.Timer(max(0.0, self._until - time.monotonic()), self._say, [what])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # what is being said is said now, and not in the middle of what follows

    def _say(self, what: str) -> None:
        if self._said:
            return
        self._said = True
        if log.isEnabledFor(logging.INFO):
            log.info("Starting: %s ...", what)
        else:
            print(f"unstraggle: starting: {what} ...", file=sys.stderr, flush=True)
