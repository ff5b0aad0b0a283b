"""Tasks that can stop: what a look costs, alone and in the passes of networks that look between layers."""

import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn

from unstraggle.engines.shared import Area, Board
from unstraggle.torch.stopping import heed

from .common import best_of, save

TIMES = 20


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


def _timed(model: nn.Module, inputs: torch.Tensor) -> float:
    start = time.perf_counter()
    passes(model, inputs)
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    asked = look()
    seconds = best_of(lambda: [asked() for _ in range(10_000)]) / 10_000
    rows = [cost(name, *network) for name, network in networks().items()]
    for row in rows:
        print(row, flush=True)
    save("looking", {"ns_a_look": round(1e9 * seconds), "times": TIMES, "networks": rows})
