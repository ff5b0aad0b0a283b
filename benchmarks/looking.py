"""Tasks that can stop: what a look costs, alone and in networks, and what redundant tasks cost where nobody straggles.

Rounds without stragglers: waiting for all beside a multi-message code whose workers go on with redundant tasks at once, or wait
as long as the end of the round usually takes, with tasks that can be left and that cannot.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

import unstraggle as us
from unstraggle.engines.shared import Area, Board
from unstraggle.runtime.holding import Holding
from unstraggle.scheme.code import Code
from unstraggle.statistics import mean_and_half
from unstraggle.torch import Coded
from unstraggle.torch.stopping import heed

from .common import best_of, save
from .lasting import Lasting, Looking

TIMES, DIM = 20, 8
ROUNDS, WARM = int(os.environ.get("LOOKING_ROUNDS", "60")), 10
"""Rounds, and those at the start that are not kept: waiting is learned in them."""


def look() -> Callable[[], bool]:
    """The question of a worker of the local engine: two integers in shared memory."""
    board = Board(Area(Board.size(8, 8)).map(), 8, 8)
    board.round[0], board.cancelled[:] = 0, -1
    newest, cancelled = board.round.data, board.cancelled.data
    return lambda: newest[0] != 0 or cancelled[3] >= 0


def networks() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Two that are small, so that looks are many for their work: convolutions, and layers of a transformer."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for width in (3, 32, 32, 32):
        layers += [nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    convolutions = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 256, 10))
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True), 4)
    return {
        "4 convolutions, 16 images": (convolutions, torch.randn(16, 3, 16, 16)),
        "4 transformer layers, 8 sequences of 32": (encoder, torch.randn(8, 32, 128)),
    }


def passes(model: nn.Module, inputs: torch.Tensor) -> None:
    model(inputs).sum().backward()


def cost(name: str, model: nn.Module, inputs: torch.Tensor) -> dict[str, Any]:
    """Forward and backward pass without looks and with them, by turns: medians, and their ratio."""
    asked, plain, watched, looks = look(), [], [], 0

    def counted() -> bool:
        nonlocal looks
        looks += 1
        return asked()

    hooked = deepcopy(model)
    heed(hooked, counted)
    passes(hooked, inputs)
    heed(hooked, asked)
    for _ in range(TIMES):
        plain.append(_timed(model, inputs))
        watched.append(_timed(hooked, inputs))
    before, after = float(np.median(plain)), float(np.median(watched))
    return {
        "network": name,
        "looks": looks,
        "ms_without": round(1e3 * before, 3),
        "ms_with": round(1e3 * after, 3),
        "ratio": round(after / before, 4),
    }


# Rounds without stragglers


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Workers do not wait before they begin a redundant task."""
    with mock.patch.object(Holding, "hold", None):
        yield


def rounds() -> list[dict[str, Any]]:
    """8 workers whose tasks take 50 ms, but for 2 %: seconds of a round."""
    speeds = 0.05 * np.random.default_rng(0).lognormal(0, 0.02, (ROUNDS, 8))
    plain, several = us.parse_code("uncoded(8)"), us.parse_code("uncoded_mmc(8, load=2)")
    found = [_row(plain.name, "nothing redundant", round_times(plain, speeds, Lasting))]
    for kind, stops in ((Lasting, "cannot be left"), (Looking, "look every millisecond")):
        found.append(_row(several.name, f"waits, tasks {stops}", round_times(several, speeds, kind)))
        with at_once():
            found.append(_row(several.name, f"at once, tasks {stops}", round_times(several, speeds, kind)))
    return found


def round_times(code: Code, speeds: Any, kind: type[Lasting]) -> list[float]:
    tasks = zip(code.tasks.part.tolist(), code.tasks.work.tolist(), strict=True)
    problem = kind(code.k, DIM, speeds, {(part, 0): units for part, units in tasks})
    with us.Master(code, us.engines.Local(problem)) as master:
        return [_passed(lambda step=step: master.gradient(np.zeros(DIM), step)) for step in range(len(speeds))][WARM:]  # type: ignore[misc]


def steps() -> list[dict[str, Any]]:
    """A network on two workers: seconds of a step of `Coded`, whose passes look between layers."""
    torch.manual_seed(0)
    data = torch.randn(512, 3, 16, 16), torch.randint(0, 10, (512,))
    found = []
    for scheme, how in (("uncoded(2)", None), ("uncoded_mmc(2, load=2)", None), ("uncoded_mmc(2, load=2)", at_once)):
        with contextlib.nullcontext() if how is None else how():
            times = step_times(networks()["4 convolutions, 16 images"][0], data, scheme)
        said = "nothing redundant" if scheme == "uncoded(2)" else "waits" if how is None else "at once"
        found.append(_row(scheme, said, times))
    return found


def step_times(model: nn.Module, data: Any, scheme: str) -> list[float]:
    with Coded(model, nn.CrossEntropyLoss(), data, scheme=scheme, batch_size=128, check=False) as run:
        return [_passed(run.backward) for _ in range(ROUNDS)][WARM:]


def _row(scheme: str, how: str, seconds: list[float]) -> dict[str, Any]:
    mean, half = mean_and_half(np.array(seconds))
    row = {"scheme": scheme, "redundant tasks": how, "ms": [round(1e3 * float(mean), 1), round(1e3 * float(half), 1)]}
    print(row, flush=True)
    return row


def _passed(do: Callable[[], Any]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


def _timed(model: nn.Module, inputs: torch.Tensor) -> float:
    return _passed(lambda: passes(model, inputs))


def main() -> None:
    torch.set_num_threads(1)
    asked = look()
    seconds = best_of(lambda: [asked() for _ in range(10_000)]) / 10_000
    rows = [cost(name, *network) for name, network in networks().items()]
    for row in rows:
        print(row, flush=True)
    result = {"ns_a_look": round(1e9 * seconds), "times": TIMES, "networks": rows}
    save("looking", result | {"rounds": ROUNDS - WARM, "eight_workers": rounds(), "network_on_two_workers": steps()})
