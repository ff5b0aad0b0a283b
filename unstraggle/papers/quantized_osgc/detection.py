"""A detector of one shot for figure 4 of [C]: a grid of cells, each of which says what is centred in it, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

STRIDE = 8
"""Pixels of a cell of the small detector."""

SAME = 0.5
"""Boxes that overlap by so much of their union are of the same object."""

SHOWN = 0.3
"""Detections with a lower score are not shown."""

LIMIT = 4.0
"""Boxes have at most exp(4) cells, whatever an untrained detector says."""


class Found(NamedTuple):
    """Objects of a picture: boxes (m, 4) as left, top, right, bottom in pixels, labels (m,) and scores (m,), 0 to 1."""

    boxes: Floats
    labels: Ints
    scores: Floats


def detector(channels: int, labels: int) -> nn.Module:
    """A small convolutional one: (samples, channels, side, side) to (samples, labels + 5, cells, cells)."""
    widths = (channels, 8, 16, 32)
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    layers += [nn.Conv2d(widths[-1], widths[-1], 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(widths[-1], labels + 5, 1))


def goals(boxes: Floats, labels: Ints, cells: int, stride: int = STRIDE) -> Floats:
    """(5, cells, cells) what to say of a picture: label, or -1 for nothing, place in the cell, logarithms of sizes.

    An object belongs to the cell of its centre, and of several in one cell the smallest counts.

    >>> [round(float(goal), 2) for goal in goals(np.array([[4.0, 8.0, 12.0, 24.0]]), np.array([3]), cells=4)[:, 2, 1]]
    [3.0, 0.0, 0.0, 0.0, 0.69]
    """
    found = np.zeros((5, cells, cells), dtype=np.float32)
    found[0] = -1
    size, centre = boxes[:, 2:] - boxes[:, :2], (boxes[:, 2:] + boxes[:, :2]) / 2 / stride
    for i in np.argsort(-size.prod(axis=1), kind="stable"):
        column, row = np.clip(centre[i].astype(int), 0, cells - 1)
        found[:, row, column] = (labels[i], *(centre[i] - (column, row)), *np.log(size[i] / stride))
    return found


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """(samples,) cross entropy of the cells with an object, of those without, and the distance of the boxes."""
    says, box = outputs[:, :-4], outputs[:, -4:]
    there = (targets[:, 0] >= 0).to(outputs.dtype)
    nothing = says.shape[1] - 1
    label = torch.where(targets[:, 0] >= 0, targets[:, 0], nothing).long()
    wrong = nn.functional.cross_entropy(says, label, reduction="none")
    off = nn.functional.smooth_l1_loss(box, targets[:, 1:], reduction="none").sum(dim=1)
    objects, empty = there.sum(dim=(1, 2)).clamp(min=1), (1 - there).sum(dim=(1, 2)).clamp(min=1)
    return ((wrong + off) * there).sum(dim=(1, 2)) / objects + (wrong * (1 - there)).sum(dim=(1, 2)) / empty


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of `losses`, as problems need it."""
    return losses(outputs, targets).mean()


def found_in(output: Tensor, stride: int = STRIDE, least: float = 0.05) -> Found:
    """What a detector that says (labels + 5, cells, cells) has found in a picture: best scores first, each object once."""
    says = torch.softmax(output[:-4].float(), dim=0)[:-1]
    scores, labels = says.max(dim=0)
    rows, columns = torch.meshgrid(*(torch.arange(n) for n in scores.shape), indexing="ij")
    centre = torch.stack([columns, rows]) + output[-4:-2].float()
    size = output[-2:].float().clamp(-LIMIT, LIMIT).exp()
    boxes = (torch.cat([centre - size / 2, centre + size / 2]) * stride).flatten(1).T.numpy()
    flat, kinds = scores.flatten().numpy(), labels.flatten().numpy().astype(np.int64)
    order = [i for i in np.argsort(-flat, kind="stable") if flat[i] >= least]
    kept: list[int] = []
    for i in order:
        same = [j for j in kept if kinds[j] == kinds[i]]
        if not same or overlaps(boxes[[i]], boxes[same]).max() < SAME:
            kept.append(int(i))
    return Found(boxes[kept], kinds[kept], flat[kept])


def overlaps(one: Floats, other: Floats) -> Floats:
    """(len(one), len(other)) intersection over union of boxes.

    >>> overlaps(np.array([[0, 0, 2, 2]]), np.array([[1, 0, 3, 2], [5, 5, 6, 6]])).round(3).tolist()
    [[0.333, 0.0]]
    """
    corner = np.maximum(one[:, None, :2], other[None, :, :2])
    inside = np.clip(np.minimum(one[:, None, 2:], other[None, :, 2:]) - corner, 0, None).prod(axis=-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(axis=1) for boxes in (one, other)]
    return np.asarray(inside / np.maximum(areas[0][:, None] + areas[1] - inside, 1e-9))


def average_precision(found: Sequence[Found], truth: Sequence[tuple[Floats, Ints]]) -> float:
    """Mean over the labels that there are of the area under precision against recall; boxes must overlap by half (AP50)."""
    labels = sorted({int(label) for _, some in truth for label in some})
    return float(np.mean([_precision_of(label, found, truth) for label in labels]))


def _precision_of(label: int, found: Sequence[Found], truth: Sequence[tuple[Floats, Ints]]) -> float:
    """Area under precision against recall for one label; precision is made to fall, as usual."""
    hits: list[tuple[float, bool]] = []
    for one, (boxes, labels) in zip(found, truth, strict=True):
        mine, there = one.labels == label, boxes[labels == label]
        hits += zip(one.scores[mine].tolist(), _right(one.boxes[mine], there), strict=True)
    right = np.array([hit for _, hit in sorted(hits, key=lambda hit: -hit[0])], dtype=float)
    objects = sum(int((labels == label).sum()) for _, labels in truth)
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1] if len(right) else precision
    return float((best * right).sum() / objects)


def _right(boxes: Floats, there: Floats) -> list[bool]:
    """Whether each box, best score first, is of an object that no earlier one is of."""
    free, found = np.ones(len(there), dtype=bool), []
    for box in boxes:
        shared = overlaps(box[None], there)[0] * free if len(there) else np.zeros(0)
        found.append(bool(len(shared) and shared.max() >= SAME))
        if found[-1]:
            free[shared.argmax()] = False
    return found


def scores_of(found: Found, boxes: Floats, labels: Ints) -> list[float]:
    """The score with which each object of a picture was found, 0 where it was not."""
    scores = []
    for box, label in zip(boxes, labels, strict=True):
        near = (found.labels == label) & (overlaps(box[None], found.boxes)[0] >= SAME) if len(found.boxes) else []
        scores.append(float(max(found.scores[near], default=0.0)) if len(found.boxes) else 0.0)
    return scores
