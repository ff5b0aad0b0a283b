"""Training the same model with several schemes on the same stragglers: loss against wall-clock, with intervals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .. import engines
from ..latency import Heterogeneous, ShiftedExponential
from ..plan.base import Plan
from ..scheme.arrivals import Latency
from ..scheme.stop import Count, Stop
from ..statistics import mean_and_half, ratio_and_half
from ..torch.coded import Coded
from ..torch.info import Info
from ..torch.problem import TorchProblem
from ..torch.tasks import Task
from .machines import Machines, OnMachines
from .steps import writing

Floats = NDArray[np.float64]
Told = Callable[[str, int, int], None]
Make = Callable[[TorchProblem], engines.Engine]

STRIDE = 100_000
"""Steps between two repetitions, so that they draw other batches."""


@dataclass(frozen=True)
class Entry:
    """A scheme to compare: what people call it, a code's expression or a plan, and a stop rule where it has one of its own."""

    name: str
    scheme: str | Plan
    stop: Stop | None = None

    @property
    def code(self) -> str:
        """The name of the code."""
        return self.scheme if isinstance(self.scheme, str) else self.scheme.name

    @property
    def folder(self) -> str:
        """Where its results go."""
        return self.name.replace(" ", "-")


@dataclass(frozen=True, eq=False)
class Run:
    """One scheme: losses (repeats, steps + 1) on all training data, seconds (repeats, steps + 1) of wall-clock up to then.

    accuracy: (repeats,) on held-out data at the end. exact: share of steps with the exact gradient. bytes: per step.
    """

    entry: Entry
    losses: Floats
    seconds: Floats
    accuracy: Floats
    exact: float
    bytes: float
    steps: tuple[dict[str, Any], ...]

    def time_to(self, target: float) -> Floats:
        """(repeats,) seconds until the loss is at or below a target; infinite where it never is."""
        reached = self.losses <= target
        first = reached.argmax(axis=1)
        return np.where(reached.any(axis=1), self.seconds[np.arange(len(first)), first], np.inf)


def entries(workers: int, slow: int) -> tuple[Entry, ...]:
    """The rows of the demonstration, for a number of workers that four divides; waiting for all comes first."""
    ignoring = f"ignore_stragglers({workers}, p={slow / workers})"
    clustered = f"cluster(correlated_mmc({workers // 2}, load={workers // 2}, order=2), times=2)"
    return (
        Entry("wait for all", f"uncoded({workers})"),
        Entry("ignore the slowest", ignoring, Count(workers - slow)),
        Entry("repetition", f"fractional_repetition({workers}, s=1)"),
        Entry("multi-message", clustered),
    )


def on_machines(machines: Machines) -> Make:
    """Local workers whose tasks last as long as on these machines; a worker that is late stays in its task."""
    return lambda problem: engines.Local(OnMachines(problem, machines))


def with_delays(latency: Latency, seed: int) -> Make:
    """Local workers whose messages leave at drawn times; a worker that is late is let off when the round ends."""
    return lambda problem: engines.Chaos(engines.Local(problem), latency=latency, rng=seed)


def stragglers(workers: int, slow: Sequence[int], unit: float, factor: float) -> Latency:
    """Workers that take about `unit` seconds for 1/n of a batch, and some that take `factor` times as long."""
    paces = [unit * (factor if worker in slow else 1.0) for worker in range(workers)]
    return Heterogeneous([ShiftedExponential(rate=5 / pace, shift=0.8 * pace) for pace in paces])


def compare(
    task: Task,
    chosen: Iterable[Entry],
    make: Make,
    *,
    steps: int,
    repeats: int,
    seed: int = 0,
    told: Told = lambda *_: None,
    out: Path | None = None,
) -> Iterator[Run]:
    """Train with one scheme after the other on workers that `make` gives: equal weights and batches for all.

    chosen: may be a generator, which can then look at the results so far before it names the next.
    """
    for entry in chosen:
        yield _train(task, entry, make, steps, repeats, seed, told, out)


