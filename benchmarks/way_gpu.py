"""What coded training costs on one GPU, beside the step of one process: python -m benchmarks.way_gpu [RESULT.json] [minutes]
[some of 10.9, 133, ResNet: these models only; rows that are not measured again stay in the result, with their date].

bfloat16 autocast, SGD, the master's model and optimiser on the device; ms a step are the median of blocks of steps, by turns
with blocks of one process, whose ms stand beside, as many samples in each; the first step of a block is not counted, since
workers slept before it. ratio: of the means, and half the width of its 95 % interval. slow: the
messages of worker 1 may not leave before twice the time that a step of four workers takes. memory: of the device, master and
workers, before the turns. one_pass: a worker's share under repetition in one pass, as the worker has it, with samples that were
read ahead; beside two passes, and beside a plain pass over the same samples, also on the device.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unstraggle.latency import ShiftedExponential
from unstraggle.runtime.sums import Pass
from unstraggle.statistics import ratio_and_half
from unstraggle.torch import Coded
from unstraggle.torch.ahead import Found

from .common import RESULTS, of_device
from .way_models import GPU, Setting

WARM, BLOCK = 6, 4
BLOCKS, SECONDS = 12, 30.0
"""Blocks of a row, and how long blocks go on in rows with a limit near by: one worker, and one pass."""
LONGER, NARROW = 4.0, 0.03
"""In those rows, how many times as long at most, until half the interval of the ratio is no wider."""
LATE = 2.0
"""Steps of four workers that a slow one takes."""
DEVICE, THREADS = "cuda", 4
FOUR = "uncoded(4)"
CODED = ("fractional_repetition(4, s=1)", "work_conserving(4, load=2, pieces=2)")
RUNS = [
    *[("uncoded(1)", way, False) for way in ("ipc", "pinned")],
    (FOUR, "ipc", False),
    *[(code, "ipc", slow) for slow in (False, True) for code in CODED],
    (FOUR, "ipc", True),
    (FOUR, "pinned", False),
]
QUICK = [("uncoded(1)", "ipc", False), ("uncoded(1)", "pinned", False), (FOUR, "ipc", False)]


def timed(*steps: Any, seconds: float = 0.0) -> NDArray[np.float64]:
    """(kinds, blocks) seconds of a step in some blocks of each kind, by turns, each with all that the device still does.
    seconds: so long at least, and longer while the machine's noise leaves the ratio open."""
    for step in steps:
        for _ in range(WARM):
            step()
    found: list[list[float]] = []
    began = time.perf_counter()
    while len(found) < BLOCKS or not settled(np.array(found).T, time.perf_counter() - began, seconds):
        found.append([block(step) for step in steps])
    return np.array(found).T


def settled(found: NDArray[np.float64], spent: float, seconds: float) -> bool:
    """Whether blocks went on for so long, and the ratio of the first kind to the last is known well enough."""
    return spent >= LONGER * seconds or (spent >= seconds and ratio(found[0], found[-1])[1] <= NARROW)


def ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> list[float]:
    return [round(number, 3) for number in ratio_and_half(above, below)]


def block(step: Any) -> float:
    """The first step is not counted: workers have slept while others had their turn, as they never do in a run."""
    step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(BLOCK):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / BLOCK


def alone(setting: Setting) -> tuple[Any, list[torch.Tensor]]:
    """One process: a step, and the gradient of the first batch."""
    model, (inputs, targets), loss_fn = setting.build().to(DEVICE), setting.data(), nn.CrossEntropyLoss()
    optimizer, place = torch.optim.SGD(model.parameters(), lr=1e-3), 0
    order = np.random.default_rng((0, 0)).permutation(len(inputs))

    def step() -> None:
        nonlocal place
        rows = torch.from_numpy(order[np.arange(place, place + setting.batch) % len(inputs)])
        place += setting.batch
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = loss_fn(model(inputs[rows].to(DEVICE)), targets[rows].to(DEVICE))
        loss.backward()
        optimizer.step()

    step()
    grads = [p.grad.detach().clone() for p in model.parameters() if p.grad is not None]
    return step, grads


def coded(setting: Setting, scheme: str, way: str, late: float, grads: list[torch.Tensor]) -> dict[str, Any]:
    """A row of the table. late: seconds before which the messages of worker 1 may not leave."""
    model = setting.build().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    options: dict[str, Any] = {"engine_options": {"way": way, "threads": THREADS}, "device": DEVICE, "autocast": torch.bfloat16}
    began = time.perf_counter()
    options |= {"batch_size": setting.batch, "drop_last": True}  # as one process: no step with fewer samples
    with Coded(model, nn.CrossEntropyLoss(), setting.data(), scheme=scheme, **options) as run:
        started = time.perf_counter() - began
        run.backward()
        wrong = max(
            float((p.grad - grad).norm() / grad.norm().clamp_min(1e-12))
            for p, grad in zip(model.parameters(), grads, strict=True)
            if p.grad is not None
        )
        delays = np.where(run.code.messages.worker == 1, late, 0.0) if late else None
        splits = []

        def step() -> None:
            optimizer.zero_grad()
            splits.append(run.backward(delays=delays).split)
            optimizer.step()

        for _ in range(WARM):
            step()
        free, total = torch.cuda.mem_get_info()
        seconds, theirs = timed(step, alone(setting)[0], seconds=SECONDS if run.code.n == 1 else 0.0)
    torch.cuda.empty_cache()
    split = {name: statistics.median([1e3 * getattr(one, name) for one in splits]) for name in vars(splits[0])}
    return {
        "ms_a_step": round(1e3 * float(np.median(seconds)), 2),
        "one_process_ms": round(1e3 * float(np.median(theirs)), 2),
        "ratio": ratio(seconds, theirs),
        "split_ms": {name: round(value, 2) for name, value in split.items()},
        "gradient_differs": wrong,
        "memory_gb": round((total - free) / 2**30, 1),
        "seconds_to_start": round(started, 1),
    }


