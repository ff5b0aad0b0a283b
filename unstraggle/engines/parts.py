"""Parts: what is known of a long message goes ahead of it while the rest is computed. No I/O, no clock, no threads.

A worker sends parts in order, from the beginning of a payload, and behind them the head of the message with what is left. The
master puts each part where the payload will stand, and throws away what does not fit. A message that lacks something then is
damaged: its worker is asked again, and sends it whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..runtime.message import Bytes, Message
from ..scheme.program import Program

PIECE = 1 << 20
"""Most bytes of a part: whatever else goes by the same connection waits no longer than one takes."""
LEAST = 1 << 20
"""Bytes of a message from which on parts of it go ahead."""
TIMES = 16
"""How often a worker says that more of a message is known, at most."""
NOTHING = np.empty(0, np.uint8)


class Part(NamedTuple):
    """Some bytes of a payload, from byte `at` on."""

    round: int
    message: int
    at: int
    size: int


class Flow:
    """A worker's end: what is known of its messages, and how much of that has gone.

    >>> flow = Flow(piece=4)
    >>> flow.begin(7, may=True)
    >>> flow.know(2, 6)
    >>> flow.sent(flow.next())
    >>> flow.next(), flow.end(2), flow.next()
    (Part(round=7, message=2, at=4, size=2), 4, None)
    """

    def __init__(self, piece: int = PIECE) -> None:
        self._piece, self._round = piece, -1
        self.stop()

    def begin(self, round: int, may: bool) -> None:
        """An order comes. may: whether parts may go. Who is asked again in a round sends whole messages: parts of them may be
        at the master already, damaged or of use."""
        self.stop()
        self._open = may and round != self._round
        self._round = round

    def stop(self) -> None:
        """Nothing goes any more."""
        self._open = False
        self._known: dict[int, int] = {}
        self._gone: dict[int, int] = {}
        self._going: Part | None = None

    def know(self, message: int, upto: int) -> None:
        """A payload is known up to a byte. Less than before: what has gone is of no use, and it begins anew."""
        if not self._open:
            return
        if upto < self._known.get(message, 0):
            self._gone[message], self._going = 0, None
        self._known[message] = upto

    def next(self) -> Part | None:
        """What may go now."""
        for message, upto in self._known.items():
            at = self._gone.get(message, 0)
            if at < upto:
                self._going = Part(self._round, message, at, min(self._piece, upto - at))
                return self._going
        return None

    def sent(self, part: Part | None) -> None:
        """A part has gone; it counts unless its message has begun anew meanwhile."""
        if part is not None and part is self._going:
            self._gone[part.message], self._going = part.at + part.size, None

    def end(self, message: int) -> int:
        """A message is whole. How many bytes of it have gone; no part of it goes any more."""
        if self._going is not None and self._going.message == message:
            self._going = None
        self._known.pop(message, None)
        return self._gone.pop(message, 0)


def rest_of(round: int, message: int, at: int, size: int, piece: int = PIECE) -> Iterator[Part]:
    """What is left of a payload of `size` bytes.

    >>> list(rest_of(0, 1, 2, 7, piece=4))
    [Part(round=0, message=1, at=2, size=4), Part(round=0, message=1, at=6, size=1)]
    """
    return (Part(round, message, begin, min(piece, size - begin)) for begin in range(at, size, piece))


def passes(program: Program, joins: bool) -> Counter[int]:
    """How many passes go into each message. Only of the last one parts go ahead: those of others are not what it will be."""
    steps = program.together if joins else program.steps
    return Counter(index for _, uses, _ in steps for index, _ in uses)


class Parts:
    """The master's end: what has come of messages that are not whole, in the round that runs.

    senders, sizes: the worker of each message, and the bytes of its payload.
    """

    def __init__(self, senders: Sequence[int], sizes: Sequence[int]) -> None:
        self._senders, self._sizes = list(senders), list(sizes)
        self._rooms: dict[int, Bytes] = {}
        self.begin(-1)

    def begin(self, round: int) -> None:
        """A round begins: payloads of the last one may be overwritten."""
        self._round = round
        self._upto: dict[int, int] = {}
        self._coming: dict[int, Part] = {}
        self._whole: set[int] = set()

    def owns(self, worker: int | None, message: int) -> bool:
        """Whether a worker has such a message."""
        return 0 <= message < len(self._senders) and self._senders[message] == worker

    def room(self, worker: int, part: Part) -> Bytes | None:
        """The place for a part, of which nothing behind its beginning counts from now on; None: it is of no use.

        One that is at the beginning begins anew; any other goes on where the one before it ended."""
        if not self._expects(worker, part.message, part.round) or part.at not in (0, self._upto.get(part.message, 0)):
            return None
        if part.size < 1 or part.at + part.size > self._sizes[part.message]:
            return None
        self._upto[part.message], self._coming[part.message] = part.at, part
        return self._room(part.message)[part.at : part.at + part.size]

    def came(self, part: Part) -> None:
        """All of a part has come. It counts where it was given a place."""
        if self._coming.get(part.message) == part:
            del self._coming[part.message]
            self._upto[part.message] = part.at + part.size

    def take(self, worker: int, part: Part, data: Bytes) -> None:
        """A part that came elsewhere."""
        room = self.room(worker, part)
        if room is not None:
            room[:] = data
            self.came(part)

    def finish(self, message: Message, at: int) -> Message:
        """A message with the rest of its payload, from byte `at` on: whole, or without a payload where something is missing,
        so that it counts as damaged."""
        index, rest, message.payload = message.index, message.payload, NOTHING
        if not self._expects(message.worker, index, message.round) or self._upto.get(index, 0) != at:
            return message
        if at + len(rest) != self._sizes[index]:
            return message
        room = self._room(index)
        room[at:] = rest
        self._whole.add(index)
        message.payload = room.view()
        message.payload.flags.writeable = False
        return message

    def _expects(self, worker: int, message: int, round: int) -> bool:
        return self.owns(worker, message) and round == self._round and message not in self._whole

    def _room(self, message: int) -> Bytes:
        if message not in self._rooms:
            self._rooms[message] = np.empty(self._sizes[message], np.uint8)
        return self._rooms[message]
