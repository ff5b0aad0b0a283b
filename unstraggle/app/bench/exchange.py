"""A round of small messages on an engine, against the same exchange over pipes: python -m unstraggle.app.bench.exchange."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...errors import UnstraggleError
from . import Result
from .ones import Ones
from .pipes import answer

WORKERS, LOAD, DIM = 4, 4, 8
"""Every worker sends so many messages of so many float64."""
ROUNDS = 400


def local(seed: int) -> Iterator[Result]:
    """Processes of this machine."""
    yield _measured("local")


def ray(seed: int) -> Iterator[Result]:
    """Actors, on the Ray that is there or on one that is started for it."""
    yield _measured("ray")


def mpi(seed: int) -> Iterator[Result]:
    """Ranks, in a job of their own."""
    from ...engines.mpi import command
    from ...engines.mpi_wire import require_mpi4py

    require_mpi4py()
    line = command(WORKERS, "-m", "unstraggle.app.bench.exchange", "mpi")
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise UnstraggleError(f"The MPI job ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    yield Result(**json.loads(done.stdout.strip().splitlines()[-1]))


def _measured(name: str) -> Result:
    with _pipes() as ask:
        pipes = _median(ask)
    with _round(name) as ask:
        engine = _median(ask)
    count = WORKERS * LOAD
    return Result(f"a message, {name} workers", engine / count, "over a pipe", pipes / count)


@contextmanager
def _round(name: str) -> Iterator[Callable[[], Any]]:
    """A function that asks all workers of an engine, and takes all their messages."""
    from ... import engines
    from ...codes import uncoded_mmc
    from ...runtime.master import Master
    from ...scheme.stop import Count

    code = uncoded_mmc(WORKERS, load=LOAD)
    kind = {"local": "Local", "ray": "Ray", "mpi": "MPI"}[name]
    engine = getattr(engines, kind)(Ones(code.k, DIM))
    with Master(code, engine, Count(WORKERS * LOAD, of="messages")) as master:
        yield lambda: master.gradient(np.zeros(DIM))


@contextmanager
def _pipes() -> Iterator[Callable[[], Any]]:
    """The same with processes and multiprocessing.Pipe, and nothing else: no checks, no decoding, no times."""
    from multiprocessing import connection, get_context

    spawn = get_context("spawn")
    pairs = [spawn.Pipe() for _ in range(WORKERS)]
    workers = [spawn.Process(target=answer, args=(theirs, LOAD), daemon=True) for _, theirs in pairs]
    for worker in workers:
        worker.start()
    mine, order = [ours for ours, _ in pairs], bytes(8 * DIM)

    def ask() -> None:
        for pipe in mine:
            pipe.send_bytes(order)
        left = WORKERS * LOAD
        while left:
            ready: list[Any] = connection.wait(mine)
            for pipe in ready:
                pipe.recv_bytes()
            left -= len(ready)

    try:
        yield ask
    finally:
        for pipe, worker in zip(mine, workers, strict=True):
            pipe.send_bytes(b"")
            worker.join(timeout=10)


def _median(ask: Callable[[], Any]) -> float:
    """Of many, since single rounds meet whatever else the machine does."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        ask()
        times.append(time.perf_counter() - began)
    return float(np.median(times[ROUNDS // 10 :]))


if __name__ == "__main__":
    print(json.dumps(vars(_measured(sys.argv[1]))), flush=True)
