"""What a gradient's way costs on a CPU: passes over memory, counted, and time beyond computing, beside DDP on the same batches.

Two workers, perceptrons of 1, 10 and 50 million parameters. beyond: backward() less the tasks of the message that ended the
round, in copies of the gradient: one after each step, of a vector that was last touched after the step before, as parameters
and gradients are. repeated: in copies that follow each other, so that up to 10 million parameters they stay in the cache. cold:
in copies of vectors that were not touched for long. floor: the same of three bare processes, see way_floor. Ratios are of one
run, by turns. On a GPU: python -m benchmarks.way_gpu.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

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
BATCH, WARM, STEPS = 64, 5, 20
COLD = 1 << 28


def passes() -> dict[str, dict[str, int]]:
    """Passes over vectors of the gradient's size in a step, by what makes them."""
    found = {"master": dict(way_count.of_master()), "worker, beyond the backward pass": dict(way_count.of_worker())}
    for where, seen in found.items():
        print(f"{where}: {sum(seen.values())} passes ({', '.join(seen)})", flush=True)
    return found


def median_step(step: Callable[[], Any], then: Callable[[], Any] = lambda: None) -> float:
    """Seconds of a step. then: what is done after each, and does not count."""
    seconds = []
    for _ in range(WARM + STEPS):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
        then()
    return statistics.median(seconds[WARM:])


def coded(width: int) -> tuple[float, float, float, float]:
    """Seconds of a step with two workers, of `backward()` beyond computing, of computing, and of a copy between two steps."""
    torch.manual_seed(0)
    model = perceptron(width)
    optimizer, beyond, computing, copies = torch.optim.SGD(model.parameters(), lr=1e-3), [], [], []
    source, target = (np.ones(sum(p.numel() for p in model.parameters()), np.float32) for _ in range(2))
    with Coded(model, nn.CrossEntropyLoss(), points(), scheme="none", workers=2, batch_size=BATCH, check=False) as run:

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

        seconds = median_step(step, then)
        return seconds, *(statistics.median(some[WARM:]) for some in (beyond, computing, copies))


def ddp(width: int) -> float:
    """Seconds of a step of `DistributedDataParallel`, two processes, gloo."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "seconds")
        mp.spawn(_rank, (width, os.path.join(folder, "meet"), out), nprocs=2)  # type: ignore[no-untyped-call]
        with open(out) as file:
            return float(file.read())


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

    seconds = median_step(step)
    if rank == 0:
        with open(out, "w") as file:
            file.write(repr(seconds))
    dist.destroy_process_group()


def cold_copy(size: int) -> float:
    """Median seconds to copy a vector that is in no cache to another: COLD bytes are touched in between."""
    vectors = [np.ones(size, np.float32) for _ in range(2 * max(3, COLD // (8 * size)))]
    seconds = []
    for source, target in zip(vectors[::2], vectors[1::2], strict=True):
        began = time.perf_counter()
        np.copyto(target, source)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def compared(name: str, width: int) -> dict[str, Any]:
    """A row of the table."""
    size = sum(p.numel() for p in perceptron(width).parameters())
    source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
    seconds, beyond, computing, copy = coded(width)
    theirs, least = ddp(width), floor(size, computing)
    repeated, cold = best_of(lambda: np.copyto(target, source), 9), cold_copy(size)
    row = {
        "model": name,
        "parameters": size,
        "coded_ms": round(1e3 * seconds, 2),
        "ddp_ms": round(1e3 * theirs, 2),
        "coded_over_ddp": round(seconds / theirs, 3),
        "beyond_ms": round(1e3 * beyond, 3),
        "beyond_in_copies": round(beyond / copy, 1),
        "floor_in_copies": round(least / copy, 1),
        "beyond_over_floor": round(beyond / least, 2),
        "beyond_in_repeated_copies": round(beyond / repeated, 1),
        "floor_in_repeated_copies": round(least / repeated, 1),
        "beyond_in_cold_copies": round(beyond / cold, 1),
    }
    print(row, flush=True)
    return row


def main() -> None:
    counted = passes()
    rows = [compared(name, width) for name, width in WIDTHS.items()]
    save("way", {"passes": counted, "rows": rows})
    if torch.cuda.is_available():
        from . import way_gpu

        way_gpu.main(way_gpu.RESULTS / "way_gpu.json", 30.0)


if __name__ == "__main__":
    main()
