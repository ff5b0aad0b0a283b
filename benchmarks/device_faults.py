"""Faults of workers on a device, and what they leave behind: python -m benchmarks.device_faults [RESULT.json] [kills].

Eight workers on one GPU, four of each half of the samples. kills: by SIGKILL, half of them while the master adds up the
gradients of those who die, half while they compute; wrong: the largest difference of a step's gradient from that of one
process, relative; memory: of the device, all processes, before the run, with all workers there, with all there again after the
kills, and after the run. memory_error: a worker asks for more memory than there is, in every step. no_device: it is started
again where none is visible.

Units of the network are at zero now and then, and rounding decides: in 1 of 149 steps without workers, float32 differs from
float64 by 0.008. Gradients of other samples, or of a pass too many, differ by about 1.
"""

import contextlib
import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from unstraggle.engines.environment import environment
from unstraggle.engines.local_start import Cradle
from unstraggle.errors import UnstraggleError
from unstraggle.torch import Coded
from unstraggle.torch.device_gather import DeviceGather

from .common import RESULTS, of_device
from .way_models import perceptron, points

SCHEME, WIDTH, BATCH = "fractional_repetition(8, s=3)", 1000, 64
FILE = "UNSTRAGGLE_FAULTY"
"""The variable that names a file: the first worker to make it is the one at fault."""
PATIENCE = 120.0
"""Seconds until all workers are there again."""


def faulty(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """A forward pass that runs out of memory in one of the workers."""
    inputs, targets = batch
    with contextlib.suppress(FileExistsError), open(os.environ[FILE], "x") as file:
        file.write(str(os.getpid()))
    if Path(os.environ[FILE]).read_text() == str(os.getpid()):
        torch.empty(1 << 42, device=inputs.device)
    return model(inputs), targets


def used(device: str) -> float:
    """GB of the device, of all processes."""
    if device == "cpu":
        return 0.0
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / 2**30, 3)


class Alone:
    """The gradient of one process, of any rows."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.model, self.data, self.device = perceptron(WIDTH).to(device), points(), device

    def differs(self, model: nn.Module, rows: Any) -> float:
        """By how much the gradients of another model differ, relative, where parameters are equal."""
        self.model.load_state_dict(model.state_dict())
        self.model.zero_grad()
        inputs, targets = (one[torch.from_numpy(rows)].to(self.device) for one in self.data)
        nn.functional.cross_entropy(self.model(inputs), targets).backward()
        pairs = zip(model.parameters(), self.model.parameters(), strict=True)
        return max(
            float((p.grad - q.grad).norm() / q.grad.norm()) for p, q in pairs if p.grad is not None and q.grad is not None
        )


class Killer:
    """Kills all but one worker of each group, once a round: while the master adds, or while they compute."""

    def __init__(self, run: Coded, seed: int = 0) -> None:
        self.engine: Any = run.master.engine
        self.random, self.killed, self.left = random.Random(seed), 0, 0
        self.workers = range(run.code.n)
        parts = [frozenset(part for part, _ in run.code.program(worker).tasks) for worker in self.workers]
        self.groups = [{w for w in self.workers if parts[w] == same} for same in sorted(set(parts), key=sorted)]

    def alive(self) -> list[int]:
        return [worker for worker in self.workers if self.engine._roster.is_ready(worker) and self.engine.pid(worker)]

    def kill(self) -> None:
        """As many as can be spared, and as are left to kill."""
        alive = set(self.alive())
        groups = [sorted(alive & group) for group in self.groups]
        spare = [w for group in groups for w in self.random.sample(group, max(0, len(group) - 1))]
        for worker in spare[: self.left]:
            pid = self.engine.pid(worker)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.killed, self.left = self.killed + 1, self.left - 1

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Kill while the master adds."""
        finish = DeviceGather.finish

        def deadly(gather: Any, *args: Any) -> Any:
            self.kill()
            return finish(gather, *args)

        with patch.object(DeviceGather, "finish", deadly):
            yield

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Kill while they compute."""
        timer = threading.Timer(self.random.uniform(0.0, 0.005), self.kill)
        timer.start()
        yield
        timer.join()


def killed(count: int, device: str = "cuda") -> dict[str, Any]:
    """Steps under kills, and the memory of the device."""
    alone, before = Alone(device), used(device)
    wrong, there, again = under_kills(count, device, alone)
    gc.collect()
    torch.cuda.empty_cache()
    memory = {"before": before, "all_there": there, "all_there_again": again, "after": used(device)}
    return {"kills": count, "steps": len(wrong), "wrong": max(wrong), "memory_gb": memory}


def under_kills(count: int, device: str, alone: Alone) -> tuple[list[float], float, float]:
    """How wrong each step was, and the memory before and after the kills, when all workers were there."""
    torch.manual_seed(0)
    model = perceptron(WIDTH).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    options = {"way": "ipc", "restarts": count + 1, "start_within": PATIENCE}
    more: dict[str, Any] = {"scheme": SCHEME, "batch_size": BATCH, "device": device, "engine_options": options}
    wrong: list[float] = []
    with Coded(model, nn.CrossEntropyLoss(), points(), **more) as run:
        killer = Killer(run)

        def step() -> None:
            optimizer.zero_grad()
            rows = run.batches.batch_of(run.step)  # type: ignore[union-attr]
            assert run.backward().exact
            wrong.append(alone.differs(model, rows))
            optimizer.step()

        def settled() -> float:
            """Memory when all workers are there, and have computed."""
            until = time.monotonic() + PATIENCE
            while len(killer.alive()) < run.code.n and time.monotonic() < until:
                step()
                time.sleep(0.05)
            assert len(killer.alive()) == run.code.n
            for _ in range(5):
                step()
            return used(device)

        there = settled()
        while killer.killed < count:
            if len(killer.alive()) > len(killer.groups):
                killer.left = min(count - killer.killed, run.code.n)
                with killer.adding() if len(wrong) % 2 else killer.computing():
                    step()
                killer.left = 0
            else:
                time.sleep(0.02)
                step()
        return wrong, there, settled()


def said(error: BaseException) -> str:
    """The kind of an error, and how its text ends."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[-300:]}"


