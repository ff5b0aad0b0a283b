"""Interrupts: Ctrl+C between two events of a round, and never in the middle of what an engine does about one."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
handler_of, handle = _signal.getsignal, _signal.signal
"""Those of `signal` look for every handler in an enumeration, which takes a twentieth of a millisecond of each step."""
LOOK = 0.25
"""Seconds between two looks for one: nobody who presses Ctrl+C waits longer, as engines return in between."""


class Interrupts:
    """While it lasts, interrupts wait until `heed`, or its end; a second one does not wait. In the main thread only, where they
    come; signals whose handler is not Python's are left alone.

    Half-buried workers, or messages taken from a wire and not yet kept, would be lost for good.
    """

    def __enter__(self) -> Interrupts:
        self._came: int | None = None
        self._handlers: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            found = {number: handler_of(number) for number in SIGNALS}
            self._handlers = {number: handler for number, handler in found.items() if callable(handler)}
        for number in self._handlers:
            handle(number, self._keep)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            handle(number, handler)
        self.heed()

    def heed(self) -> None:
        """Do now what an interrupt that has come would have done."""
        number, self._came = self._came, None
        if number is not None:
            self._handlers[number](number, None)

    def _keep(self, number: int, frame: Any) -> None:
        if self._came is not None:
            self._handlers[number](number, frame)
        self._came = number
