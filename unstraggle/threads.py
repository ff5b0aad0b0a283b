"""Threads of this process, for kernels that run without Python's lock."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay for the next call."""
    return _pool(os.getpid(), threads)


@lru_cache(maxsize=8)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Of this process: those of a parent do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="unstraggle")
