"""Training on cores that others use too: seconds to a target loss, work-conserving beside DDP, repetition, waiting, ignoring.

Every worker has a core of its own. Other processes compute on one core for a while, then on the next: whoever is there becomes
slow by real work, not by a sleep. All schemes train the same model on the same batches; what starting takes is not counted.
"""

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from numpy.typing import NDArray
from torch import nn

import unstraggle as us
from unstraggle.scheme.stop import Count
from unstraggle.statistics import mean_and_half
from unstraggle.torch import Coded
from unstraggle.torch.batches import Dealt

from .common import save
from .uneven_load import loaded, pin
from .uneven_models import TRAININGS, Training

MODELS = tuple(os.environ.get("UNEVEN_MODELS", "ResNet-18,transformer").split(","))
STEPS, SEEDS = int(os.environ.get("UNEVEN_STEPS", "20")), int(os.environ.get("UNEVEN_SEEDS", "4"))
WORKERS, BURNING, PERIOD = 2, 2, float(os.environ.get("UNEVEN_PERIOD", "5"))
"""Workers; other processes on the loaded core, which leave a worker there a third of it; seconds until they move on."""
SMOOTH, AIM = 4, 0.75
"""The loss is the mean of so many steps' batches. The target is what waiting for all has at this share of its steps."""

Curve = NDArray[np.float64]
"""(2, steps): seconds since the end of the first step, and the loss of the step's batch."""

SCHEMES: dict[str, tuple[str, Any]] = {
    "wait for all": (f"uncoded({WORKERS})", None),
    "ignore the slowest": (f"ignore_stragglers({WORKERS}, p=0.5)", Count(WORKERS - 1)),
    "repetition": (f"fractional_repetition({WORKERS}, s=1)", None),
    "work conserving": (f"work_conserving({WORKERS}, load=2, pieces=4)", None),
}
DDP = "DDP (gloo)"
OURS = "work conserving"


def cores() -> list[int]:
    """As many as there are workers, round and round where there are fewer."""
    there = sorted(os.sched_getaffinity(0))
    return [there[worker % len(there)] for worker in range(WORKERS)]


# One run


def coded(what: Training, scheme: str, seed: int) -> Curve:
    """Steps of `Coded`, with a worker on each core."""
    torch.set_num_threads(1)
    expression, stop = SCHEMES[scheme]
    model, made = what.build(seed), []  # type: nn.Module, list[Any]

    def engine(problem: Any) -> Any:
        made.append(us.engines.Local(problem))
        return made[-1]

    optimizer = torch.optim.Adam(model.parameters(), what.lr)
    options: dict[str, Any] = {"scheme": expression, "stop": stop, "batch_size": what.batch, "seed": seed, "check": False}
    with Coded(model, nn.CrossEntropyLoss(), what.data(), engine=engine, **options) as run:

        def step() -> float:
            optimizer.zero_grad()
            info = run.backward()
            optimizer.step()
            return float(info.loss)

        step_losses = [step()]
        for worker, core in enumerate(cores()):
            pin(made[0].pid(worker), core)
        return _timed(step, step_losses)


def _timed(step: Callable[[], float], losses: list[float]) -> Curve:
    """The steps behind the first one, and when each was done."""
    began, seconds = time.perf_counter(), [0.0]
    for _ in range(STEPS - 1):
        losses.append(step())
        seconds.append(time.perf_counter() - began)
    return np.array([seconds, losses])


