"""What a run has left behind: processes, ports, shared memory. Its processes are known by a word in their environment."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

MARK = "UNSTRAGGLE_CHAOS"
SHARED = Path("/dev/shm")
NEW_MOUNTS = 0x20000
"""CLONE_NEWNS of Linux's unshare."""
PATIENCE = 60.0
"""Seconds that processes have to end after the run: Ray's own take their time on a busy machine."""


def processes(word: str) -> list[int]:
    """Those whose environment has the word, whoever their parent is by now; not those that have ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={word}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def wait_for_end(word: str) -> list[int]:
    """The processes that are still there after a while."""
    limit = time.monotonic() + PATIENCE
    while (left := processes(word)) and time.monotonic() < limit:
        time.sleep(0.2)
    return left


def end(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def with_shared_memory_of_its_own() -> bool:
    """Give this process and those that it starts a /dev/shm of their own, where that is allowed: else others' count, too."""
    if ctypes.CDLL(None).unshare(NEW_MOUNTS):
        return False
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "chaos", str(SHARED)], check=True)
    return True


def shared_memory() -> set[str]:
    """Names of shared memory that no process has mapped, now and a little later."""
    names = _unmapped()
    if names:
        time.sleep(1.0)
    return names & _unmapped()


def _unmapped() -> set[str]:
    names = {path.name for path in SHARED.glob("**/*") if path.is_file()}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            text = maps.read_text()
            names = {name for name in names if name not in text}
    return names


def held() -> dict[str, Any]:
    """What this process has: files, and ports at which it listens."""
    me = psutil.Process()
    ports = [one.laddr.port for one in me.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    return {"files": me.num_fds(), "ports": len(ports)}
