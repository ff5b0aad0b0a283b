"""What is trained: a model, its data in k partitions, and the loss of each sample."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from unstraggle.errors import Invalid
from unstraggle.papers.quantized_osgc.detection import STRIDE
from unstraggle.papers.quantized_osgc.detection import losses as detection_losses
from unstraggle.papers.quantized_osgc.scenes import coco

from .models import GPT2, Detector, resnet50, small_convolutions

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PARTS = 50
COCO_PICTURES = 4000
"""Of COCO's training data, held in memory."""


@dataclass(frozen=True, eq=False)
class Task:
    """batch(seed, step): inputs (k, size, ...) and goals of all partitions. losses(model, x, y): (samples,).

    rate: where the search for a scheme's learning rate starts. workers: as many as partitions.
    """

    name: str
    about: str
    build: Callable[[], nn.Module]
    batch: Callable[[int, int], tuple[Tensor, Tensor]]
    losses: Callable[[nn.Module, Tensor, Tensor], Tensor]
    rate: float
    workers: int = PARTS


def mixed() -> torch.autocast:
    """bfloat16 products on the GPU. Without a cache of converted weights, which recorded graphs cannot have."""
    return torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda", cache_enabled=False)


def pictures(build: Callable[[], nn.Module] = resnet50, size: int = 4, pixels: int = 64, parts: int = PARTS) -> Task:
    """Ten patterns of 8 x 8, enlarged, shifted by up to 8 pixels, noisy; `size` of them per partition and step."""
    patterns = torch.randn(10, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    large = nn.functional.interpolate(patterns, size=pixels, mode="bilinear")

    def batch(seed: int, step: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator(DEVICE).manual_seed(1_000_003 * seed + step)
        labels = torch.randint(0, 10, (parts * size,), generator=random, device=DEVICE)
        shift = torch.randint(0, 9, (2, parts * size, 1), generator=random, device=DEVICE)
        down, right = ((torch.arange(pixels, device=DEVICE) - s) % pixels for s in shift)
        places = torch.arange(parts * size, device=DEVICE)[:, None, None]
        moved = large[labels].transpose(1, 3)[places, right[:, :, None], down[:, None, :]].permute(0, 3, 2, 1)
        noisy = moved + torch.randn(moved.shape, generator=random, device=DEVICE)
        return noisy.unflatten(0, (parts, size)), labels.unflatten(0, (parts, size))

    def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with mixed():
            return nn.functional.cross_entropy(model(x).float(), y, reduction="none")

    about = f"ten noisy patterns, shifted by up to 8 pixels, {pixels} x {pixels}, {size} per partition"
    return Task("ResNet-50", about, build, batch, losses, 0.1, parts)


def text(build: Callable[[], nn.Module] = GPT2, size: int = 2, length: int = 64, parts: int = PARTS) -> Task:
    """Next bytes of pydoc_data.topics; each partition is a stretch of its own, `size` sequences of it per step."""
    from pydoc_data.topics import topics

    book = torch.tensor(list("\n\n".join(topics[name] for name in sorted(topics)).encode())).to(DEVICE)
    stretch = len(book) // parts

    def batch(seed: int, step: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator(DEVICE).manual_seed(1_000_003 * seed + step)
        starts = torch.randint(0, stretch - length - 1, (parts, size, 1), generator=random, device=DEVICE)
        starts = starts + stretch * torch.arange(parts, device=DEVICE)[:, None, None]
        found = book[starts + torch.arange(length + 1, device=DEVICE)]
        return found[..., :-1], found[..., 1:]

    def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with mixed():
            scores = model(x)
        return nn.functional.cross_entropy(scores.float().transpose(1, 2), y, reduction="none").mean(dim=1)

    about = f"Python's manual, bytes, {size} sequences of {length} per partition"
    return Task("GPT-2, 124 M", about, build, batch, losses, 0.03, parts)


def detection(
    folder: Path, build: Callable[[int], nn.Module] = Detector, size: int = 4, side: int = 320, parts: int = PARTS
) -> Task:
    """Objects in COCO's first pictures, made square, all categories; `size` of a partition's pictures per step.

    What is to be said is a grid, as in figure 4, so that a recorded pass has the same shape for every picture.
    """
    stride = 32 if build is Detector else STRIDE
    data = coco(folder, held_out=False, side=side, frequent=None, count=COCO_PICTURES)
    stretch = len(data.images) // parts
    if not stretch:
        raise Invalid(
            f"{folder} has {len(data.images)} pictures with objects, too few for {parts} partitions. Give more of COCO."
        )
    images, goals = data.images[: stretch * parts].to(DEVICE), data.goals(stride)[: stretch * parts].to(DEVICE)

    def batch(seed: int, step: int) -> tuple[Tensor, Tensor]:
        random = torch.Generator(DEVICE).manual_seed(1_000_003 * seed + step)
        rows = torch.randint(0, stretch, (parts, size), generator=random, device=DEVICE)
        rows = rows + stretch * torch.arange(parts, device=DEVICE)[:, None]
        return images[rows], goals[rows]

    def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with mixed():
            said = model(x)
        return detection_losses(said.float(), y)

    about = f"{len(data.images)} pictures of COCO, {side} x {side}, {len(data.names)} categories, {size} per partition"
    return Task("detector, COCO", about, lambda: build(len(data.names)), batch, losses, 0.1, parts)


def small(task: Callable[..., Task], parts: int = 6) -> Task:
    """The same task with a tiny model and few workers, for tests on a CPU."""
    if task is text:
        found = text(partial(GPT2, tokens=256, width=16, layers=1, length=16, heads=2), size=2, length=16, parts=parts)
    else:
        found = pictures(small_convolutions, size=2, pixels=16, parts=parts)
    return replace(found, name=f"small {found.name}")


TASKS: dict[str, Callable[..., Task]] = {"resnet": pictures, "transformer": text}
"""Those that need no data from elsewhere; with a folder of COCO, `detection` is one more."""
