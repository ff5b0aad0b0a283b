"""Recorder: every round of a master to a trace."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import trace
from ..checks import require_writable
from ..scheme.code import Code
from .estimate import Estimate
from .message import Message

log = logging.getLogger("unstraggle")

FLUSH, SECONDS = 50, 5.0
"""Rounds that are kept before they are written, and for how long: a run that is killed loses no more."""


class Recorder:
    """Collects the times of tasks and messages, and adds them to a file from time to time. Without a path it does nothing."""

    def __init__(self, code: Code, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else require_writable("trace", path)
        self._code = code
        self._rounds: list[tuple[int, NDArray[np.float64]]] = []
        self._switches: list[dict[str, Any]] = []
        self._next: list[Mapping[str, Any]] = []
        self._noted = False
        self._written = time.monotonic()
        queues = code.tasks.queues
        self._work = np.where(queues >= 0, code.tasks.work[queues], 1.0)

    def add(self, estimate: Estimate, messages: list[Message], code: Code) -> None:
        """Take the messages that were used in a round; tasks of which nothing was heard count as never finished.

        Workers on other machines have clocks of their own: a task that seems to end after its message came ended just then.
        """
        if self._path is None:
            return
        table = np.full((4, self._code.n, self._work.shape[1]), np.inf)
        table[3] = 0.0
        for message in messages:
            last = int(code.messages.after[message.index])
            started, ended = self._task_times(message, table[2, message.worker, :last])
            if not len(ended):
                continue
            mine = message.worker, slice(last - len(ended), last)
            table[0][mine], table[1][mine], table[2][mine] = started, ended, np.maximum(ended, message.time)
            table[3][message.worker, last - 1] += len(message.payload)
        self._rounds.append((estimate.round, table))
        self._switches += [{**switch, "round": estimate.round} for switch in self._next]
        self._next = []
        if len(self._rounds) >= FLUSH or time.monotonic() - self._written > SECONDS:
            self.flush()

    def note(self, switch: Mapping[str, Any]) -> None:
        """A change of code, or what it has gained, stands with the next round."""
        self._next.append(switch)
        self._noted = True

    def _task_times(self, message: Message, arrived: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """When the tasks since the worker's last message began and ended.

        An engine on a sampled clock knows arrivals only: the time since the last one is shared in proportion to work.
        """
        if message.times is not None:
            return tuple(np.maximum(np.reshape(message.times, (-1, 2)), 0.0).T)
        known = int(np.isfinite(arrived).sum())
        began = float(arrived[known - 1]) if known else 0.0
        work = self._work[message.worker, known : len(arrived)]
        ended = began + (message.time - began) * np.minimum(work.cumsum() / max(work.sum(), 1e-300), 1.0)
        return np.concatenate([[began], ended])[: len(ended)], np.minimum(ended, message.time)

    def flush(self) -> None:
        """Write what is kept."""
        if self._path is None or not self._rounds:
            return
        tables = np.stack([table for _, table in self._rounds], axis=1)
        start = np.where(np.isfinite(tables[0]), tables[0], _previous_end(tables[1]))
        numbers = [number for number, _ in self._rounds]
        meta: dict[str, Any] = {"code": self._code.name} | ({"switches": self._switches} if self._noted else {})
        try:
            trace.append(self._path, trace.Trace(start, tables[1], tables[2], tables[3], self._work, numbers, meta))
        except OSError as error:
            log.warning("The trace %s cannot be written any more, and the run goes on without it: %s", self._path, error)
            self._path = None
        self._rounds, self._switches, self._written = [], [], time.monotonic()

    def close(self) -> None:
        self.flush()


def _previous_end(end: NDArray[np.float64]) -> NDArray[np.float64]:
    """When a task that never ended may have begun: at the end of the one before it."""
    before = np.concatenate([np.zeros((*end.shape[:2], 1)), end[:, :, :-1]], axis=2)
    return np.where(np.isfinite(before), before, np.inf)
