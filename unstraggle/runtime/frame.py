"""Frames: how a message stands in a byte stream. Checked field by field; nothing that came from a worker is unpickled.

| byte | type | what |
|---|---|---|
| 0 | 4 bytes | 89 55 53 46, "\\x89USF" |
| 4 | uint16 | version, 1 |
| 6 | uint16 | tasks t whose times follow |
| 8 | uint32 | worker |
| 12 | uint32 | message |
| 16 | int64 | round |
| 24 | uint64 | bytes of the payload |
| 32 | uint64 | checksum of the payload |
| 40 | float64 each | start and end of each of the t tasks, in seconds since the start of the round |
| then | | zeros up to a multiple of 64 bytes, then the payload |

Everything is little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..errors import Invalid
from .message import Bytes, Message

MAGIC = b"\x89USF"
VERSION = 1
HEADER = struct.Struct("<4sHHIIqQQ")
ALIGN = 64
MOST_TASKS = 2**16 - 1


def checksum(payload: Bytes) -> int:
    """Sum of the payload's 64-bit words, modulo 2^64: any one changed word shows, at the speed of memory.

    >>> checksum(np.arange(8, dtype=np.uint8)) == checksum(np.arange(1, 9, dtype=np.uint8))
    False
    """
    whole = len(payload) // 8 * 8
    rest = int.from_bytes(payload[whole:].tobytes(), "little") + len(payload)
    return (int(np.add.reduce(payload[:whole].view(np.uint64))) + rest) % 2**64


def head_size(tasks: int) -> int:
    """Bytes before the payload of a message that reports so many tasks."""
    return -(-(HEADER.size + 16 * min(tasks, MOST_TASKS)) // ALIGN) * ALIGN


def head(worker: int, index: int, round: int, size: int, total: int, times: Sequence[float]) -> bytes:
    """What stands before a payload of `size` bytes and checksum `total`. times: start, end, start, end, ... of the tasks."""
    tasks = len(times) // 2
    if tasks > MOST_TASKS:
        return head(worker, index, round, size, total, times[-2 * MOST_TASKS :])
    return HEADER.pack(MAGIC, VERSION, tasks, worker, index, round, size, total) + _times(tasks).pack(*times)


@cache
def _times(tasks: int) -> struct.Struct:
    """What stands between the header and the payload."""
    return struct.Struct(f"<{2 * tasks}d{head_size(tasks) - HEADER.size - 16 * tasks}x")


def read(frame: Any, time: float, checked: bool = True) -> Message:
    """The message of a frame, an array of bytes, that arrived at `time`. Raises `Invalid` for whatever is not a whole frame.

    checked: whether its checksum means something; memory that processes share does not damage what it holds.
    """
    if len(frame) < HEADER.size:
        raise Invalid(f"A frame has at least {HEADER.size} bytes, but got {len(frame)}. It was cut off.")
    magic, version, tasks, worker, index, round, size, total = HEADER.unpack_from(frame)
    if magic != MAGIC or version != VERSION:
        raise Invalid(
            f"A frame starts with {MAGIC!r} and version {VERSION}, but got {magic!r} and {version}. "
            "Use the same release on both sides."
        )
    between = _times(tasks)
    start = HEADER.size + between.size
    if start + size > len(frame):
        raise Invalid(f"A frame for {size} bytes of payload has {start + size} bytes, but got {len(frame)}. It was cut off.")
    times = between.unpack_from(frame, HEADER.size)
    return Message(worker, index, round, time, frame[start : start + size], total if checked else None, times)
