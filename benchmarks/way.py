"""What a gradient's way costs on a CPU: passes over memory, counted, and time beyond computing, beside DDP on the same batches.

Two workers, perceptrons of 1, 10 and 50 million parameters; shared: whether the model lives in the memory from which workers
read (`Coded(shared=True)`). beyond: backward() less the tasks of the message that ended the round, in copies of the gradient:
one after each step, of a vector that was last touched after the step before, as parameters and gradients are. repeated: in
copies that follow each other, so that up to 10 million parameters they stay in the cache. cold: in copies of vectors that were
not touched for long. floor: the same of three bare processes, see way_floor. Each number is the median of runs of its own, by
turns; in each, of its steps. mean: of the steps, among which are those that the system let wait. least and most: of the runs.
On a GPU: python -m benchmarks.way_gpu.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from unstraggle.torch import Coded

from . import way_count
from .common import best_of, save
from .way_floor import floor
from .way_models import perceptron, points

WIDTHS = {"1 M": 960, "10 M": 3120, "50 M": 7030}
RUNS = {"1 M": 7, "10 M": 3, "50 M": 3}
BATCH, WARM, STEPS = 64, 5, 20
SMALL, OFTEN = 2000, 150
"""Width of a model whose steps vary more, and how many are taken of it."""
COLD = 1 << 28


def passes() -> dict[str, dict[str, int]]:
    """Passes over vectors of the gradient's size in a step, by what makes them."""
    found = {
        "master": dict(way_count.of_master()),
        "master, shared": dict(way_count.of_master(shared=True)),
        "worker, beyond the backward pass": dict(way_count.of_worker()),
    }
    for where, seen in found.items():
        print(f"{where}: {sum(seen.values())} passes ({', '.join(seen)})", flush=True)
    return found


def timed(width: int, step: Callable[[], Any], then: Callable[[], Any] = lambda: None) -> tuple[float, float]:
    """Seconds of a step, median and mean. then: what is done after each, and does not count."""
    seconds = []
    for _ in range(WARM + (OFTEN if width < SMALL else STEPS)):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
        then()
    return statistics.median(seconds[WARM:]), statistics.mean(seconds[WARM:])


def coded(width: int, shared: bool = False) -> tuple[float, float, float, float, float]:
    """Seconds of a step with two workers, median and mean, of `backward()` beyond computing, of computing, and of a copy
    between two steps."""
    torch.manual_seed(0)
    model = perceptron(width)
    optimizer, beyond, computing, copies = torch.optim.SGD(model.parameters(), lr=1e-3), [], [], []
    source, target = (np.ones(sum(p.numel() for p in model.parameters()), np.float32) for _ in range(2))
    options: dict[str, Any] = {"scheme": "none", "workers": 2, "batch_size": BATCH, "check": False, "shared": shared}
    with Coded(model, nn.CrossEntropyLoss(), points(), **options) as run:

        def step() -> None:
            optimizer.zero_grad()
            began = time.perf_counter()
            info = run.backward()
            beyond.append(time.perf_counter() - began - info.split.compute)
            computing.append(info.split.compute)
            optimizer.step()

        def then() -> None:
            began = time.perf_counter()
            np.copyto(target, source)
            copies.append(time.perf_counter() - began)

        seconds = timed(width, step, then)
        return *seconds, *(statistics.median(some[WARM:]) for some in (beyond, computing, copies))