def ddp(what: Training, seed: int) -> Curve:
    """Steps of `DistributedDataParallel` on the same batches, a process on each core."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "curve.npy")
        mp.spawn(_rank, (what, seed, os.path.join(folder, "meet"), out), nprocs=WORKERS)  # type: ignore[no-untyped-call]
        return np.asarray(np.load(out))


def _rank(rank: int, what: Training, seed: int, meet: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=WORKERS)
    model = nn.parallel.DistributedDataParallel(what.build(seed))
    optimizer, (inputs, targets) = torch.optim.Adam(model.parameters(), what.lr), what.data()
    batches, number = Dealt(len(inputs), np.full(WORKERS, 1 / WORKERS), what.batch, seed), iter(range(STEPS))

    def step() -> float:
        at = next(number)
        mine = batches.rows(at, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[mine]), targets[mine])
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return float(total) / WORKERS

    losses = [step()]
    pin(os.getpid(), cores()[rank])
    curve = _timed(step, losses)
    if rank == 0:
        np.save(out, curve)
    dist.destroy_process_group()


# What came of it


def smooth(losses: Curve) -> Curve:
    """Means over the last steps."""
    return np.array([losses[max(0, at - SMOOTH + 1) : at + 1].mean() for at in range(len(losses))])


def reached(curve: Curve, target: float) -> tuple[float, int]:
    """Seconds and steps until the smoothed loss is at the target; infinite where it never is."""
    there = np.flatnonzero(smooth(curve[1]) <= target)
    return (float(curve[0][there[0]]), int(there[0]) + 1) if len(there) else (np.inf, len(curve[1]))


def rows(curves: dict[str, list[Curve]]) -> list[dict[str, Any]]:
    """A row for each scheme; the target of a seed is what waiting for all has on the way."""
    targets = [float(smooth(curve[1])[int(AIM * len(curve[1])) - 1]) for curve in curves["wait for all"]]
    found = {name: [reached(*pair) for pair in zip(own, targets, strict=False)] for name, own in curves.items() if own}
    return [_row(name, found, curves[name]) for name in found]


def _row(name: str, found: dict[str, list[tuple[float, int]]], own: list[Curve]) -> dict[str, Any]:
    times = np.array([seconds for seconds, _ in found[name]])
    done = np.isfinite(times).all()
    row: dict[str, Any] = {
        "scheme": name,
        "code": SCHEMES[name][0] if name in SCHEMES else None,
        "runs": len(times),
        "runs_that_reached_it": int(np.isfinite(times).sum()),
        "step": _interval([float(np.diff(curve[0]).mean()) for curve in own]),
        "to_target": _interval(times) if done else None,
        "steps_to_target": round(float(np.mean([steps for _, steps in found[name]])), 1) if done else None,
    }
    return row | _compared(times, np.array([seconds for seconds, _ in found.get(OURS, [])]), name)


def _compared(theirs: NDArray[Any], ours: NDArray[Any], name: str) -> dict[str, Any]:
    """Work-conserving's time over this one's, seed by seed, and whether that is surely below or above 1."""
    both = min(len(theirs), len(ours))
    if name == OURS or both < 2 or not np.isfinite(theirs[:both]).all() or not np.isfinite(ours[:both]).all():
        return {}
    mean, half = (float(value) for value in mean_and_half(ours[:both] / theirs[:both]))
    word = "faster" if mean + half < 1 else "slower" if mean - half > 1 else "not resolved"
    return {"work_conserving_over_it": [round(mean, 3), round(half, 3)], "work_conserving_is": word}


def _interval(values: Any) -> list[float]:
    mean, half = mean_and_half(np.asarray(values))
    return [round(float(mean), 3), round(float(half), 3) if np.isfinite(half) else 0.0]


def main() -> None:
    began, results = time.monotonic(), {}  # type: float, dict[str, Any]
    try:
        with loaded(BURNING, cores(), PERIOD):
            for name in MODELS:
                for curves in trained(name):
                    results[name] = rows(curves)
                    _save(results, began)
    except KeyboardInterrupt:
        print("interrupted: what was measured is in the result")


def trained(name: str) -> Any:
    """All curves so far, after every seed: seed by seed, so that the schemes take turns."""
    what = TRAININGS[name]
    curves: dict[str, list[Curve]] = {scheme: [] for scheme in (*SCHEMES, DDP)}
    for seed in range(SEEDS):
        for scheme, own in curves.items():
            own.append(ddp(what, seed) if scheme == DDP else coded(what, scheme, seed))
            seconds, losses = own[-1]
            print(f"{name}, seed {seed}, {scheme}: {seconds[-1]:.1f} s, loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
        yield curves


def _save(results: dict[str, Any], began: float) -> None:
    """Save what there is, after every seed."""
    sizes = {name: sum(p.numel() for p in TRAININGS[name].build(0).parameters()) for name in results}
    result = {
        "workers": WORKERS,
        "steps": STEPS,
        "seeds": SEEDS,
        "load": f"{BURNING} processes compute on one core, and move to the next one every {PERIOD:g} s",
        "target": f"the loss that waiting for all has after {100 * AIM:g} % of its steps, the mean over {SMOOTH} batches",
        "parameters": sizes,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    save("uneven", result | results)


if __name__ == "__main__":
    main()
