"""An engine whose calls end: one that does not return is found out instead of waited for."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any

from ..engines.base import Engine, Processes, keeps, tells
from ..engines.wrapper import Wrapper
from ..errors import UnstraggleError
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Order
from ..scheme.code import Code

START = 600.0
"""Seconds for an engine to start its workers: its own limit comes first."""
FAREWELL = 30.0
"""Seconds for one that did not return to be closed."""


class BrokenEngine(UnstraggleError, AssertionError):
    """An engine does not keep a promise."""


class Watched(Wrapper):
    """Calls an engine in a thread. within: seconds for each call but `open`."""

    def __init__(self, engine: Engine, within: float) -> None:
        super().__init__(engine)
        self._within, self._stuck = within, ""
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="unstraggle watched engine", daemon=True).start()

    def open(self, code: Code) -> None:
        self._call("open", code, within=START)

    def start(self, order: Order) -> None:
        self._call("start", order)

    def next(self, until: float | None) -> list[Incoming]:
        return list(self._call("next", until))

    def clock(self) -> float:
        return float(self._call("clock"))

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        self._call("cancel", round, workers)

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None where there is none, or none that could be signalled."""
        if not isinstance(self.engine, Processes):
            return None
        return self._call("pid", worker)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close it, even where one of its calls has not returned: its workers should not stay."""
        if not self._stuck:
            self._call("close", within=START)
            return
        closing = threading.Thread(target=_close, args=(self.engine,), daemon=True)
        closing.start()
        closing.join(FAREWELL)

    def _call(self, name: str, *arguments: Any, within: float | None = None) -> Any:
        if self._stuck:
            raise BrokenEngine(self._stuck)
        limit = self._within if within is None else within
        self._calls.put((name, arguments))
        try:
            good, answer = self._answers.get(timeout=limit)
        except queue.Empty:
            given = ", ".join(map(str, arguments)) if name == "next" else ""
            self._stuck = f"{name}({given}) did not return within {limit:g} s."
            raise BrokenEngine(self._stuck) from None
        if not good:
            raise answer
        return answer

    def _serve(self) -> None:
        while True:
            name, arguments = self._calls.get()
            try:
                answer = True, getattr(self.engine, name)(*arguments)
            except BaseException as error:
                answer = False, error
            self._answers.put(answer)
            if name == "close":
                return


class WatchedTelling(Watched):
    """The same for an engine that carries words."""

    @property
    def keeps(self) -> bool:
        """Whether its workers keep messages until they are asked for."""
        return keeps(self.engine)

    def tell(self, word: Tell) -> None:
        self._call("tell", word)


def watched(engine: Engine, within: float) -> Watched:
    """An engine whose calls end, with all that it can do."""
    return WatchedTelling(engine, within) if tells(engine) else Watched(engine, within)


def _close(engine: Engine) -> None:
    with contextlib.suppress(Exception):
        engine.close()
