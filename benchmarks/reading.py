"""Reading ahead: a step whose samples take time to read, beside a DataLoader with two processes. All times are sleeps."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import unstraggle as us

from .common import save

ITEM, COMPUTING, SAMPLES, STEPS, SKIPPED = 0.005, 0.1, 16, 24, 4
"""Seconds to read an item, and to compute a partition; samples of a partition, steps that are timed, and before that."""


class Sleepy(Dataset[Any]):
    """Samples that take ITEM seconds to read."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(ITEM)
        return torch.full((4,), row / 4096), torch.tensor([1.0])


class Network(nn.Linear):
    """A forward pass that takes COMPUTING seconds, whatever the machine is doing."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            time.sleep(COMPUTING)
        return super().forward(inputs)


def with_a_loader() -> float:
    """Median seconds of a step in one process, whose DataLoader reads in two."""
    model, times = Network(4, 1), []
    loader = iter(DataLoader(Sleepy(), batch_size=SAMPLES, num_workers=2))
    for _ in range(STEPS + SKIPPED):
        start = time.perf_counter()
        inputs, targets = next(loader)
        nn.functional.mse_loss(model(inputs), targets).backward()
        times.append(time.perf_counter() - start)
    return float(np.median(times[SKIPPED:]))


def coded(scheme: str, ahead: bool) -> float:
    """Median seconds of a step on two workers, SAMPLES samples a partition."""
    loader = DataLoader(Sleepy(), batch_size=2 * SAMPLES)
    times = []
    with us.torch.Coded(Network(4, 1), nn.MSELoss(), loader, scheme=scheme, read_ahead=ahead) as run:
        for _ in range(STEPS + SKIPPED):
            times.append(run.backward().wall)
    return float(np.median(times[SKIPPED:]))


def main() -> None:
    base = with_a_loader()
    rows = [
        {
            "way": "one process, DataLoader(num_workers=2)",
            "ms": round(1e3 * base, 1),
            "of_computing": round(base / COMPUTING, 3),
        }
    ]
    for scheme, partitions in (("uncoded(2)", 1), ("fractional_repetition(2, s=1)", 2)):
        for ahead in (True, False):
            found = coded(scheme, ahead)
            row = {"way": f"{scheme}, read_ahead={ahead}", "ms": round(1e3 * found, 1)}
            rows.append(
                {**row, "of_computing": round(found / (partitions * COMPUTING), 3), "of_loader": round(found / base, 3)}
            )
    for one in rows:
        print(one)
    save("reading", {"item_ms": 1e3 * ITEM, "computing_ms": 1e3 * COMPUTING, "samples": SAMPLES, "steps": STEPS, "rows": rows})


if __name__ == "__main__":
    main()
