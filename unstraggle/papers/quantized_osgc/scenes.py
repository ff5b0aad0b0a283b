"""Pictures for the detector of figure 4 of [C]: scenes of handwritten digits, which need no network, or those of COCO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import Invalid
from ...problems.coco import Coco
from ...torch.module import TorchModule
from .detection import STRIDE, Found, average_precision, detector, found_in, goals, mean_loss
from .problems import BATCH, HELD_OUT, _mnist, _seeded

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

SIDE, COCO_SIDE = 32, 96
TRAINED, LOOKED_AT = 2000, 200
"""Pictures to train on, and held-out ones on which precision is computed."""

FREQUENT = 10
"""Categories of COCO that the small detector learns, those with most boxes."""

DIGITS = 3
"""Kinds of objects in scenes, the digits 0, 1 and 2: in 200 steps a small detector learns no more."""

DIGIT = (12, 18)
"""Least and greatest side of a digit in a scene, in pixels."""

COCO = "coco:"
"""A problem named coco:DIR has COCO's pictures, in DIR as they are published."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """images (m, channels, side, side), their objects' boxes and labels, and the labels' names."""

    images: Tensor
    boxes: tuple[Floats, ...]
    labels: tuple[Ints, ...]
    names: tuple[str, ...]

    @property
    def truth(self) -> list[tuple[Floats, Ints]]:
        return list(zip(self.boxes, self.labels, strict=True))

    def goals(self, stride: int = STRIDE) -> Tensor:
        """(m, 5, cells, cells) what a detector should say."""
        cells = self.images.shape[-1] // stride
        return torch.from_numpy(np.stack([goals(boxes, labels, cells, stride) for boxes, labels in self.truth]))


def is_detection(name: str) -> bool:
    """Whether a problem of this name trains a detector."""
    return name == "scenes" or name.startswith(COCO)


def pictures(name: str, held_out: bool) -> Pictures:
    """Those to train on, or held-out ones, of the problem "scenes" or "coco:DIR"."""
    if not name.startswith(COCO):
        return scenes(LOOKED_AT if held_out else TRAINED, held_out)
    return coco(Path(name.removeprefix(COCO)), held_out)


@cache
def scenes(count: int, held_out: bool) -> Pictures:
    """One or two digits of different sizes in noise and scraps of other digits, apart from one another."""
    images, labels = _mnist()
    mine = np.flatnonzero((labels < DIGITS) & ((np.arange(len(labels)) < HELD_OUT) == held_out))
    rng = np.random.default_rng(int(held_out))
    made = [_scene(images[mine, 0], labels[mine], rng) for _ in range(count)]
    drawn, boxes, kinds = zip(*made, strict=True)
    return Pictures(torch.from_numpy(np.stack(drawn)[:, None]), boxes, kinds, tuple("0123456789"[:DIGITS]))


def _scene(digits: Floats, labels: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Ints]:
    scene = rng.normal(0, 0.3, (SIDE, SIDE)).astype(np.float32)
    for _ in range(3):
        scrap = digits[rng.integers(len(digits))][4:9, 4:9]
        row, column = rng.integers(0, SIDE - 5, 2)
        scene[row : row + 5, column : column + 5] += 0.6 * scrap
    boxes: list[list[float]] = []
    kinds = []
    for number in rng.integers(len(digits), size=rng.integers(1, 3)):
        side = int(rng.integers(*DIGIT))
        place = _free(boxes, side, rng)
        if place is not None:
            row, column = place
            scene[row : row + side, column : column + side] += _scaled(digits[number], side)
            boxes.append([column, row, column + side, row + side])
            kinds.append(int(labels[number]))
    return scene, np.array(boxes, dtype=np.float32), np.array(kinds, dtype=np.int64)


def _free(boxes: Sequence[Sequence[float]], side: int, rng: np.random.Generator) -> tuple[int, int] | None:
    """Row and column of a square that touches no box; None where twenty tries found none."""
    for row, column in rng.integers(0, SIDE - side + 1, (20, 2)).tolist():
        if all(column >= b[2] or row >= b[3] or column + side <= b[0] or row + side <= b[1] for b in boxes):
            return row, column
    return None


def _scaled(image: Floats, side: int) -> Floats:
    """A digit of another size, with the background at zero."""
    ink = torch.from_numpy(image - image.min())[None, None]
    return np.asarray(nn.functional.interpolate(ink, size=(side, side), mode="bilinear")[0, 0])


@cache
def coco(folder: Path, held_out: bool, side: int = COCO_SIDE, frequent: int | None = FREQUENT, count: int = 0) -> Pictures:
    """The first pictures of COCO, made square, with the boxes of the categories that are most frequent in its training data."""
    kind = "val2017" if held_out else "train2017"
    data = Coco.read(
        folder / "annotations" / f"instances_{kind}.json", folder / kind, count or (LOOKED_AT if held_out else TRAINED)
    )
    used = _categories(data) if not held_out else coco_categories(folder, count)
    used = used[:frequent]
    kept = [np.isin(categories, used) for categories in data.categories]
    some = [number for number, mask in enumerate(kept) if mask.any()]
    if not some:
        raise Invalid(f"{folder}: no picture of {kind} has a box of the categories {used}. Give a larger part of COCO.")
    images, boxes = zip(*(_square(data, number, side) for number in some), strict=True)
    labels = [np.searchsorted(np.sort(used), data.categories[number][kept[number]]) for number in some]
    names = tuple(data.names.get(category, str(category)) for category in sorted(used))
    own = tuple(box[kept[number]] for box, number in zip(boxes, some, strict=True))
    return Pictures(torch.from_numpy(np.stack(images)), own, tuple(labels), names)


@cache
def coco_categories(folder: Path, count: int = 0) -> tuple[int, ...]:
    """Categories of the pictures to train on, the most frequent first."""
    kind = "train2017"
    return _categories(Coco.read(folder / "annotations" / f"instances_{kind}.json", folder / kind, count or TRAINED))


def _categories(data: Coco) -> tuple[int, ...]:
    counts = Counter(int(category) for some in data.categories for category in some)
    return tuple(category for category, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _square(data: Coco, number: int, side: int) -> tuple[Floats, Floats]:
    """A picture scaled to a square, about zero, and its boxes in the new pixels."""
    image = torch.from_numpy(data.image(number))
    height, width = image.shape[1:]
    scaled = nn.functional.interpolate(image[None], size=(side, side), mode="bilinear", antialias=True)[0]
    stretch = np.array([side / width, side / height] * 2, dtype=np.float32)
    return np.asarray((scaled - 0.45) / 0.25), data.boxes[number] * stretch


def detection(name: str, k: int, seed: int) -> TorchModule:
    """The detector on these pictures in k partitions."""
    data = pictures(name, held_out=False)
    size = len(data.images) // k
    if not size:
        raise Invalid(f"{name} has {len(data.images)} pictures with objects, too few for {k} partitions. Give more of them.")
    parts = list(np.arange(k * size).reshape(k, size))
    model = _seeded(lambda: detector(data.images.shape[1], len(data.names)), seed)
    return TorchModule(model, mean_loss, (data.images, data.goals()), parts, min(BATCH, size), seed)


def seen(problem: TorchModule, params: NDArray[Any], images: Tensor) -> list[Found]:
    """What the detector finds in pictures."""
    return [found_in(output) for output in problem.outputs(params, images)]


def precision(name: str, problem: TorchModule, params: NDArray[Any]) -> float:
    """AP50 on the held-out pictures."""
    data = pictures(name, held_out=True)
    return average_precision(seen(problem, params, data.images), data.truth)
