"""Training beside PyTorch's own data parallelism: the tax without stragglers, and time to a target loss with them."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from numpy.typing import NDArray
from torch import Tensor, nn

from unstraggle import codes
from unstraggle.app.cli.output import plain as _plain
from unstraggle.app.comparison import STRIDE, Entry, compare, entries, stragglers, table, with_delays
from unstraggle.scheme.arrivals import Latency
from unstraggle.statistics import mean_and_half
from unstraggle.torch import Coded
from unstraggle.torch.batches import Dealt
from unstraggle.torch.tasks import Task, task

from .common import save

WIDTH, BATCH, STEPS = 1536, 512, 15
"""A network with 5.0 million parameters, samples of a step, and steps that are timed."""
SEED, REPEATS, TRAINED = 0, 4, 40
UNIT = 0.03


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(784, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1000))


def data(samples: int = 4 * BATCH) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(samples, 784, generator=random), torch.randint(1000, (samples,), generator=random)


def tax() -> dict[str, Any]:
    """Seconds per step with 2 workers: DDP, waiting for all, and repetition with load 1, in turns."""
    rows: dict[str, list[float]] = {"ddp": [], "none": [], "repetition": []}
    splits: list[dict[str, float]] = []
    for _ in range(3):
        rows["ddp"].append(ddp_step())
        for name, scheme in (("none", "none"), ("repetition", codes.fractional_repetition(2, s=0))):
            seconds, split = coded_step(scheme)
            rows[name].append(seconds)
            splits.append(split)
    best = {name: min(values) for name, values in rows.items()}
    print(rows)
    return {
        "parameters": sum(p.numel() for p in network().parameters()),
        "batch": BATCH,
        "seconds_a_step": {name: round(value, 4) for name, value in best.items()},
        "all_runs": {name: [round(value, 4) for value in values] for name, values in rows.items()},
        "over_ddp": {name: round(best[name] / best["ddp"], 3) for name in ("none", "repetition")},
        "where_the_time_goes_ms": {key: round(1e3 * float(np.median([s[key] for s in splits])), 2) for key in splits[0]},
    }


def coded_step(scheme: Any) -> tuple[float, dict[str, float]]:
    torch.set_num_threads(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    times, splits = [], []
    with Coded(model, nn.CrossEntropyLoss(), data(), scheme=scheme, workers=2, batch_size=BATCH) as run:
        for _ in range(STEPS + 3):
            began = time.perf_counter()
            optimizer.zero_grad()
            info = run.backward()
            ready = time.perf_counter()
            optimizer.step()
            times.append(time.perf_counter() - began)
            splits.append({**vars(info.split), "optimizer": time.perf_counter() - ready, "step": times[-1]})
    kept = splits[3:]
    return float(np.median(times[3:])), {key: float(np.median([s[key] for s in kept])) for key in kept[0]}


def ddp_step(ranks: int = 2) -> float:
    """Median seconds of a step of torch.nn.parallel.DistributedDataParallel with gloo."""
    with mp.get_context("spawn").Manager() as manager:
        times = manager.list()
        mp.spawn(_ddp_steps, (ranks, times), ranks)
        return float(np.median(list(times)[3:]))


def _ddp_steps(rank: int, ranks: int, times: Any) -> None:
    model = _joined(rank, ranks, network(), port=29540)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, targets = data()
    size = BATCH // ranks
    for step in range(STEPS + 3):
        at = (step * BATCH + rank * size) % len(inputs)
        torch.distributed.barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[at : at + size]), targets[at : at + size]).backward()
        optimizer.step()
        torch.distributed.barrier()
        if rank == 0:
            times.append(time.perf_counter() - began)
    torch.distributed.destroy_process_group()


def _joined(rank: int, ranks: int, model: nn.Module, port: int) -> nn.Module:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    return nn.parallel.DistributedDataParallel(model)


def against_stragglers(workers: int = 8, slow: Sequence[int] = (2, 6), factor: float = 10.0) -> dict[str, Any]:
    """Time to a target loss, by the same injected delays for all: DDP, waiting, ignoring, and codes."""
    latency, what = stragglers(workers, slow, UNIT, factor), task("digits").by_label()
    block = Entry("block code", f"blocks([1, 1], fractional_repetition({workers}, s=1), cyclic_repetition({workers}, s=2))")
    chosen, make = [*entries(workers, max(1, len(slow))), block], with_delays(latency, SEED)
    runs = list(compare(what, chosen, make, steps=TRAINED, repeats=REPEATS, seed=SEED))
    target = 1.1 * float(runs[0].losses[:, -1].mean())
    rows = table(runs, target)
    losses, seconds = ddp_training(what, latency, workers)
    rows.insert(0, ddp_row(losses, seconds, target))
    for row in rows:
        print(row, flush=True)
    return {"workers": workers, "slow": list(slow), "factor": factor, "unit_s": UNIT, "target": target, "rows": rows}


def ddp_row(losses: NDArray[Any], seconds: NDArray[Any], target: float) -> dict[str, Any]:
    reached = np.array(
        [at[loss <= target][0] if (loss <= target).any() else np.inf for loss, at in zip(losses, seconds, strict=True)]
    )
    done = np.isfinite(reached)
    mean, half = mean_and_half(reached[done]) if done.any() else (np.nan, np.nan)
    end, spread = mean_and_half(losses[:, -1])
    row = {"scheme": "DDP (gloo)", "step": float(np.diff(seconds, axis=1).mean()), "loss": (float(end), float(spread))}
    return row | {"runs_that_reached_it": int(done.sum()), "to_target": (float(mean), float(half)) if done.any() else None}


def ddp_training(what: Task, latency: Latency, workers: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Losses and seconds (repeats, steps + 1) of DDP on the same batches; ranks wait for their delays before they reduce."""
    draws = latency.sample(codes.uncoded(workers), REPEATS * TRAINED, np.random.default_rng(SEED))
    with mp.get_context("spawn").Manager() as manager:
        found = manager.list()
        mp.spawn(_ddp_training, (workers, what.data, what.batch, what.lr, draws, found), workers)
        pairs = np.array(list(found)).reshape(REPEATS, TRAINED + 1, 2)
    return pairs[:, :, 0], pairs[:, :, 1]


