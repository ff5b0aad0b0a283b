"""Reading ahead: a step whose samples take time to read, beside a DataLoader with two processes. All times are sleeps."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import unstraggle as us

from .common import save

ITEM, COMPUTING, STEPS, SKIPPED = 0.005, 0.1, 24, 4
"""Seconds to read an item, and to compute a partition; steps that are timed, and before that."""
SAMPLES = (16, 20)
"""Of a partition. With 20, reading takes as long as computing."""


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


def with_a_loader(samples: int) -> float:
    """Median seconds of a step in one process, whose DataLoader reads in two."""
    model, times = Network(4, 1), []
    loader = iter(DataLoader(Sleepy(), batch_size=samples, num_workers=2))
    for _ in range(STEPS + SKIPPED):
        start = time.perf_counter()
        inputs, targets = next(loader)
        nn.functional.mse_loss(model(inputs), targets).backward()
        times.append(time.perf_counter() - start)
    return float(np.median(times[SKIPPED:]))


def coded(samples: int, scheme: str, ahead: bool) -> float:
    """Median seconds of a step on two workers, so many samples a partition."""
    loader = DataLoader(Sleepy(), batch_size=2 * samples)
    times = []
    with us.torch.Coded(Network(4, 1), nn.MSELoss(), loader, scheme=scheme, read_ahead=ahead) as run:
        for _ in range(STEPS + SKIPPED):
            times.append(run.backward().wall)
    return float(np.median(times[SKIPPED:]))


def rows_of(samples: int) -> list[dict[str, Any]]:
    """A DataLoader, then waiting for all and repetition, with and without reading ahead."""
    base = with_a_loader(samples)
    rows = [row(samples, "one process, DataLoader(num_workers=2)", base, 1, base)]
    for scheme, partitions in (("uncoded(2)", 1), ("fractional_repetition(2, s=1)", 2)):
        for ahead in (True, False):
            rows.append(row(samples, f"{scheme}, read_ahead={ahead}", coded(samples, scheme, ahead), partitions, base))
    return rows


def row(samples: int, way: str, seconds: float, partitions: int, base: float) -> dict[str, Any]:
    """A step: in milliseconds, of its computing alone, and of the DataLoader's step."""
    of = {"of_computing": round(seconds / (partitions * COMPUTING), 3), "of_loader": round(seconds / base, 3)}
    return {"samples": samples, "way": way, "ms": round(1e3 * seconds, 1), **of}


def main() -> None:
    rows = [one for samples in SAMPLES for one in rows_of(samples)]
    for one in rows:
        print(one)
    save("reading", {"item_ms": 1e3 * ITEM, "computing_ms": 1e3 * COMPUTING, "steps": STEPS, "rows": rows})


if __name__ == "__main__":
    main()