def one_pass(setting: Setting) -> dict[str, Any]:
    """A worker's share under repetition, two partitions, in one pass and in two, over a plain pass over the same samples."""
    latency, options = ShiftedExponential(rate=1.0), {"device": DEVICE, "autocast": torch.bfloat16, "engine": "virtual"}
    scheme, loss_fn = "fractional_repetition(4, s=1)", nn.CrossEntropyLoss()
    run = Coded(setting.build(), loss_fn, setting.data(), scheme=scheme, batch_size=setting.batch, latency=latency, **options)
    problem = run.problem.share(0, (0, 1))
    problem.stay()
    params, total = (torch.zeros(problem.dim, device=DEVICE) for _ in range(2))
    flat, finite = run._params(), run._finite
    assert isinstance(finite, Pass) and finite.fine()  # another thread may have been at it
    params.copy_(torch.as_tensor(np.array(flat)))
    whole, rows = slice(0, problem.dim), np.concatenate([run.batches.rows(0, part) for part in (0, 1)])
    batch = [one.to(DEVICE) for one in problem.data.read(0, rows)]
    problem.accumulate(params, 0, whole, 0, 1.0, total)
    for part in (0, 1):
        problem._reading._here[0, part, 0] = (run.batches.rows(0, part), Found(problem._reading.read(part, 0)))

    def plain() -> None:
        problem.model.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = loss_fn(problem.model(batch[0]), batch[1])
        loss.backward()
        torch.cuda.synchronize()

    here = dict(problem._reading._here)

    def read() -> None:
        problem._reading._here = dict(here)

    def together() -> None:
        read()
        problem.accumulate_all(params, (0, 1), whole, 0, 1.0, total.zero_())

    def apart() -> None:
        read()
        for part in (0, 1):
            problem.accumulate(params, part, whole, 0, 1.0, total)

    found = dict(zip(("one_pass", "two_passes", "plain"), timed(together, apart, plain, seconds=SECONDS), strict=True))
    ratios = {f"{name}_ratio": ratio(found[name], found["plain"]) for name in ("one_pass", "two_passes")}
    return {name: round(1e3 * float(np.median(value)), 2) for name, value in found.items()} | ratios


def merged(known: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of before, with what was measured again as it is now; in the order of `GPU` and `RUNS`."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in [*known, *new]:
        key = tuple(row[name] for name in ("model", "code", "way", "slow"))
        found[key] = found.get(key, {}) | row
    names, runs = [setting.name for setting in GPU], [("one process", "", False), *RUNS]
    return [found[key] for key in sorted(found, key=lambda key: (names.index(key[0]), runs.index(key[1:])))]


def main(path: Path, minutes: float, quick: bool = False, models: tuple[str, ...] = ()) -> None:
    """Every run; what is done is written, and what there is no time for is left out. models: parts of their names."""
    chosen = [setting for setting in GPU if not models or any(word in setting.name for word in models)]
    about = of_device("way_gpu", __doc__)
    known = json.loads(path.read_text())["rows"] if path.exists() else []
    rows: list[dict[str, Any]] = []
    for setting in chosen:
        until = time.perf_counter() + 60 * minutes / len(chosen)
        one, grads = alone(setting)
        seconds, late = float(np.median(timed(one))), 0.0
        del one
        common = {"model": setting.name, "parameters": sum(g.numel() for g in grads), "samples": setting.batch}
        common["date"] = about["date"]
        plain = {"code": "one process", "way": "", "slow": False, "ratio": [1.0, 0.0]}
        rows.append(common | plain | {"ms_a_step": round(1e3 * seconds, 2)})
        print(json.dumps(rows[-1]), flush=True)
        torch.cuda.empty_cache()
        if not quick:
            rows[-1] |= one_pass(setting)
            print(json.dumps(rows[-1]), flush=True)
        for scheme, way, slow in QUICK if quick else RUNS:
            if time.perf_counter() > until:
                print("no time left", flush=True)
                break
            try:
                found = coded(setting, scheme, way, late if slow else 0.0, grads)
            except Exception as error:
                print(f"{setting.name} {scheme} {way}: {error}", flush=True)
                continue
            if (scheme, way, slow) == (FOUR, "ipc", False):
                late = LATE * found["ms_a_step"] / 1e3
            row = {**common, "code": scheme, "way": way, "slow": slow, **found}
            rows.append(row)
            print(json.dumps(row), flush=True)
            path.write_text(json.dumps(about | {"rows": merged(known, rows)}, indent=1) + "\n")
    path.write_text(json.dumps(about | {"rows": merged(known, rows)}, indent=1) + "\n")
    print(
        subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"], capture_output=True, text=True
        ).stdout
    )


if __name__ == "__main__":
    words = sys.argv[1:]
    where, minutes = Path(words[0]) if words else RESULTS / "way_gpu.json", float(words[1]) if words[1:] else 30.0
    main(where, minutes, "quick" in words, tuple(word for word in words[2:] if word != "quick"))