def _ddp_training(rank: int, ranks: int, arrays: Any, batch: int, lr: float, draws: NDArray[Any], found: Any) -> None:
    inputs, targets = arrays
    batches, what = Dealt(len(inputs), np.full(ranks, 1 / ranks), batch, SEED), task("digits")
    for repeat in range(REPEATS):
        model = what.build(SEED + repeat)
        wrapped = _joined(rank, ranks, model, port=29550 + repeat)
        optimizer, clock = torch.optim.Adam(wrapped.parameters(), lr), 0.0
        _note(rank, found, model, inputs, targets, clock)
        for step in range(TRAINED):
            number = STRIDE * (repeat + 1) + step
            mine = batches.rows(number, rank)
            torch.distributed.barrier()
            began = time.perf_counter()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(wrapped(inputs[mine]), targets[mine], reduction="sum")
            loss = loss * ranks / batches.size(number)  # DDP takes the mean over the ranks
            time.sleep(max(0.0, draws[repeat * TRAINED + step, rank] - (time.perf_counter() - began)))
            loss.backward()
            optimizer.step()
            clock += time.perf_counter() - began
            _note(rank, found, model, inputs, targets, clock)
        torch.distributed.destroy_process_group()


@torch.no_grad()
def _note(rank: int, found: Any, model: nn.Module, inputs: Tensor, targets: Tensor, clock: float) -> None:
    if rank == 0:
        found.append((float(nn.functional.cross_entropy(model(inputs), targets)), clock))


def main() -> None:
    result = {
        "tax_without_stragglers": tax(),
        "two_slow_of_eight": against_stragglers(),
        "none_slow_where_coding_loses": against_stragglers(slow=(), factor=1.0),
    }
    save("training", _plain(result))
