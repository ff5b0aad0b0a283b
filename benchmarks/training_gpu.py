"""Figures 3b, 3c and the detector of paper [C] at full size on one GPU: ResNet-50, a GPT-2-sized transformer, SSDLite.

Run it on a machine with CUDA and torchvision: python -m benchmarks.training_gpu [RESULT.json] [SECONDS] [MODEL ...]
A MODEL is resnet, transformer or detector; rows of the other models in RESULT.json stay.
The data are synthetic but learnable (ResNet-50, SSDLite) or the text of Python's manual (transformer). Workers take turns on
the GPU; their gradients, quantised messages and the decoding are real. SGD computes all partitions as one batch.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unstraggle.papers.quantized_osgc.schemes import Cluster, scheme, straggle_probabilities
from unstraggle.problems.coco import Coco
from unstraggle.runtime.payload import rounding_seed

from .common import RESULTS

WORKERS, EACH = 50, 7
SCHEMES = ("SGD", "proposed", "OSGC")
EVERY, SEEDS = 10, (0, 1)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Batch = Any
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    """A model, its mean loss on a batch, its batches by (partition, step) and how several become one, and what is tried."""

    name: str
    build: Callable[[], nn.Module]
    loss: Loss
    batch: Callable[[int, int], Batch]
    join: Callable[[list[Batch]], Batch]
    rates: tuple[float, ...]
    steps: int


class Block(nn.Module):
    """A layer of GPT-2: attention and a perceptron, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.ask(self.first(x)).chunk(3, dim=-1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.answer(seen.transpose(1, 2).flatten(-2))
        return x + self.think(self.second(x))


class GPT2(nn.Module):
    """The 124 M parameters of GPT-2 small: 12 layers of width 768, 50,257 tokens, tied embeddings."""

    def __init__(self, tokens: int = 50257, width: int = 768, layers: int = 12, length: int = 1024) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Block(width, 12) for _ in range(layers)))
        self.last = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.layers(self.token(text) + self.place.weight[: text.shape[1]])
        return self.last(x) @ self.token.weight.T


def group_norm(channels: int) -> nn.Module:
    """In place of batch normalisation, whose statistics would depend on who computes what."""
    return nn.GroupNorm(8, channels)


def resnet() -> Task:
    """Ten patterns, shifted by up to 8 pixels and noisy, in 64 x 64 pixels."""
    from torchvision.models import resnet50

    patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)

    @cache  # every run takes the same batches, and drawing them takes longer than SGD
    def batch(part: int, step: int, size: int = 8) -> Batch:
        generator = torch.Generator().manual_seed(hash((part, step)) % 2**31)
        labels, noise = torch.randint(0, 10, (size,), generator=generator), torch.randn(size, 3, 64, 64, generator=generator)
        shift = torch.randint(0, 9, (2,), generator=generator).tolist()
        images = nn.functional.interpolate(patterns[labels.to(DEVICE)], size=64, mode="bilinear").roll(shift, (2, 3))
        return images + noise.to(DEVICE), labels.to(DEVICE)

    def loss(model: nn.Module, b: Batch) -> Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return nn.functional.cross_entropy(model(b[0]).float(), b[1])

    def join(batches: list[Batch]) -> Batch:
        return tuple(torch.cat(column) for column in zip(*batches, strict=True))

    build = partial(resnet50, weights=None, norm_layer=group_norm, zero_init_residual=True)
    return Task("ResNet-50", build, loss, batch, join, (0.03, 0.1, 0.3), 100)


def transformer() -> Task:
    """Next bytes of pydoc_data.topics, sequences of 256."""
    from pydoc_data.topics import topics

    text = torch.tensor(list("\n\n".join(topics[name] for name in sorted(topics)).encode())).to(DEVICE)
    size = len(text) // WORKERS

    def batch(part: int, step: int, count: int = 2) -> Batch:
        generator = torch.Generator().manual_seed(hash((part, step)) % 2**31)
        starts = part * size + torch.randint(0, size - 257, (count,), generator=generator)
        return torch.stack([text[start : start + 257] for start in starts.tolist()])

    def loss(model: nn.Module, b: Batch) -> Tensor:
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            return nn.functional.cross_entropy(model(b[:, :-1]).flatten(0, 1), b[:, 1:].flatten())

    return Task("GPT-2, 124 M", GPT2, loss, batch, torch.cat, (0.01, 0.03, 0.1), 100)


