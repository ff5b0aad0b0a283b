"""Commons: memory that processes of one host share, whoever started them. It has no name, so that nothing is left behind.

Who looks for it is told a place: a process, the number of a file there, as Linux shows both in /proc, and a random mark that
stands where the memory begins. Who finds the mark shares the host; who does not is on another one, or may not look.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import mmap
import os
import platform
import struct
from pathlib import Path

import numpy as np

from ..runtime.message import Bytes

PLACE = struct.Struct("<qq16sQQ")
"""process, file, mark, bytes of the memory, where in it."""
OWN = bytes(PLACE.size)
"""The place of what came to a worker itself."""
HEAD = 64
"""Bytes before the memory proper; the mark stands there."""
MARK = 16
LINK = "/memfd:unstraggle"
"""What Linux shows in place of the name of such a file."""
LONG = 1 << 16
"""Bytes from which on it is worth it to share memory: below, a connection is as fast."""
FUTURE_WRITE = 0x10
"""F_SEAL_FUTURE_WRITE of Linux: who opens the file from now on can only read it."""


@functools.cache
def machine() -> str:
    """Processes with the same value share a clock, process numbers and the network: one host, or one container of it."""
    with contextlib.suppress(OSError):  # other systems than Linux have no such files
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")]
        return " ".join([Path("/proc/sys/kernel/random/boot_id").read_text().strip(), *spaces])
    return platform.node()


class Commons:
    """Memory of this process that others of its host may find; untouched pages cost nothing. It keeps its size.

    read_only: others only read it. memory: all of it but the mark. Where the system has no such files, nobody finds it.
    """

    def __init__(self, size: int, read_only: bool = False) -> None:
        self._size, self._mark = HEAD + size, os.urandom(MARK)
        self._fd = _sealable(self._size) if hasattr(os, "memfd_create") else -1
        whole = mmap.mmap(self._fd, self._size)
        whole[:MARK] = self._mark
        self.memory: Bytes = np.frombuffer(whole, np.uint8)[HEAD:]
        if self._fd >= 0:
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            if read_only:
                with contextlib.suppress(OSError):  # of Linux 5.1 and later
                    fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, FUTURE_WRITE)

    def place(self, at: int = 0) -> bytes:
        """Where others find what stands at `at` of the memory."""
        return PLACE.pack(os.getpid(), self._fd, self._mark, self._size, at)

    def hide(self) -> None:
        """Nobody finds it any more; whoever has found it keeps it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def found(place: bytes, size: int, read_only: bool = False) -> Bytes | None:
    """The memory of a place, of `size` bytes; None where it is not to be found from here.

    A place may have come from another worker: nothing is opened but memory of this kind, and none that can shrink.
    """
    process, file, mark, whole, _ = PLACE.unpack(place)
    if process <= 1 or file < 0 or whole != HEAD + size:
        return None
    try:
        path = f"/proc/{process}/fd/{file}"
        if not os.readlink(path).startswith(LINK):
            return None
        fd = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if os.fstat(fd).st_size != whole or not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return None
        access = mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE
        memory = np.frombuffer(mmap.mmap(fd, whole, prot=access), np.uint8)
        return memory[HEAD:] if memory[:MARK].tobytes() == mark else None
    except OSError:
        return None
    finally:
        os.close(fd)


def offset_of(place: bytes) -> int:
    return int(PLACE.unpack(place)[4])


def _sealable(size: int) -> int:
    fd = os.memfd_create("unstraggle", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    return fd
