"""Words as bytes: what a master tells a worker while a round runs, and what the worker says of a task that it has done."""

from __future__ import annotations

import struct
from typing import Any

from .events import Announced, Finished
from .instructions import Tell

WORD = struct.Struct("<qiii?3xiii20x")
"""-1 - round, epoch, task, done, counts, ticket, count, message. As long as an order of the local engine, told from it by its
sign."""
DONE = struct.Struct("<qii")
"""round, task, epoch; or round, message, 0; or round, message, ticket."""


def packed(word: Tell) -> bytes:
    """The bytes of a word.

    >>> unpacked(packed(Tell(3, 7, 1, task=5)), worker=3)
    Tell(worker=3, round=7, epoch=1, task=5, done=-1, counts=False, ticket=0, count=0, message=-1)
    """
    about = word.epoch, word.task, word.done, word.counts, word.ticket, word.count, word.message
    return WORD.pack(-1 - word.round, *about)


def unpacked(data: Any, worker: int, at: int = 0) -> Tell:
    number, *rest = WORD.unpack_from(data, at)
    return Tell(worker, -1 - number, *rest)


def done(round: int, task: int, epoch: int) -> bytes:
    """What a worker says when it has done a task."""
    return DONE.pack(round, task, epoch)


def finished(data: Any, worker: int, time: float) -> Finished:
    """The event of what it said."""
    round, task, epoch = DONE.unpack(bytes(data))
    return Finished(worker, task, time, round, epoch)


def announced(data: Any, worker: int, time: float) -> Announced:
    """The event of a message that a worker has, said in the same way."""
    round, message, _ = DONE.unpack(bytes(data))
    return Announced(worker, message, time, round)


def placed(data: Any) -> tuple[int, int, int]:
    """Round, message and ticket of a message that stands where the master finds it, said in the same way."""
    round, message, ticket = DONE.unpack(bytes(data))
    return round, message, ticket
