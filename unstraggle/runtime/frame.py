"""Frames: how a message stands in a byte stream. Checked field by field; nothing that came from a worker is unpickled.

| byte | type | what |
|---|---|---|
| 0 | 4 bytes | 89 55 53 46, "\\x89USF" |
| 4 | uint16 | version, 4 |
| 6 | uint16 | tasks t whose times follow |
| 8 | uint32 | worker |
| 12 | uint32 | message |
| 16 | int64 | round |
| 24 | uint64 | bytes of the payload |
| 32 | uint64 | checksum of the payload |
| 40 | uint64 | ticket: the request that it answers, 0 for none |
| 48 | float64 each | start and end of each of the t tasks, in seconds since the start of the round |
| then | | zeros up to a multiple of 64 bytes, then the payload |

Everything is little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from .message import Bytes, Message

MAGIC = b"\x89USF"
VERSION = 4
START = MAGIC + VERSION.to_bytes(2, "little")
HEADER = struct.Struct("<6sHIIqQQQ")
HEAD = HEADER.size
ALIGN = 64
MOST_TASKS = 2**16 - 1
SHORT = 4096
"""Bytes of a payload up to which its checksum is a CRC: NumPy needs longer to begin than that takes."""
COLUMNS, ROWS = 512, 256
"""Of the table in which the checksum adds words: long enough for quick sums, and small enough for a processor's cache."""
SHIFT = np.uint64(29)
"""So that the highest bits of words count as well."""


