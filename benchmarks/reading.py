"""Reading ahead: a step whose samples take time to read, beside a DataLoader with processes. What takes time sleeps, but for
one case, in which Python works for each sample and the network computes."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import unstraggle as us

from .common import save

ITEM, COMPUTING, STEPS, SKIPPED = 0.005, 0.1, 24, 4
"""Seconds to read an item, and to compute a partition; steps that are timed, and before that."""
SAMPLES = (16, 20)
"""Of a partition. With 20, reading takes as long as computing."""
LAYERS, WIDTH = 100, 160
"""Of the network that computes: a few tens of milliseconds for 80 samples, in hundreds of operations."""


class Sleepy(Dataset[Any]):
    """Samples that take ITEM seconds to read."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(ITEM)
        return torch.full((4,), row / 4096), torch.tensor([1.0])


class Drawing(Sleepy):
    """The same, augmented at random."""

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        inputs, targets = super().__getitem__(row)
        return inputs + 0.1 * torch.randn(4), targets


class Working(Sleepy):
    """Samples that take Python some processor time each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return torch.full((WIDTH,), row / 4096), torch.ones(WIDTH)


def deep() -> nn.Module:
    """A network that computes, with one thread."""
    torch.set_num_threads(1)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


class Network(nn.Linear):
    """A forward pass that takes COMPUTING seconds, whatever the machine is doing."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            time.sleep(COMPUTING)
        return super().forward(inputs)


def with_a_loader(dataset: Any, samples: int, processes: int, model: nn.Module) -> float:
    """Median seconds of a step in one process, whose DataLoader reads in others."""
    times = []
    loader = iter(DataLoader(dataset, batch_size=samples, num_workers=processes))
    for _ in range(STEPS + SKIPPED):
        start = time.perf_counter()
        inputs, targets = next(loader)
        model.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        times.append(time.perf_counter() - start)
    return float(np.median(times[SKIPPED:]))


def coded(dataset: Any, samples: int, scheme: str, model: nn.Module, **how: Any) -> float:
    """Median seconds of a step, so many samples in all."""
    times = []
    with us.torch.Coded(model, nn.MSELoss(), DataLoader(dataset, batch_size=samples), scheme=scheme, **how) as run:
        for _ in range(STEPS + SKIPPED):
            model.zero_grad()
            times.append(run.backward().wall)
    return float(np.median(times[SKIPPED:]))


def rows_of(samples: int) -> list[dict[str, Any]]:
    """A DataLoader, then waiting for all and repetition, with and without reading ahead."""
    base = with_a_loader(Sleepy(), samples, 2, Network(4, 1))
    rows = [row(samples, "one process, DataLoader(num_workers=2)", base, 1, base)]
    for scheme, partitions in (("uncoded(2)", 1), ("fractional_repetition(2, s=1)", 2)):
        for ahead in (True, False):
            seconds = coded(Sleepy(), 2 * samples, scheme, Network(4, 1), read_ahead=ahead)
            rows.append(row(samples, f"{scheme}, read_ahead={ahead}", seconds, partitions, base))
    return rows


def row(samples: int, way: str, seconds: float, partitions: int, base: float) -> dict[str, Any]:
    """A step: in milliseconds, of its computing alone, and of the DataLoader's step."""
    of = {"of_computing": round(seconds / (partitions * COMPUTING), 3), "of_loader": round(seconds / base, 3)}
    return {"samples": samples, "way": way, "ms": round(1e3 * seconds, 1), **of}


def readers_of(case: str, dataset: Any, samples: int, processes: int, ways: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two workers that wait for each other, as many samples each as one process that reads in `processes` others."""
    base = with_a_loader(dataset, samples, processes, Network(4, 1))
    rows = [row(samples, f"one process, DataLoader(num_workers={processes})", base, 1, base)]
    for how in ways:
        seconds = coded(dataset, 2 * samples, "uncoded(2)", Network(4, 1), **how)
        rows.append(row(samples, f"uncoded(2), {said(how)}", seconds, 1, base))
    return [{"case": case, **one} for one in rows]


def said(how: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in how.items())


def working(samples: int) -> list[dict[str, Any]]:
    """One worker that computes, whose samples take Python as long to read. Beside steps with nothing to read."""
    ready = TensorDataset(torch.rand(4096, WIDTH), torch.ones(4096, WIDTH))
    alone = with_a_loader(ready, samples, 0, deep())
    dataset, idle = Working(alone / samples), coded(ready, samples, "uncoded(1)", deep())
    found = {"one process, DataLoader(num_workers=1)": with_a_loader(dataset, samples, 1, deep())}
    for how in ({"read_ahead": False}, {"read_ahead": True}, {"readers": 1}):
        found[f"uncoded(1), {said(how)}"] = coded(dataset, samples, "uncoded(1)", deep(), **how)
    case = "Python works for each sample"
    of = [("one process, nothing to read", alone, alone), ("uncoded(1), nothing to read", idle, idle)]
    of += [(way, seconds, alone if way.startswith("one") else idle) for way, seconds in found.items()]
    return [
        {"case": case, "samples": samples, "way": way, "ms": round(1e3 * seconds, 1), "of_computing": round(seconds / base, 3)}
        for way, seconds, base in of
    ]


def with_processes() -> list[dict[str, Any]]:
    """Where a thread is not enough."""
    rows = readers_of("augmented at random", Drawing(), 20, 1, [{"readers": 0}, {"readers": 1}])
    rows += readers_of("reading takes twice as long", Sleepy(), 40, 2, [{"readers": 0}, {"readers": 2}])
    return rows + working(80)


def main() -> None:
    rows = [one for samples in SAMPLES for one in rows_of(samples)]
    processes = with_processes()
    for one in rows + processes:
        print(one)
    settings = {"item_ms": 1e3 * ITEM, "computing_ms": 1e3 * COMPUTING, "steps": STEPS, "layers": [LAYERS, WIDTH]}
    save("reading", settings | {"rows": rows, "processes": processes})


if __name__ == "__main__":
    main()
