"""LivePage: a small web server in a thread. It only reads: there is nothing to send to it."""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from typing import Any, Protocol, runtime_checkable

from ...errors import Invalid
from ...runtime.step import Step
from .handler import Server
from .state import State

LISTENERS = 32
"""Browsers that may watch at the same time."""
BEHIND = 1000
"""Steps that a browser may be behind before it is cut off; it then comes back and gets everything anew."""
GOODBYE = 1.0
"""Seconds in which browsers may still be told that the run has ended."""


@runtime_checkable
class Trained(Protocol):
    """The record of a step that knows its loss."""

    @property
    def loss(self) -> float | None: ...


class LivePage:
    """A page that shows a run as it goes. port 0: any that is free; host: this machine only, unless told otherwise.

    >>> with LivePage(title="a run") as page:
    ...     page.url.startswith("http://127.0.0.1:"), page.steps
    (True, 0)
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", title: str = "unstraggle") -> None:
        if not isinstance(port, int) or not 0 <= port <= 65535:
            raise Invalid(f"A live page needs a port from 0 (any) to 65535, but got {port!r}.")
        self.state = State(title)
        self._listeners: set[queue.SimpleQueue[bytes | None]] = set()
        self._guard = threading.Lock()
        self._closed = False
        try:
            self._server = Server((host, port), self)
        except OSError as error:
            raise Invalid(f"The live page cannot listen on {host}:{port}: {error}. Use port=0 for any that is free.") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True, name="unstraggle-live")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    @property
    def steps(self) -> int:
        """Steps shown so far."""
        return self.state.totals["steps"]

    def add(self, step: Step, *, loss: float | None = None) -> None:
        """Show a step: the `Estimate` of a round, or the `Info` of a training step, which knows its loss."""
        if not isinstance(step, Step):
            raise Invalid(f"The live page takes an Estimate or an Info of a step, but got {type(step).__name__}.")
        known = step.loss if loss is None and isinstance(step, Trained) else loss
        shown = float(known) if known is not None and math.isfinite(known) else None
        with self._guard:  # so that a browser that comes now gets this step once
            self._tell(event("step", self.state.add(step, shown)))

    def close(self) -> None:
        """Tell browsers that the run has ended, and stop serving. May be called twice."""
        if self._closed:
            return
        with self._guard:
            self._closed = True
            self._tell(event("end", {}))
            self._tell(None)
        until = time.monotonic() + GOODBYE
        while self._listeners and time.monotonic() < until:
            time.sleep(0.01)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> LivePage:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _tell(self, message: bytes | None) -> None:
        for listener in list(self._listeners):
            slow = listener.qsize() > BEHIND
            if slow:
                self._listeners.discard(listener)
            listener.put(None if slow else message)

    def listen(self) -> queue.SimpleQueue[bytes | None] | None:
        """A new listener, which first gets everything; None where there are too many."""
        with self._guard:
            if len(self._listeners) >= LISTENERS or self._closed:
                return None
            listener: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
            listener.put(event("snapshot", self.state.snapshot()))
            self._listeners.add(listener)
            return listener

    def leave(self, listener: queue.SimpleQueue[bytes | None]) -> None:
        """The browser is gone."""
        with self._guard:
            self._listeners.discard(listener)


def event(kind: str, data: dict[str, Any]) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
