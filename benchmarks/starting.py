"""Workers of the local engine, forked by a nursery or as interpreters of their own: how soon they work, also after a kill."""

import os
import signal
import time
from typing import Any

import numpy as np
import psutil
import torch
from torch.nn import functional

import unstraggle as us
from unstraggle.app.bench.ones import Ones

from .common import save
from .engines import overhead

METHODS = ("forkserver", "spawn")
TIMES = 3


def numbers(method: str, workers: int = 40) -> dict[str, Any]:
    """A problem that needs NumPy only."""
    began = time.perf_counter()
    with us.Master(us.codes.uncoded(workers), us.engines.Local(Ones(workers, 8), start_method=method)) as master:
        return _figures(master, began, lambda: master.gradient(np.zeros(8)))


def network(method: str, workers: int = 8) -> dict[str, Any]:
    """A small network in PyTorch."""
    rng = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(640, 20, generator=rng), torch.randint(0, 3, (640,), generator=rng))
    model = torch.nn.Linear(20, 3)
    began = time.perf_counter()
    options: dict[str, Any] = {"batch_size": 64, "engine": "local", "engine_options": {"start_method": method}}
    with us.torch.Coded(model, functional.cross_entropy, data, scheme=f"uncoded({workers})", seed=0, **options) as run:
        return _figures(run.master, began, run.backward)


def _figures(master: Any, began: float, step: Any) -> dict[str, Any]:
    """Of an engine whose rounds need every worker."""
    step()
    first = time.perf_counter() - began
    pids = [master.engine.pid(worker) for worker in range(master.code.n)]
    memory = np.mean([psutil.Process(pid).memory_full_info().pss for pid in pids])
    os.kill(pids[-1], signal.SIGKILL)
    killed = time.perf_counter()
    step()
    return {"first_round_s": first, "back_after_kill_s": time.perf_counter() - killed, "pss_mb_a_worker": memory / 1e6}


def measure(method: str, kind: Any) -> dict[str, float]:
    """Medians of some times."""
    rows = [kind(method) for _ in range(TIMES)]
    return {name: round(float(np.median([row[name] for row in rows])), 2) for name in rows[0]}


def message(method: str) -> float:
    """Microseconds a small message, 40 workers with 10 each; see `benchmarks.engines`."""
    return float(overhead(lambda problem: us.engines.Local(problem, start_method=method))["us_a_message"])


def messages() -> dict[str, Any]:
    """The same for both, in turns, because other users of a machine slow down both."""
    rows = [[message(method) for method in METHODS] for _ in range(TIMES)]
    ratio = round(float(np.median([forked / spawned for forked, spawned in rows])), 3)
    return {"method_us": dict(zip(METHODS, np.median(rows, axis=0).tolist(), strict=True)), "ratio": ratio}


def main() -> None:
    kinds = {"40 workers, NumPy": numbers, "8 workers, PyTorch": network}
    rows = [
        {"workers": name, "start_method": method} | measure(method, kind) for name, kind in kinds.items() for method in METHODS
    ]
    print(*rows, sep="\n")
    save("starting", {"times": TIMES, "rows": rows, "small_messages": messages()})
