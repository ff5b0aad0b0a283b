"""What is left of a gradient's way without a library: three bare processes, shared memory, pipes, and the two passes it needs.

The master writes parameters where both workers read them, wakes them with a byte each, sleeps until both have answered, and
adds up what they wrote; both passes with a second thread of its own. A worker reads the parameters for as long as it is told to
compute, and writes a gradient. What that takes beyond the computing of the worker that came last is a floor for `beyond` in
`way`: processes must be woken, and memory that another core has read or written is slower than memory of one's own.

    python -m benchmarks.way_floor 994570 0.003     prints the median in seconds
"""

import mmap
import os
import select
import statistics
import struct
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstraggle.runtime.sums import copies, settled_sum

from .common import REPOSITORY

WARM, STEPS, WORKERS = 5, 40, 2
NOTE = struct.Struct("<d")


def floor(size: int, computing: float) -> float:
    """Seconds beyond computing, of a process of its own, in which nothing else has started threads."""
    command = [sys.executable, "-m", "benchmarks.way_floor", str(size), repr(computing)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout)


def shared(rows: int, size: int) -> NDArray[np.float32]:
    fd = os.memfd_create("floor")
    os.ftruncate(fd, 4 * rows * size)
    return np.frombuffer(mmap.mmap(fd, 4 * rows * size), np.float32).reshape(rows, size)


def work(orders: int, notes: int, params: NDArray[Any], slot: NDArray[Any], computing: float) -> None:
    """Read, compute, write, answer; until there is nothing to read."""
    gradient = np.ones(len(slot), np.float32)
    while order := os.read(orders, 1):
        began = time.perf_counter()
        while time.perf_counter() < began + computing:
            params[order[0]].sum()
        np.copyto(slot, gradient)
        os.write(notes, NOTE.pack(time.perf_counter() - began))
    os._exit(0)


def born(params: NDArray[Any], slot: NDArray[Any], computing: float) -> tuple[int, int]:
    """A worker's pipes: for orders, and for notes."""
    (orders, ask), (answer, notes) = os.pipe(), os.pipe()
    if not os.fork():
        os.close(ask)
        work(orders, notes, params, slot, computing)
    os.close(orders)
    os.close(notes)
    return ask, answer


def answered(watch: Any) -> float:
    """Wait for all; the computing of the last."""
    last, missing = 0.0, WORKERS
    while missing:
        for fd, _ in watch.poll():
            last, missing = NOTE.unpack(os.read(fd, NOTE.size))[0], missing - 1
    return last


def main(size: int, computing: float) -> None:
    sides, slots = shared(2, size), shared(WORKERS, size)
    model, total, watch, beyond = np.ones(size, np.float32), np.ones(size, np.float32), select.epoll(), []
    workers = [born(sides, slot, computing) for slot in slots]
    for _, answer in workers:
        watch.register(answer, select.EPOLLIN)
    for step in range(WARM + STEPS):
        model -= 1e-3 * total  # an optimiser's step
        began = time.perf_counter()
        copies([(sides[step % 2], model)]).begin().fine()
        for ask, _ in workers:
            os.write(ask, bytes([step % 2]))
        last = answered(watch)
        settled_sum(total, [1.0] * WORKERS, list(slots), True, 1 / 64)
        beyond.append(time.perf_counter() - began - last)
    print(repr(statistics.median(beyond[WARM:])))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
