"""Memory that the processes of the local engine share. It has no name in the file system, so that nothing is left behind."""

from __future__ import annotations

import mmap
import os
from itertools import pairwise
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPORT = 4096
"""Bytes for the traceback of a worker."""
PROGRAM = 1 << 18
"""Bytes for the program of a worker in a round, where it changes; they take no memory where it does not."""

SIDE = 1 << 40
"""Where the letter of odd rounds begins. What is between takes no memory."""


class Fd:
    """A file descriptor that goes along when a process is spawned."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.fd),)


def _received(duplicate: Any) -> Fd:
    return Fd(duplicate.detach())


class Area:
    """Anonymous shared memory, known by a file descriptor that a spawned process inherits. Untouched pages cost nothing."""

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size = max(size, 1)
        self.fd = _anonymous_file(self.size) if fd is None else fd

    def map(self) -> NDArray[np.uint8]:
        """The memory as an array; it stays as long as the array does."""
        return np.frombuffer(mmap.mmap(self.fd, self.size), np.uint8)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __reduce__(self) -> Any:
        return _attached, (self.size, Fd(self.fd))


def _attached(size: int, fd: Fd) -> Area:
    return Area(size, fd.fd)


def _anonymous_file(size: int) -> int:
    fd = os.memfd_create("unstraggle", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


class Letter:
    """Bytes of any length from the master to all workers, by parity of the round: a nameless file that grows as it must."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("unstraggle", os.MFD_CLOEXEC) if fd is None else fd

    def write(self, round: int, data: bytes) -> None:
        rest, at = memoryview(data), round % 2 * SIDE
        while rest:
            count = os.pwrite(self.fd, rest, at)
            rest, at = rest[count:], at + count

    def read(self, round: int, size: int) -> bytes:
        parts, at = [], round % 2 * SIDE
        while size:
            parts.append(os.pread(self.fd, size, at))
            size, at = size - len(parts[-1]), at + len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        os.close(self.fd)

    def __reduce__(self) -> Any:
        return _opened, (Fd(self.fd),)


def _opened(fd: Fd) -> Letter:
    return Letter(fd.fd)


class Board:
    """What master and workers tell each other by storing it: a worker looks between two tasks.

    round: (1,) the newest. cancelled, beats: (n,) newest cancelled round and last sign of life of each worker.
    delays: (2, messages), programs: (2, n, bytes), both by parity of the round. whole: (messages,) the round whose payload
    stands whole in a message's slot.
    """

    def __init__(self, memory: NDArray[np.uint8], n: int, messages: int) -> None:
        cuts = np.cumsum([0, 8, 8 * n, 8 * n, 16 * messages, 8 * messages, REPORT * n, 2 * PROGRAM * n])
        pieces = [memory[a:b] for a, b in pairwise(cuts.tolist())]
        self.round, self.cancelled = pieces[0].view(np.int64), pieces[1].view(np.int64)
        self.beats, self.delays = pieces[2].view(np.float64), pieces[3].view(np.float64).reshape(2, messages)
        self.whole, self._reports = pieces[4].view(np.int64), pieces[5].reshape(n, REPORT)
        self.programs = pieces[6].reshape(2, n, PROGRAM)

    @staticmethod
    def size(n: int, messages: int) -> int:
        return 8 + 16 * n + 24 * messages + REPORT * n + 2 * PROGRAM * n

    def write_report(self, worker: int, text: str) -> None:
        """The end of a traceback, which says most."""
        data = text.encode(errors="replace")[-(REPORT - 1) :]
        self._reports[worker, : len(data)] = np.frombuffer(data, np.uint8)
        self._reports[worker, len(data) :] = 0

    def read_report(self, worker: int) -> str:
        return bytes(self._reports[worker]).rstrip(b"\0").decode(errors="replace")
