"""Records on the connections between a master and its workers: checked before they are believed, and never unpickled.

| byte | type | what |
|---|---|---|
| 0 | uint32 | kind |
| 4 | uint32 | number: a worker, a message, or how many delays |
| 8 | int64 | round; in a greeting, the process |
| 16 | float64 | when it was sent, on the sender's monotonic clock |
| 24 | uint64 | bytes of the body that follows |
| 32 | uint64 | where in its payload a part of a message begins; else 0 |

Everything is little-endian.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..runtime.message import Bytes

HEAD = struct.Struct("<IIqdQQ")
HELLO, READY, ALIVE, SENT, HAVE, FAILED, FINISHED, ANNOUNCED, PLACED, LACKS = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
PART, REST = 18, 19
"""From a worker: here I am (token); I have my share (machine); a sign of life; a message (frame); parameters are here for my
host (place); an error (traceback); a task is done (which); a message is here and can be asked for (which); a message stands in
shared memory (which); there are no parameters where I was told; some of a message (bytes of its payload); its end (a frame
without what came before)."""
PING, ORDER, CANCEL, TELL, OFFER, PARAMS, ORDER_AT = 11, 12, 13, 14, 15, 16, 17
"""From the master: show a sign of life; compute (step, origin, delays, parameters, context, program); a round is over; a word
(see `runtime.words`); memory for messages (see `depot`); parameters for your host; compute, with their place instead."""
MACHINE = 256
"""Most bytes of the name of a machine."""

STEP = struct.Struct("<qdQdQQ")
"""How an order begins: its step, when the round began on the master's clock, the bytes of its context, its hold, and pull."""
CONTEXT = 1 << 32
"""Most bytes of a context."""

TOKEN = 32
REPORT = 1 << 16
"""Most bytes of a traceback."""
SCRATCH = 1 << 16
READS = 64
"""Most reads of a connection in one go, so that a fast sender does not starve the others."""

Part = bytes | memoryview


class Head(NamedTuple):
    """What stands before a body."""

    kind: int
    number: int
    round: int
    moment: float
    size: int
    at: int = 0


def head(kind: int, number: int = 0, round: int = -1, size: int = 0, at: int = 0) -> bytes:
    """The start of a record that is sent now."""
    return HEAD.pack(kind, number, round, time.monotonic(), size, at)


def tune(sock: socket.socket) -> None:
    """Send at once, and notice within a minute or two that the other machine is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def send_all(sock: socket.socket, *parts: Part) -> None:
    """Send a record, and wait until it is on its way."""
    rest = [memoryview(part).cast("B") for part in parts if len(part)]
    while rest:
        advance(rest, sock.sendmsg(rest))


def advance(parts: list[memoryview], sent: int) -> None:
    """Take so many bytes off the front."""
    while parts and sent >= len(parts[0]):
        sent -= len(parts.pop(0))
    if sent:
        parts[0] = parts[0][sent:]


def read_exactly(sock: socket.socket, target: memoryview) -> None:
    """Fill the target; EOFError when the other side has ended."""
    while len(target):
        count = sock.recv_into(target)
        if not count:
            raise EOFError
        target = target[count:]


def read_record(sock: socket.socket, room: Callable[[Head], Bytes]) -> tuple[Head, Bytes]:
    """Wait for a record. room(head) gives the place for its body, or raises an error to refuse it."""
    data = bytearray(HEAD.size)
    read_exactly(sock, memoryview(data))
    what = Head(*HEAD.unpack(data))
    body = room(what)
    read_exactly(sock, body.data)
    return what, body


class Link:
    """The master's end of a connection: it takes what has come and gives what the socket accepts, and never waits."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        tune(sock)
        self.sock, self.since = sock, time.monotonic()
        self.worker: int | None = None
        self._scratch = memoryview(bytearray(SCRATCH))
        self._rest = b""
        self._what: Head | None = None
        self._filled = 0
        self._queue: deque[list[memoryview]] = deque()
        self._begun = False

    @property
    def open(self) -> bool:
        return self.sock.fileno() >= 0

    def receive(self, room: Callable[[Head], Bytes], take: Callable[[Head, Bytes], None]) -> bool:
        """Take the records that are whole; gives whether anything came, raises EOFError when the other side has ended."""
        heard = False
        for _ in range(READS):
            target = self._scratch if self._what is None else self._body.data[self._filled :]
            try:
                count = self.sock.recv_into(target)
            except BlockingIOError:
                break
            if not count:
                raise EOFError
            heard = True
            if self._what is None:
                self._split(self._rest + bytes(target[:count]), room, take)
            elif self._grown(count):
                take(*self._completed())
            if count < len(target):
                break
        return heard

    def send(self, *parts: Part, newest: bool = False) -> bool:
        """Queue a record, with `newest` instead of all that wait; gives whether the socket took everything."""
        if newest:
            kept = [self._queue[0]] if self._begun else []
            self._queue = deque(kept)
        self._queue.append([memoryview(part).cast("B") for part in parts if len(part)])
        return self.flush()

    def flush(self) -> bool:
        """Give the socket what it takes; gives whether that was everything. A broken connection shows when it is read."""
        while self._queue:
            try:
                sent = self.sock.sendmsg(self._queue[0])
            except BlockingIOError:
                return False
            except OSError:
                self._queue.clear()
                break
            advance(self._queue[0], sent)
            self._begun = bool(self._queue[0])
            if not self._begun:
                self._queue.popleft()
        return True

    def _split(self, data: bytes, room: Callable[[Head], Bytes], take: Callable[[Head, Bytes], None]) -> None:
        """Cut what came into records; the last may be incomplete."""
        at = 0
        while len(data) - at >= HEAD.size:
            self._what = Head(*HEAD.unpack_from(data, at))
            self._body, self._filled = room(self._what), 0
            at += HEAD.size
            part = min(len(self._body), len(data) - at)
            self._body[:part] = np.frombuffer(data, np.uint8, part, at)
            at += part
            if not self._grown(part):
                self._rest = b""
                return
            take(*self._completed())
        self._rest = data[at:]

    def _grown(self, count: int) -> bool:
        self._filled += count
        return self._filled == len(self._body)

    def _completed(self) -> tuple[Head, Bytes]:
        what, self._what = self._what, None
        assert what is not None
        return what, self._body
