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
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .base import Bytes, Message

MAGIC = b"\x89USF"
VERSION = 1
HEADER = struct.Struct("<4sHHIIqQQ")
TIMES = np.dtype("<f8")
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


def write_head(
    out: Bytes, worker: int, index: int, round: int, size: int, total: int, times: Sequence[tuple[float, float]]
) -> int:
    """Put the header of a message in front of its payload; gives the bytes it takes. total: checksum of the payload."""
    if len(times) > MOST_TASKS:
        times = times[-MOST_TASKS:]
    head, start = _head(len(times))
    known = MAGIC, VERSION, len(times), worker, index, round, size, total, *chain.from_iterable(times)
    # A worker that is asked again writes what may just be read: pack_into would clear it first.
    out.data[:start] = head.pack(*known)
    return start


@cache
def _head(tasks: int) -> tuple[struct.Struct, int]:
    """All that stands before the payload, and its bytes."""
    start = head_size(tasks)
    return struct.Struct(f"{HEADER.format}{2 * tasks}d{start - HEADER.size - 16 * tasks}x"), start


def read(frame: Bytes, time: float, checked: bool = True) -> Message:
    """The message of a frame that arrived at `time`. Raises `Invalid` for whatever is not a whole frame.

    checked: whether its checksum means something; memory that processes share does not damage what it holds.
    """
    if len(frame) < HEADER.size:
        raise Invalid(f"A frame has at least {HEADER.size} bytes, but got {len(frame)}. It was cut off.")
    magic, version, tasks, worker, index, round, size, total = HEADER.unpack_from(frame.data)
    if magic != MAGIC or version != VERSION:
        raise Invalid(
            f"A frame starts with {MAGIC!r} and version {VERSION}, but got {magic!r} and {version}. "
            "Use the same release on both sides."
        )
    start = _head(tasks)[1]
    if start + size > len(frame):
        raise Invalid(f"A frame for {size} bytes of payload has {start + size} bytes, but got {len(frame)}. It was cut off.")
    times: NDArray[np.float64] = np.ndarray((tasks, 2), TIMES, frame, HEADER.size)
    return Message(worker, index, round, time, frame[start : start + size], total if checked else None, times)