def detector() -> Task:
    """SSDLite320 with MobileNetV3-Large, 91 classes, on pictures of coloured squares that are stored and read as COCO."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    folder = Path(tempfile.mkdtemp())
    data = Coco.read(draw_squares(folder, 400), folder)
    images = [torch.from_numpy(data.image(i)).to(DEVICE) for i in range(len(data))]
    goals = [
        {"boxes": torch.from_numpy(b).to(DEVICE), "labels": torch.from_numpy(c).to(DEVICE)}
        for b, c in zip(data.boxes, data.categories, strict=True)
    ]

    def batch(part: int, step: int, size: int = 4) -> Batch:
        mine = np.arange(part, len(data), WORKERS)
        picked = np.random.default_rng((part, step)).choice(mine, size, replace=False).tolist()
        return [images[i] for i in picked], [goals[i] for i in picked]

    def loss(model: nn.Module, b: Batch) -> Tensor:
        found: dict[str, Tensor] = model(*b)
        return sum(found.values(), torch.zeros((), device=DEVICE))

    def join(batches: list[Batch]) -> Batch:
        return tuple([one for part in column for one in part] for column in zip(*batches, strict=True))

    build = partial(ssdlite320_mobilenet_v3_large, weights=None, weights_backbone=None, num_classes=91, norm_layer=group_norm)
    return Task("SSDLite, MobileNetV3-Large", build, loss, batch, join, (0.003, 0.01), 40)


def draw_squares(folder: Path, count: int) -> Path:
    """Pictures with one to three squares in five colours, and their annotation file."""
    from PIL import Image

    rng, colours = np.random.default_rng(0), np.array([(255, 0, 0), (0, 200, 0), (0, 0, 255), (240, 220, 0), (0, 220, 220)])
    images, boxes = [], []
    for number in range(count):
        pixels = rng.integers(90, 166, (320, 320, 3))
        for _ in range(int(rng.integers(1, 4))):
            side, kind = int(rng.integers(40, 140)), int(rng.integers(5))
            left, top = rng.integers(0, 320 - side, 2).tolist()
            pixels[top : top + side, left : left + side] = colours[kind]
            box = {"id": len(boxes), "image_id": number, "bbox": [left, top, side, side], "category_id": kind + 1}
            boxes.append(box | {"iscrowd": 0})
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": 320, "height": 320})
    names = [{"id": kind + 1, "name": f"colour {kind}"} for kind in range(5)]
    path = folder / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": boxes, "categories": names}))
    return path


def gradient(model: nn.Module, task: Task, parts: list[tuple[int, float]], step: int) -> Tensor:
    """(dim,) sum of coefficients times partial gradients: each partition's loss is scaled, and autograd adds up."""
    model.zero_grad(set_to_none=True)
    for part, coef in parts:
        (coef * task.loss(model, task.batch(part, step))).backward()
    return flat_gradient(model)


def whole_gradient(model: nn.Module, task: Task, step: int) -> Tensor:
    """(dim,) the mean gradient of all partitions."""
    model.zero_grad(set_to_none=True)
    task.loss(model, task.join([task.batch(part, step) for part in range(WORKERS)])).backward()
    return flat_gradient(model)


def flat_gradient(model: nn.Module) -> Tensor:
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in model.parameters()])


def estimate(model: nn.Module, task: Task, code: Any, arrived: Any, step: int) -> tuple[Tensor, float, float]:
    """The decoded mean gradient, bits sent and seconds spent on quantising and decoding."""
    got = arrived[code.messages.worker]
    weights, total, bits, seconds = code.decoder.weights(got)[0], None, 0.0, 0.0
    for m in np.flatnonzero(got).tolist():
        row = code.messages.coef[[m]]
        message = gradient(model, task, list(zip(row.indices.tolist(), row.data.tolist(), strict=True)), step)
        wait()
        start, codec = time.perf_counter(), code.messages.codec[m]
        read = torch.as_tensor(codec.decode(codec.encode(message, rounding_seed(step, m))), device=DEVICE)
        total = weights[m] * read if total is None else total.add_(read, alpha=weights[m])
        wait()
        seconds += time.perf_counter() - start
        bits += int(code.messages.bits[m]) * len(message) + 32
    return torch.zeros(dim(model), device=DEVICE) if total is None else total / WORKERS, bits, seconds