def table(runs: Sequence[Run], target: float) -> list[dict[str, Any]]:
    """A row for each scheme: wall-clock of a step and to the target loss, final loss and accuracy, with 95 % intervals.

    The speed-up pairs runs with the same weights, batches and stragglers.
    """
    base = runs[0].time_to(target)
    rows = []
    for run in runs:
        reached = run.time_to(target)
        rows.append(
            {
                "scheme": run.entry.name,
                "code": run.entry.code,
                "wall": interval(np.diff(run.seconds, axis=1).mean(axis=1)),
                "to_target": interval(reached) if np.isfinite(reached).all() else None,
                "speedup": ratio_and_half(base, reached) if np.isfinite([base, reached]).all() else None,
                "loss": interval(run.losses[:, -1]),
                "accuracy": interval(run.accuracy),
                "exact": run.exact,
                "megabytes": run.bytes / 1e6,
            }
        )
    return rows


def interval(values: Floats) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval; nan for a single run."""
    mean, half = mean_and_half(values)
    return float(mean), float(half)


def _train(task: Task, entry: Entry, make: Make, steps: int, repeats: int, seed: int, told: Told, out: Path | None) -> Run:
    model = task.build(seed)
    folder = None if out is None else out / entry.folder
    options: dict[str, Any] = {"batch_size": task.batch, "seed": seed, "stop": entry.stop, "engine": make}
    options["parts"] = "contiguous"  # as machines that gather data of their own: ignoring one is to ignore its data
    losses, seconds = np.zeros((repeats, steps + 1)), np.zeros((repeats, steps + 1))
    accuracy = np.zeros(repeats)
    records: list[dict[str, Any]] = []
    trace = None if folder is None else _fresh(folder) / "trace.jsonl"
    try:
        with (
            writing(None if folder is None else folder / "steps.jsonl") as keep,
            Coded(model, task.loss, task.data, scheme=entry.scheme, trace=trace, **options) as run,
        ):
            run.backward()  # the first round pays for what is compiled and loaded
            for repeat in range(repeats):
                model.load_state_dict(task.build(seed + repeat).state_dict())
                optimizer = torch.optim.Adam(model.parameters(), task.lr)
                run.step = STRIDE * (repeat + 1)
                losses[repeat, 0] = _loss(task, model)
                for step in range(steps):
                    info = _step(run, optimizer)
                    losses[repeat, step + 1] = _loss(task, model)
                    seconds[repeat, step + 1] = seconds[repeat, step] + info.wall
                    more = {"loss": losses[repeat, step + 1], "batch_loss": info.loss, "repeat": repeat, "step": step}
                    records.append(info.to_dict() | more)
                    keep(records[-1])
                    told(entry.name, repeat * steps + step + 1, repeats * steps)
                accuracy[repeat] = _accuracy(task, model)
    except BaseException:
        if folder is not None and records:
            _save(folder, _summary(entry, records) | {"interrupted": True})
        raise
    about = _summary(entry, records)
    result = Run(entry, losses, seconds, accuracy, about["exact"], about["bytes"], tuple(records))
    if folder is not None:
        ends = {"loss": losses[:, -1].tolist(), "seconds": seconds[:, -1].tolist(), "accuracy": accuracy.tolist()}
        _save(folder, about | ends)
    return result


def _step(run: Coded, optimizer: torch.optim.Optimizer) -> Info:
    """One step as a user would write it, with the wall-clock time of all of it; what is between two of them does not count."""
    began = time.perf_counter()
    optimizer.zero_grad()
    info = run.backward()
    optimizer.step()
    return info.lasting(time.perf_counter() - began)


@torch.no_grad()
def _loss(task: Task, model: nn.Module) -> float:
    return float(task.loss(model(task.data[0]), task.data[1]))


@torch.no_grad()
def _accuracy(task: Task, model: nn.Module) -> float:
    return float((model(task.test[0]).argmax(dim=1) == task.test[1]).float().mean())


def _fresh(folder: Path) -> Path:
    """A folder whose trace, if an earlier run left one, is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace.jsonl").unlink(missing_ok=True)
    return folder


def _summary(entry: Entry, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    means = {name: float(np.mean([record[name] for record in records])) for name in ("exact", "bytes", "wall", "wait", "idle")}
    return {"scheme": entry.name, "code": entry.code, "steps": len(records), **means}


def _save(folder: Path, about: dict[str, Any]) -> None:
    (folder / "summary.json").write_text(json.dumps(about, indent=1) + "\n")
