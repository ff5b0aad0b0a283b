"""Orders of the MPI engine as bytes, and the difference of two ranks' clocks."""

from __future__ import annotations

import math
import struct
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime.message import Bytes, Order
from ..runtime.serve import Job, Share
from ..scheme.program import packed, unpacked
from .commons import PLACE, machine
from .parts import Part

HEAD = struct.Struct("<qqdqqqdqq")
"""round, step, when it began on the master's clock, delays, bytes of the parameters and of the context, hold, pull; then delays
(float64), parameters and context, then, where the code changes, the programs of all workers, a line each."""
NUMBER = struct.Struct("<q")
PART_HEAD = struct.Struct("<qqq")
"""Of what stands before some bytes of a message: round, message, where in its payload they begin."""
PING_TIMES = struct.Struct("<dd")
"""When the worker asked, on its clock; when the master answered, on its own."""

PINGS = 5
"""How often a worker on another machine asks for the time before it starts; the quickest answer counts."""
ASK_AGAIN = 60.0
"""Seconds after which it asks again: clocks drift by some seconds a day."""


def pack_order(order: Order, origin: float, place: bytes = b"") -> Bytes:
    """An order for all workers: a copy, so that the caller may change its parameters while they are on their way.

    place: where the parameters stand, in place of these."""
    delays = np.empty(0) if order.delays is None else np.ascontiguousarray(order.delays, "<f8")
    params = np.frombuffer(place, np.uint8) if place else np.ascontiguousarray(order.params).view(np.uint8)
    programs = b"" if order.code is None else b"\n".join(packed(order.code.program(w)) for w in range(order.code.n))
    hold = order.hold or (0.0, 0)
    head = HEAD.pack(order.round, order.step, origin, len(delays), params.nbytes, len(order.context), *hold, order.pull)
    pieces = head, delays.view(np.uint8), params, order.context, programs
    return np.concatenate([np.frombuffer(piece, np.uint8) for piece in pieces if len(piece)])


def read_order(data: Bytes, share: Share, offset: float, params: NDArray[Any] | None = None) -> Job:
    """The job in an order. offset: this worker's clock minus the master's. params: those at the place that it says."""
    round, step, origin, count, size, more, seconds, after, pull = HEAD.unpack_from(data.data)
    start = HEAD.size + 8 * count
    mine = [message.index for message in share.program.messages]
    delays = data[HEAD.size : start].view("<f8")[mine] if count else None
    if params is None:
        params = data[start : start + size].view(share.problem.dtype)
        params.flags.writeable = False
    context = data[start + size : start + size + more].tobytes()
    programs = data[start + size + more :].tobytes()
    program = unpacked(programs.split(b"\n")[share.worker]) if programs else None
    return Job(round, step, params, origin + offset, delays, program, context, (seconds, after), bool(pull))


def place_of(data: Bytes) -> bytes:
    """Where the parameters of an order stand."""
    start = HEAD.size + 8 * HEAD.unpack_from(data.data)[3]
    return data[start : start + PLACE.size].tobytes()


def round_of(data: Bytes) -> int:
    """The round of an order or a cancellation."""
    return int(NUMBER.unpack_from(data.data)[0])


def part_of(data: Bytes) -> tuple[Part, Bytes]:
    """Which part of a message came, and its bytes. One of no round, which nobody expects, where it was cut off."""
    if len(data) < PART_HEAD.size:
        return Part(-1, -1, 0, 0), data
    round, message, at = PART_HEAD.unpack_from(data.data)
    return Part(round, message, at, len(data) - PART_HEAD.size), data[PART_HEAD.size :]


class Clock:
    """A worker's clock minus the master's: zero on one machine, else by asking; accurate to half of the quickest answer."""

    def __init__(self, master: str) -> None:
        self.offset = 0.0
        self.due = math.inf if machine() == master else 0.0
        self._best = math.inf
        self._answers = 0

    @property
    def known(self) -> bool:
        return self.due == math.inf or self._answers >= PINGS

    def ask(self) -> bytes:
        """What to send to the master."""
        now = time.monotonic()
        self.due = now + 1.0
        return PING_TIMES.pack(now, 0.0)

    def take(self, answer: Any) -> None:
        """Use an answer, unless it took long: then the two ways may have been very different."""
        asked, master = PING_TIMES.unpack(bytes(answer))
        now = time.monotonic()
        self._answers += 1
        if now - asked <= 1.5 * self._best:
            self.offset = (asked + now) / 2 - master
            self.due = now + ASK_AGAIN
        self._best = min(self._best, now - asked)
        if not self.known:
            self.due = 0.0
