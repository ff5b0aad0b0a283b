"""Many rounds and many workers on one machine: memory and file descriptors must not grow, and 200 workers must run."""

import os
import time
from typing import Any

import numpy as np
import psutil

from unstraggle import Master, codes
from unstraggle.app.bench.ones import Ones
from unstraggle.engines import Local

from .common import save

ROUNDS, SAMPLES = 100_000, 10
MANY = 200


def soak(rounds: int = ROUNDS, workers: int = 4) -> dict[str, Any]:
    """Small rounds one after the other; what master and workers hold at ten points in time."""
    engine = Local(Ones(workers, 100))
    seen = []
    with Master(codes.cyclic_repetition(workers, s=1), engine) as master:
        params, began = np.zeros(100), time.perf_counter()
        for number in range(rounds + 1):
            master.gradient(params)
            if number % (rounds // SAMPLES) == 0:
                seen.append(_held(engine, workers) | {"round": number})
                print(seen[-1], flush=True)
        seconds = time.perf_counter() - began
    return {"rounds": rounds, "us_a_round": round(1e6 * seconds / rounds, 1), "held": seen}


def many(workers: int = MANY, rounds: int = 50) -> dict[str, Any]:
    """So many worker processes on this machine: start-up, time of a small round, memory of a worker."""
    engine, began = Local(Ones(workers, 100)), time.perf_counter()
    with Master(codes.uncoded(workers), engine) as master:
        started = time.perf_counter() - began
        times = [master.gradient(np.zeros(100)).wait for _ in range(rounds)][5:]
        pss = np.mean([psutil.Process(engine.pid(w)).memory_full_info().pss for w in range(workers)])
    return {
        "workers": workers,
        "start_s": round(started, 1),
        "ms_a_round": round(1e3 * float(np.median(times)), 2),
        "pss_mb_a_worker": round(float(pss) / 1e6, 1),
    }


def _held(engine: Local, workers: int) -> dict[str, Any]:
    own = psutil.Process(os.getpid())
    theirs = [psutil.Process(engine.pid(worker)) for worker in range(workers)]
    return {
        "master_mb": round(own.memory_info().rss / 1e6, 1),
        "master_files": own.num_fds(),
        "worker_mb": round(max(process.memory_info().rss for process in theirs) / 1e6, 1),
        "worker_files": max(process.num_fds() for process in theirs),
    }


def main() -> None:
    save("soak", {"soak": soak(), "many": many()})
