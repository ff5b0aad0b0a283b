"""Figures 3b and 3c of paper [C] at full size on one GPU: ResNet-50 and a transformer of GPT-2's size, rates tuned per scheme.

Run it on a machine with CUDA and torchvision: python -m benchmarks.training_gpu --out RESULT.json --seconds 540
Every run is written at once and never repeated, so that a command that was stopped goes on where it stopped. The data are
synthetic but learnable (ResNet-50) or the text of Python's manual (transformer); with --coco DIR, a detector with the layers of
MobileNetV3-Large learns COCO's objects as well (--tasks without names: it alone). Workers take turns on the GPU; their
gradients, quantised messages and the decoding are real. Two seeds find each scheme's rate, by threes; others are run there.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unstraggle.papers.quantized_osgc.full_size import condensed
from unstraggle.statistics import mean_and_half

from .common import RESULTS
from .full_size.replica import Replica
from .full_size.runs import LAST, Run, estimate, train
from .full_size.tasks import DEVICE, TASKS, detection

EACH = 7
"""Bits per worker and coordinate, as in the paper: B = 350."""

SCHEMES = {
    "OSGC": 1.0,
    "proposed": 1.0,
    "proposed, qsgd omega": 1.0,
    "proposed, measured omega": 1.0,
    "SGC": 1.0,
    "IS-SGD": 9.0,
    "SGD": 3.0,
}
"""Where the search for the rate starts, in rates of the task. The mean gradient of IS-SGD is a tenth of the true one."""

REFERENCE = "OSGC"
TUNING, MOST_TRIED, FACTOR = (1000, 1001), 6, 3.0
NEAR = 1.05
"""Losses up to so many times the least are nearly as good."""


class Book:
    """The runs done so far, in a file; `row` gives a run's, and does it where there is time, else None."""

    def __init__(self, path: Path, until: float, each: int = EACH, also: Sequence[Path] = ()) -> None:
        self.path, self.until, self.each = path, until, each
        self.rows: dict[Run, dict[str, Any]] = {}
        self.machine = {
            "date": date.today().isoformat(),
            "hardware": torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU",
            "versions": {"torch": torch.__version__},
        }
        for file in (*also, *([path] if path.exists() else [])):
            found = json.loads(file.read_text())
            self.machine = self.machine if DEVICE == "cuda" else {key: found[key] for key in self.machine}
            for row in found["runs"]:
                self.rows[Run(row["task"], row["scheme"], row["rate"], row["seed"], row["steps"])] = row

    def row(self, replica: Replica, run: Run) -> dict[str, Any] | None:
        if run not in self.rows:
            if time.perf_counter() + 1.2 * self._longest(run.task) > self.until:
                return None
            self.rows[run] = train(replica, run, self.each)
            print(f"{run.task:<12} {run.scheme:<26} {run.rate:<8g} {run.seed:<5}", self.rows[run]["final"], flush=True)
            self.write()
        return self.rows[run]

    def _longest(self, task: str) -> float:
        """Of the last few: the first one waits for kernels to be compiled."""
        return max([row["seconds"] for run, row in self.rows.items() if run.task == task][-4:], default=0.0)

    def write(self) -> None:
        about = {
            "benchmark": "training_gpu",
            "repeat": "python -m benchmarks.training_gpu",
            **self.machine,
            "setting": f"n = k, B = {self.each} n, one norm per message; loss: mean training loss of the last {LAST} steps; "
            f"rates found on seeds {TUNING[0]}, {TUNING[1]}; 95 % intervals by Student's t; gap: to {REFERENCE}, seed by seed",
        }
        waiting = self.path.with_suffix(".part")
        waiting.write_text(
            json.dumps(about | {"summary": summary(list(self.rows.values())), "runs": [*self.rows.values()]}) + "\n"
        )
        waiting.replace(self.path)


def study(replica: Replica, book: Book, steps: int, seeds: int, without: Sequence[str] = ()) -> bool:
    """All schemes: their rates, then `seeds` runs each, seed by seed; False where time was up."""
    name, rates = replica.task.name, {}
    for label, factor in SCHEMES.items():
        if label in without:
            continue
        found = best_rate(lambda rate, label=label: _tuned(replica, book, label, rate, steps), replica.task.rate * factor)
        if found is None:
            return False
        rates[label] = found
    runs = [Run(name, label, rates[label], seed, steps) for seed in range(seeds) for label in rates]
    return all(book.row(replica, run) is not None for run in runs)


def _tuned(replica: Replica, book: Book, label: str, rate: float, steps: int) -> float | None:
    """Mean final loss of the tuning seeds, infinite where one diverged; None where time was up."""
    found = [book.row(replica, Run(replica.task.name, label, rate, seed, steps)) for seed in TUNING]
    return None if None in found else mean_final([row for row in found if row])


def mean_final(rows: list[dict[str, Any]]) -> float:
    return float(np.mean([np.inf if row["final"] is None else row["final"] for row in rows]))


def preferred(losses: dict[float, float]) -> float | None:
    """The lowest rate that is nearly as good as the best."""
    return min((rate for rate, loss in losses.items() if loss <= NEAR * min(losses.values())), default=None)


