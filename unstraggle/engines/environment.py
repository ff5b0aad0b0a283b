"""Environment variables of worker processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def thread_limits(threads: int) -> dict[str, str]:
    """How many threads numerical libraries may use."""
    return dict.fromkeys(THREADS, str(threads))


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for processes that start meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
