"""Outcome: what a forward pass says of some samples, in sums that can be added up over partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import Invalid

WEIGHING = (nn.CrossEntropyLoss, nn.NLLLoss)
"""Losses of torch whose mean is over weights: those of classes, or of targets that are not ignored."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """loss: over the samples, a mean or a sum as the loss function gives it; a sum where there is a denominator.

    denominator: by which the sum over all partitions is divided, such as the tokens of a batch, or the weights of its classes.
    metrics: sums that are wanted by name, such as how many answers were right.
    """

    loss: Tensor
    denominator: Tensor | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


def weighs(loss_fn: Any) -> bool:
    """Whether the mean of a loss is over weights that differ from batch to batch, and are known here."""
    return type(loss_fn) in WEIGHING and loss_fn.reduction == "mean"


def outcome_of(loss_fn: Callable[..., Any] | None, given: Any, split: bool) -> Outcome:
    """What loss_fn says of what forward gave; without loss_fn, that is the loss itself.

    It may be a number, (sum, denominator), and either with a dictionary of metrics behind. split: take a mean of torch's own
    losses apart into sum and denominator.
    """
    found = given if loss_fn is None else taken_apart(loss_fn, *given) if split else loss_fn(*given)
    if not isinstance(found, tuple | list):
        return Outcome(found)
    *numbers, last = found
    metrics: Mapping[str, Any] = {}
    if isinstance(last, Mapping):
        metrics = last
    else:
        numbers.append(last)
    if len(numbers) == 1:
        return Outcome(numbers[0], None, metrics)
    if len(numbers) != 2:
        raise Invalid(
            f"A loss is a number, or (sum, denominator), and may have a dictionary of metrics behind, but got {len(numbers)} "
            "numbers."
        )
    return Outcome(numbers[0], torch.as_tensor(numbers[1]).detach(), metrics)


def taken_apart(loss_fn: Any, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of `CrossEntropyLoss` or `NLLLoss` as (sum, denominator): what it divides by is known.

    >>> loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    >>> outputs, targets = torch.tensor([[0.1, 0.9], [0.4, 0.2], [1.0, 1.0]]), torch.tensor([1, 0, -100])
    >>> total, weights = taken_apart(loss, outputs, targets)
    >>> float(weights), bool(torch.isclose(total / weights, loss(outputs, targets)))
    (4.0, True)
    """
    weight, smooth = loss_fn.weight, getattr(loss_fn, "label_smoothing", 0.0)
    if targets.is_floating_point():  # probabilities of the classes
        total = functional.cross_entropy(outputs, targets, weight, reduction="sum", label_smoothing=smooth)
        return total, torch.tensor(float(targets.numel() // outputs.shape[min(1, outputs.ndim - 1)]))
    ignored = loss_fn.ignore_index
    if isinstance(loss_fn, nn.NLLLoss):
        total = functional.nll_loss(outputs, targets, weight, ignore_index=ignored, reduction="sum")
    else:
        total = functional.cross_entropy(
            outputs, targets, weight, ignore_index=ignored, reduction="sum", label_smoothing=smooth
        )
    counts = targets != ignored  # not a selection: its size would keep a device waiting
    if weight is None:
        return total, counts.sum().to(outputs.dtype if outputs.dtype == torch.float64 else torch.float32)
    return total, (weight[torch.where(counts, targets, 0)] * counts).sum()
