"""Kept: messages that a worker announces and keeps until it is asked for them (`transfer="pull"`)."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from ..errors import Invalid
from ..scheme.program import Outgoing
from .instructions import Tell
from .serve import Times


class KeptMessage(NamedTuple):
    """What a message needs to be sent later: its payload, in memory of its own, its checksum, and the times of its tasks."""

    message: int
    payload: Any
    checksum: int
    times: tuple[float, ...]


class Kept:
    """The messages of the newest round, from the thread that computes to the one that hears what is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._round = -1
        self._messages: dict[int, KeptMessage] = {}

    def put(self, round: int, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        """Keep a message; those of earlier rounds are dropped."""
        copy = payload if isinstance(payload, bytes) else np.array(payload)
        with self._lock:
            if round != self._round:
                self._round, self._messages = round, {}
            self._messages[message.index] = KeptMessage(message.index, copy, checksum, tuple(times))

    def asked(self, word: Tell, current: int) -> KeptMessage | None:
        """What a word asks for. current: the round whose order this worker has; None where it is another one.

        A worker that has the order, but not what it is asked for, cannot have announced it: that is an error.
        """
        if word.round != current:
            return None
        with self._lock:
            found = self._messages.get(word.message) if self._round == word.round else None
        if found is None:
            raise Invalid(f"Worker {word.worker} was asked for message {word.message} of round {word.round}, but has none.")
        return found