def short_of_memory(scheme: str) -> dict[str, Any]:
    """One worker runs out of memory in every step."""
    with tempfile.TemporaryDirectory() as folder, environment({FILE: os.path.join(folder, "who")}):
        return tried(scheme, lambda: None, forward=faulty, check=False)


@contextlib.contextmanager
def blind(worker: int, at_once: bool) -> Iterator[Callable[[], None]]:
    """Processes of a worker of `Local(start_method="spawn")` start where no device is visible; those that start after a call of
    what this gives, if not at once."""
    started, hidden = Cradle._started, at_once

    def hide() -> None:
        nonlocal hidden
        hidden = True

    def start(cradle: Cradle, channels: Any, *more: Any) -> Any:
        whose = cradle.code.messages.worker[list(cradle.memory.slots).index(channels.slots[0])]
        with environment({"CUDA_VISIBLE_DEVICES": ""}) if whose == worker and hidden else contextlib.nullcontext():
            return started(cradle, channels, *more)

    with patch.object(Cradle, "_started", start):
        yield hide


def without_device(scheme: str, later: bool) -> dict[str, Any]:
    """Worker 1 starts where no device is visible; later: when it is started again."""
    with blind(1, at_once=not later) as hide:
        return tried(scheme, hide, {"start_method": "spawn", "restarts": 1})


def tried(scheme: str, then: Any, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Some steps; what went wrong, or that they were right. then: called before worker 1 is killed, where options are given."""
    alone, wrong = Alone("cuda"), []
    torch.manual_seed(0)
    model = perceptron(WIDTH).to("cuda")
    try:
        with Coded(
            model,
            nn.CrossEntropyLoss(),
            points(),
            scheme=scheme,
            batch_size=BATCH,
            device="cuda",
            engine_options=options,
            **more,
        ) as run:
            for step in range(6):
                if step == 2 and options is not None:
                    then()
                    os.kill(run.master.engine.pid(1), signal.SIGKILL)  # type: ignore[attr-defined]
                model.zero_grad()
                rows = run.batches.batch_of(run.step)
                assert run.backward().exact
                wrong.append(alone.differs(model, rows))
    except UnstraggleError as error:
        return {"scheme": scheme, "ends": said(error)}
    return {"scheme": scheme, "ends": "right", "steps": len(wrong), "wrong": max(wrong)}


def main(path: Path, count: int) -> None:
    about = of_device("device_faults", __doc__)
    found: dict[str, Any] = {}
    for name, what in {
        "memory_error": lambda: [short_of_memory(scheme) for scheme in ("fractional_repetition(2, s=1)", "uncoded(2)")],
        "no_device": lambda: [without_device("fractional_repetition(2, s=1)", True), without_device("uncoded(2)", True)],
        "no_device_at_the_start": lambda: [without_device("fractional_repetition(2, s=1)", False)],
        "killed": lambda: killed(count),
    }.items():
        began = time.perf_counter()
        found[name] = what()
        print(name, json.dumps(found[name]), f"{time.perf_counter() - began:.0f} s", flush=True)
        path.write_text(json.dumps(about | found, indent=1) + "\n")


if __name__ == "__main__":
    words = sys.argv[1:]
    main(Path(words[0]) if words else RESULTS / "device_faults.json", int(words[1]) if words[1:] else 200)