def best_rate(loss: Callable[[float], float | None], start: float) -> float | None:
    """The rate of least loss, by threes from `start` in both directions while it gets better; None where time was up.

    Both, because losses at large rates are noisy: one that looks better than the start may be far from the best. For the same
    reason the lowest rate counts of those that are nearly as good.

    >>> best_rate(lambda rate: abs(rate - 1.0), 0.1)
    0.9
    """
    tried: dict[int, float] = {}
    for place in _places(tried):
        found = loss(_rate(start, place))
        if found is None:
            return None
        tried[place] = found
    return preferred({_rate(start, place): value for place, value in tried.items()})


def _places(tried: dict[int, Any]) -> Iterator[int]:
    """Places to try, one after another; what is found there is in `tried` before the next is asked for."""
    yield 0
    for way in (1, -1):
        place = way
        yield place
        while len(tried) < MOST_TRIED and tried[place] < tried[place - way]:
            place += way
            yield place


def _rate(start: float, place: int) -> float:
    return float(f"{start * FACTOR**place:.4g}")


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line per task, scheme and rate, of the seeds that did not tune: mean loss, interval, gap to the reference.

    chosen: whether the tuning seeds prefer this rate. The gap is to the reference at the rate that is chosen for it.
    """
    found = []
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        best = {label: _chosen([row for row in mine if row["scheme"] == label]) for label in SCHEMES}
        shown = [row for row in mine if row["seed"] not in TUNING]
        rival = {row["seed"]: row["final"] for row in shown if _pair(row) == (REFERENCE, best[REFERENCE])}
        for label, rate in [pair for label in SCHEMES for pair in sorted({_pair(row) for row in shown}) if pair[0] == label]:
            runs = [row for row in shown if _pair(row) == (label, rate)]
            found.append(_line(task, label, rate == best[label], runs, rival))
    return found


def _pair(row: dict[str, Any]) -> tuple[str, float]:
    return row["scheme"], row["rate"]


def _chosen(rows: list[dict[str, Any]]) -> float | None:
    """The rate that the tuning seeds prefer; None before there are any."""
    tried = {row["rate"]: [one for one in rows if one["rate"] == row["rate"] and one["seed"] in TUNING] for row in rows}
    losses = {rate: mean_final(runs) for rate, runs in tried.items() if len(runs) == len(TUNING)}
    return preferred(losses)


def _line(task: str, label: str, chosen: bool, rows: list[dict[str, Any]], rival: dict[int, float | None]) -> dict[str, Any]:
    finals = {row["seed"]: row["final"] for row in rows}
    known = np.array([loss for loss in finals.values() if loss is not None])
    gaps = np.array([loss - rival[seed] for seed, loss in finals.items() if loss is not None and rival.get(seed) is not None])
    return {
        "task": task,
        "scheme": label,
        "rate": rows[0]["rate"],
        "chosen": chosen,
        "seeds": len(rows),
        "diverged": len(rows) - len(known),
        **dict(zip(("loss", "loss_half"), _interval(known), strict=True)),
        **dict(zip(("gap", "gap_half"), _interval(gaps), strict=True)),
        "gigabits_a_step": round(float(np.mean([row["gigabits_a_step"] for row in rows])), 4),
    }


def _interval(values: Any) -> tuple[float | None, float | None]:
    """Mean and half width, where there are two values or more."""
    if len(values) < 2:
        return (round(float(values[0]), 4) if len(values) else None), None
    mean, half = mean_and_half(values)
    return round(float(mean), 4), round(float(half), 4)


def check(replica: Replica) -> None:
    """How long a message and a look take: to be seen before a long command."""
    batch = replica.task.batch(0, 0)
    for what, run in (("message", lambda: replica.gradient(batch, [0], [1.0])), ("look", lambda: replica.training_loss(batch))):
        run()
        start = time.perf_counter()
        for _ in range(20):
            run()
        replica.training_loss(batch)
        print(f"{replica.task.name}: {replica.dim:,} parameters, {what} {(time.perf_counter() - start) / 20 * 1000:.2f} ms")
    whole = estimate(replica, batch, None, None, 0)[0]
    print(
        f"{replica.task.name}: length of the mean gradient {float(whole.norm()):.4g}, loss {replica.training_loss(batch):.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "training_gpu.json")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no run is begun that would end later")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--coco", type=Path, help="folder with COCO as it is published: train a detector on it as well")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=8, help="runs at a scheme's best rate")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="results whose runs are taken over")
    parser.add_argument("--without", nargs="*", choices=SCHEMES, default=[], help="schemes that are left out")
    parser.add_argument("--curves", type=Path, help="write what figures 3b and 3c show of --out there, and train nothing")
    parser.add_argument("--no-graphs", action="store_true", help="where CUDA graphs fail; several times slower")
    parser.add_argument("--check", action="store_true", help="only say how long a message takes")
    given = parser.parse_args()
    if given.curves:
        given.curves.write_text(json.dumps(condensed(json.loads(given.out.read_text()))) + "\n")
        return
    begun = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if given.also:
        Book(given.out, begun, also=given.also).write()
    tasks = [(name, TASKS[name]) for name in given.tasks] + (
        [("detector", partial(detection, given.coco))] if given.coco else []
    )
    for number, (name, task) in enumerate(tasks, 1):
        replica = Replica(task(), graphs=not given.no_graphs)
        check(replica)
        book = Book(given.out, begun + given.seconds * number / len(tasks))
        if not given.check and not study(replica, book, given.steps, given.seeds, given.without):
            print(f"no time for the rest of {name}: give the same command again")
        print(*summary(list(book.rows.values())), sep="\n")
        del replica
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
