"""A core that others use too: processes that compute on one core and move to the next one from time to time."""

import contextlib
import multiprocessing as mp
import os
import time
from collections.abc import Iterator


@contextlib.contextmanager
def loaded(processes: int, cores: list[int], seconds: float) -> Iterator[None]:
    """So many processes compute on the first core for so long, then on the second, and so on, until the block is left."""
    context = mp.get_context("spawn")
    burning = [context.Process(target=burn, args=(cores, seconds, os.getpid()), daemon=True) for _ in range(processes)]
    try:
        for one in burning:
            one.start()
        yield
    finally:
        for one in burning:
            one.kill()
            one.join()


def burn(cores: list[int], seconds: float, parent: int) -> None:
    """Compute where the clock says, and end with who asked for it."""
    while os.getppid() == parent:
        os.sched_setaffinity(0, {cores[int(time.monotonic() / seconds) % len(cores)]})
        until, value = time.monotonic() + 0.1, 1.0
        while time.monotonic() < until:
            for _ in range(10_000):
                value = 1.0 + 1.0 / value


def pin(pid: int, core: int) -> None:
    """Keep a process and its threads on one core."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), {core})
