"""What is checked before the workers start: that the loss can be split over samples, and that the same seed gives the same."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import Invalid
from .problem import TorchProblem

log = logging.getLogger("unstraggle")

SAMPLES = 4
"""Samples that the checks use."""

TOLERANCE = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-6}
"""Relative difference that counts as rounding: what is wrong is wrong by much more."""


def averages(problem: TorchProblem, declared: str | None, check: bool) -> bool:
    """Whether the loss is a mean over samples (else a sum): as declared, as the loss function says, or as it turns out."""
    if declared not in (None, "mean", "sum"):
        raise Invalid(f'reduction is "mean" or "sum", but got {declared!r}. It says what loss_fn does over the samples.')
    said = declared or getattr(problem.loss_fn, "reduction", None)
    found = _measured(problem) if check else {}
    if not found:
        return said != "sum"
    fits = {name for name, fit in found.items() if fit}
    if not fits:
        raise Invalid(
            f"{problem.where(problem.batches.fullest(0), 0)}: the loss of some samples is neither the sum nor mean of their "
            "losses, so partitions cannot be computed apart. Weighted means and losses that compare samples are such: use "
            'reduction="sum" and divide by a constant, or check=False if you know better.'
        )
    if declared is not None and declared not in fits:
        raise Invalid(f'reduction="{declared}" was declared, but the loss is a {fits.pop()} over the samples. Leave it out.')
    return (said in fits and said == "mean") or "sum" not in fits


def _measured(problem: TorchProblem) -> dict[str, bool]:
    """Whether the loss of a batch is the sum, or the mean, of the losses of its two pieces, in evaluation mode."""
    part = problem.batches.fullest(0)
    size = min(SAMPLES, len(problem.batches.rows(0, part)))
    modes = {layer: layer.training for layer in problem.model.modules()}
    problem.model.eval()
    try:
        if size < 2 or _draws(problem, part):
            log.warning("Whether the loss is a sum or a mean over samples could not be checked.")
            return {}
        whole, first, rest = (_value(problem, part, piece) for piece in (slice(size), slice(1), slice(1, size)))
    finally:
        for layer, mode in modes.items():
            layer.training = mode
    allowed = TOLERANCE[problem.dtype] * (abs(first) + abs(rest)) + 1e-12
    return {"sum": abs(whole - first - rest) <= allowed, "mean": abs(whole - (first + (size - 1) * rest) / size) <= allowed}


def _draws(problem: TorchProblem, part: int) -> bool:
    """Whether the model or the dataset draws random numbers in evaluation mode, too."""
    mine, other = (_value(problem, part, slice(SAMPLES), seed=seed) for seed in (0, 1))
    return mine != other


def _value(problem: TorchProblem, part: int, piece: slice, seed: int = 0) -> float:
    """What loss_fn says of some samples of the first step."""
    before, problem.how = problem.how, replace(problem.how, mean=False, seed=seed)
    try:
        with torch.no_grad():
            loss = problem.loss(part, 0, piece)
    finally:
        problem.how = before
    assert loss is not None
    return float(loss.detach())


def require_same_again(problem: TorchProblem) -> None:
    """Compute one loss and its gradient twice: the same seed must give the same numbers."""
    part = problem.batches.fullest(0)
    first, second = (_gradient(problem, part) for _ in range(2))
    scale = max(float(first.abs().max()), 1e-30)
    difference = float((first - second).abs().max()) / scale
    if not difference <= TOLERANCE[problem.dtype]:
        raise Invalid(
            f"{problem.where(part, 0)}: two evaluations with the same seed differ by {difference:.2g} of the largest number: "
            "workers would disagree. Draw random numbers from torch, numpy or random only, in the dataset or the forward pass, "
            "and keep no state between calls; or use check=False if you know better."
        )


def _gradient(problem: TorchProblem, part: int) -> Tensor:
    loss = problem.loss(part, 0, slice(SAMPLES))
    assert loss is not None
    params = [p for p in problem.model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, params, allow_unused=True)
    return torch.cat([loss.detach().reshape(1), *(g.reshape(-1) for g in grads if g is not None)]).double()


def takes_context(forward: Any) -> bool:
    """Whether a forward function wants what goes with a step, as a third argument."""
    try:
        inspect.signature(forward).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def require_no_parameters(loss_fn: Any, model: nn.Module) -> None:
    """Refuse a loss module that would have to be trained: workers compute gradients of the model's parameters only."""
    own = set(model.parameters())
    found = [name for name, p in loss_fn.named_parameters() if p.requires_grad and p not in own] if _is_module(loss_fn) else []
    if found:
        raise Invalid(
            f"loss_fn has parameters that require a gradient ({', '.join(found)}), which would not be trained. Put it into the "
            "model, and let forward(model, batch) compute with it, or freeze them."
        )


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def unpicklable(parts: dict[str, Any]) -> str | None:
    """Which of several things cannot be sent to a worker, and why; None if all can."""
    import pickle

    for name, value in parts.items():
        try:
            pickle.dumps(value)
        except Exception as error:
            return (
                f"The {name} cannot be sent to workers: {' '.join(str(error).split())}. Define it at the top level of a module "
                "(no lambda, no function inside a function), and open files when samples are read, not before."
            )
    return None