def ddp(width: int) -> tuple[float, float]:
    """Seconds of a step of `DistributedDataParallel`, two processes, gloo: median and mean."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "seconds")
        mp.spawn(_rank, (width, os.path.join(folder, "meet"), out), nprocs=2)  # type: ignore[no-untyped-call]
        with open(out) as file:
            median, mean = map(float, file.read().split())
            return median, mean


def _rank(rank: int, width: int, meet: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(perceptron(width))
    optimizer, loss_fn, (inputs, targets) = torch.optim.SGD(model.parameters(), lr=1e-3), nn.CrossEntropyLoss(), points()
    mine = slice(rank, BATCH, 2)

    def step() -> None:
        optimizer.zero_grad()
        loss_fn(model(inputs[mine]), targets[mine]).backward()
        optimizer.step()

    seconds = timed(width, step)
    if rank == 0:
        with open(out, "w") as file:
            print(*seconds, file=file)
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort a process that ends otherwise


def cold_copy(size: int) -> float:
    """Median seconds to copy a vector that is in no cache to another: COLD bytes are touched in between."""
    vectors = [np.ones(size, np.float32) for _ in range(2 * max(3, COLD // (8 * size)))]
    seconds = []
    for source, target in zip(vectors[::2], vectors[1::2], strict=True):
        began = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


class Run(NamedTuple):
    """Seconds: of a step, median and mean, of `backward()` beyond computing, of computing, of a copy between two steps; of a
    step of DDP, median and mean, of the floor, and of a repeated and a cold copy."""

    step: float
    mean: float
    beyond: float
    computing: float
    copy: float
    ddp: float
    ddp_mean: float
    floor: float
    repeated: float
    cold: float


def compared(name: str, width: int) -> list[dict[str, Any]]:
    """Rows of the table: the model apart, and in shared memory."""
    size = sum(p.numel() for p in perceptron(width).parameters())
    source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
    found: tuple[list[Run], list[Run]] = [], []
    for _ in range(RUNS[name]):
        ours = [coded(width, shared) for shared in (False, True)]
        theirs, least = ddp(width), floor(size, ours[0][3])
        repeated, cold = best_of(lambda: np.copyto(target, source), 9), cold_copy(size)
        for runs, mine in zip(found, ours, strict=True):
            runs.append(Run(*mine, *theirs, least, repeated, cold))
    rows = [{"model": name, "shared": shared, "parameters": size, **told(found[shared])} for shared in (False, True)]
    for row in rows:
        print(row, flush=True)
    return rows


def told(runs: list[Run]) -> dict[str, Any]:
    """What runs say: medians over them."""

    def median(of: Callable[[Run], float], digits: int = 1) -> float:
        return round(statistics.median(map(of, runs)), digits)

    in_copies = [run.beyond / run.copy for run in runs]
    return {
        "runs": len(runs),
        "coded_ms": median(lambda run: 1e3 * run.step, 2),
        "ddp_ms": median(lambda run: 1e3 * run.ddp, 2),
        "coded_over_ddp": median(lambda run: run.step / run.ddp, 3),
        "coded_mean_ms": median(lambda run: 1e3 * run.mean, 2),
        "ddp_mean_ms": median(lambda run: 1e3 * run.ddp_mean, 2),
        "mean_over_mean_of_ddp": median(lambda run: run.mean / run.ddp_mean, 3),
        "beyond_ms": median(lambda run: 1e3 * run.beyond, 3),
        "beyond_in_copies": median(lambda run: run.beyond / run.copy),
        "least_in_copies": round(min(in_copies), 1),
        "most_in_copies": round(max(in_copies), 1),
        "floor_in_copies": median(lambda run: run.floor / run.copy),
        "beyond_over_floor": median(lambda run: run.beyond / run.floor, 2),
        "beyond_in_repeated_copies": median(lambda run: run.beyond / run.repeated),
        "floor_in_repeated_copies": median(lambda run: run.floor / run.repeated),
        "beyond_in_cold_copies": median(lambda run: run.beyond / run.cold),
    }


def main() -> None:
    counted = passes()
    rows = [row for name, width in WIDTHS.items() for row in compared(name, width)]
    save("way", {"passes": counted, "rows": rows})
    if torch.cuda.is_available():
        from . import way_gpu

        way_gpu.main(way_gpu.RESULTS / "way_gpu.json", 30.0)


if __name__ == "__main__":
    main()