def _weights() -> NDArray[np.uint64]:
    """Odd numbers without a pattern: those of splitmix64 (Steele, Lea and Flood 2014)."""
    a = np.arange(1, 8 * COLUMNS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    a = (a ^ (a >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    a = (a ^ (a >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return a | np.uint64(1)


WEIGHTS = _weights()


@door
def checksum(payload: Bytes) -> int:
    """Of the payload's 64-bit words and where each stands: a change, a rotation, or an exchange shows, at the speed of memory.

    Whoever makes a payload on purpose can make it agree: this is for accidents. Each word has a weight of its own; of
    long payloads, the sums of rows and columns take their place. Short ones have their CRC-32.

    >>> checksum(np.arange(8, dtype=np.uint8)) == checksum(np.roll(np.arange(8, dtype=np.uint8), 1))
    False
    """
    if len(payload) <= SHORT:
        return zlib.crc32(payload.data)
    words = payload[: len(payload) // 8 * 8].view(np.uint64)
    total = int.from_bytes(payload[words.nbytes :].tobytes(), "little") + len(payload)
    while len(words) > len(WEIGHTS):
        words = _sums(words)
    return (total + int(np.add.reduce((words ^ (words >> SHIFT)) * WEIGHTS[: len(words)]))) % 2**64


def _sums(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sums of the rows, and of the columns of every few rows, both while these lie in the cache; and what makes no row."""
    grid = words[: len(words) // COLUMNS * COLUMNS].reshape(-1, COLUMNS)
    columns = np.empty((-(-len(grid) // ROWS), COLUMNS), np.uint64)
    rows = np.empty(len(grid), np.uint64)
    for at, first in enumerate(range(0, len(grid), ROWS)):
        some = grid[first : first + ROWS]
        np.add.reduce(some, axis=0, out=columns[at])
        np.add.reduce(some, axis=1, out=rows[first : first + ROWS])
    return np.concatenate([columns.ravel(), rows, words[grid.size :]])


def head_size(tasks: int) -> int:
    """Bytes before the payload of a message that reports so many tasks."""
    return -(-(HEAD + 16 * min(tasks, MOST_TASKS)) // ALIGN) * ALIGN


def head(worker: int, index: int, round: int, size: int, total: int, times: Sequence[float], ticket: int = 0) -> bytes:
    """What stands before a payload of `size` bytes and checksum `total`. times: start, end, start, end, ... of the tasks."""
    tasks = len(times) // 2
    if tasks > MOST_TASKS:
        return head(worker, index, round, size, total, times[-2 * MOST_TASKS :], ticket)
    return _head(tasks).pack(START, tasks, worker, index, round, size, total, ticket, *times)


def put_head(
    place: memoryview, worker: int, index: int, round: int, size: int, total: int, times: Sequence[float], ticket: int
) -> None:
    """The same, where it is to stand."""
    tasks = len(times) // 2
    if tasks > MOST_TASKS:
        put_head(place, worker, index, round, size, total, times[-2 * MOST_TASKS :], ticket)
    else:
        _head(tasks).pack_into(place, 0, START, tasks, worker, index, round, size, total, ticket, *times)


@cache
def _head(tasks: int) -> struct.Struct:
    """All that stands before the payload."""
    return struct.Struct(HEADER.format + _times(tasks).format[1:])


@cache
def _times(tasks: int) -> struct.Struct:
    """What stands between the header and the payload."""
    return struct.Struct(f"<{2 * tasks}d{head_size(tasks) - HEAD - 16 * tasks}x")


def read(frame: Any, time: float) -> Message:
    """The message of a frame, an array of bytes, that arrived at `time`. Raises `Invalid` for whatever is not a whole frame."""
    if len(frame) < HEAD:
        raise Invalid(f"A frame has at least {HEAD} bytes, but got {len(frame)}. It was cut off.")
    begins, tasks, worker, index, round, size, total, ticket = HEADER.unpack_from(frame)
    between = _times(tasks)
    start = HEAD + between.size
    if begins != START or start + size > len(frame):
        raise _broken(begins, size, start + size, len(frame))
    return Message(worker, index, round, time, frame[start : start + size], total, between.unpack_from(frame, HEAD), ticket)


def read_rest(frame: Any, time: float) -> tuple[Message, int]:
    """The message of a frame without the beginning of its payload, which came before; and where in it what is here begins.

    >>> whole = np.arange(4, dtype=np.uint8)
    >>> found, at = read_rest(np.frombuffer(head(0, 5, 1, 4, 0, []) + bytes(whole[3:]), np.uint8), 0.5)
    >>> found.index, found.payload, at
    (5, array([3], dtype=uint8), 3)
    """
    if len(frame) < HEAD:
        raise Invalid(f"A frame has at least {HEAD} bytes, but got {len(frame)}. It was cut off.")
    begins, tasks, worker, index, round, size, total, ticket = HEADER.unpack_from(frame)
    start = HEAD + _times(tasks).size
    if begins != START or not start <= len(frame) <= start + size:
        raise _broken(begins, size, start + size, len(frame))
    times = _times(tasks).unpack_from(frame, HEAD)
    return Message(worker, index, round, time, frame[start:], total, times, ticket), size - (len(frame) - start)


def read_slot(place: Any, room: Bytes, time: float) -> Message:
    """The message of a slot in memory that processes share, which needs no checksum: it damages nothing.

    place, room: for its head and its payload. The latter is known before the tasks are done, so that they can write there.
    """
    begins, tasks, worker, index, round, size, _, ticket = HEADER.unpack_from(place)
    if begins != START or size > len(room):
        raise _broken(begins, size, len(place) + size, len(place) + len(room))
    payload = room if size == len(room) else room[:size]
    return Message(worker, index, round, time, payload, None, _times(tasks).unpack_from(place, HEAD), ticket)


def _broken(begins: bytes, size: int, needed: int, there: int) -> Invalid:
    """What is wrong with a frame."""
    if begins == START:
        return Invalid(f"A frame for {size} bytes of payload has {needed} bytes, but got {there}. It was cut off.")
    return Invalid(
        f"A frame starts with {MAGIC!r} and version {VERSION}, but got {begins[:4]!r} and "
        f"{int.from_bytes(begins[4:], 'little')}. Use the same release on both sides."
    )