def dim(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def step_along(model: nn.Module, direction: Tensor, rate: float) -> None:
    with torch.no_grad():
        for p, piece in zip(model.parameters(), direction.split([p.numel() for p in model.parameters()]), strict=True):
            p.add_(piece.view(p.shape), alpha=-rate)


def probe(model: nn.Module, task: Task) -> float:
    """Mean loss of seventeen batches that no step uses."""
    with torch.no_grad():
        return float(np.mean([task.loss(model, task.batch(part, 10**6)).item() for part in range(0, WORKERS, 3)]))


def wait() -> None:
    """Until the GPU has done what it was told."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def train(task: Task, label: str, rate: float, seed: int, until: float) -> dict[str, Any] | None:
    """Losses every few steps; None where time is up. seed: of the weights and of who straggles."""
    torch.manual_seed(seed)
    model = task.build().to(DEVICE).train()
    p, size = tuple(straggle_probabilities(WORKERS).tolist()), dim(model)
    code = scheme(label, Cluster(p, EACH * WORKERS, size)).code
    arrived = np.random.default_rng(7 + seed).random((task.steps, WORKERS)) >= np.array(p)
    losses, bits, quantising, start = [probe(model, task)], 0.0, 0.0, time.perf_counter()
    for step in range(task.steps):
        if code is None:
            direction, sent, spent = whole_gradient(model, task, step), 32.0 * WORKERS * size, 0.0
        else:
            direction, sent, spent = estimate(model, task, code, arrived[step], step)
        step_along(model, direction, rate)
        bits, quantising = bits + sent, quantising + spent
        if (step + 1) % EVERY == 0:
            losses.append(probe(model, task))
            if not losses[-1] < 3 * losses[0]:
                break
        if time.perf_counter() > until:
            return None
    wait()
    seconds = time.perf_counter() - start
    found = {"losses": [round(x, 4) for x in losses], "gigabits_a_step": bits / 1e9 / (step + 1), "seconds": round(seconds, 2)}
    found |= {"quantising_seconds": round(quantising, 3), "parameters": size, "steps": step + 1}
    return {"model": task.name, "scheme": label, "rate": rate, "seed": seed, "finished": losses[-1] < 3 * losses[0], **found}


def main(path: Path, seconds: float, names: list[str]) -> None:
    """Every seed, rate and scheme of the named models while there is time; what is done is written."""
    start, makes = time.perf_counter(), {make.__name__: make for make in (resnet, transformer, detector)}
    tasks = [task for task in (attempt(makes[name]) for name in names) if task]
    known = json.loads(path.read_text())["runs"] if path.exists() else []
    rows = [row for row in known if row["model"] not in [task.name for task in tasks]]
    for number, task in enumerate(tasks, 1):
        until = start + seconds * number / len(tasks)
        for seed, rate, label in product(SEEDS, task.rates, SCHEMES):
            row = train(task, label, rate, seed, until)
            rows += [row] if row else []
            print(row or f"no time for {task.name}, {label}, {rate}, seed {seed}", flush=True)
            write(path, rows)


def attempt(make: Callable[[], Task]) -> Task | None:
    try:
        return make()
    except ImportError as error:
        print(f"{make.__name__} is left out: {error}")
        return None


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    about = {
        "benchmark": "training_gpu",
        "repeat": "python -m benchmarks.training_gpu",
        "date": date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU",
        "versions": {"torch": torch.__version__},
        "setting": f"n=k={WORKERS}, B={EACH * WORKERS}, one norm per message, losses every {EVERY} steps",
    }
    path.write_text(json.dumps(about | {"runs": rows}, indent=1) + "\n")


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = True
    given = sys.argv[1:]
    target = Path(given[0]) if given else RESULTS / "training_gpu.json"
    main(target, float(given[1]) if len(given) > 1 else 1800.0, given[2:] or ["resnet", "transformer", "detector"])
