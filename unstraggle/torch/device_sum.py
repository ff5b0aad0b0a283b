"""Linear combinations of long vectors on a device, in one pass: weights, sum in float64, and whether all of it is finite."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..runtime.sums import settled_sum

AT_ONCE = 8
"""Vectors that the kernel adds in one pass."""


def device_sum(out: Tensor, weights: Sequence[float], vectors: Sequence[Tensor]) -> Any:
    """out = sum of weights[i] * vectors[i]. Gives whether it is finite: a bool, or a tensor of one on the device.

    >>> out = torch.empty(2)
    >>> device_sum(out, [2.0, -1.0], [torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5])]), out
    (True, tensor([1.5000, 3.5000]))
    """
    if not vectors:
        out.zero_()
        return True
    if out.device.type == "cpu":
        return settled_sum(out.numpy(), weights, [vector.numpy() for vector in vectors])
    launch = _kernel()
    if launch is None:
        return _by_torch(out, weights, vectors)
    fine = [
        launch(out, weights[at : at + AT_ONCE], vectors[at : at + AT_ONCE], at == 0) for at in range(0, len(vectors), AT_ONCE)
    ]
    return fine[-1]


def _by_torch(out: Tensor, weights: Sequence[float], vectors: Sequence[Tensor]) -> Tensor:
    """Where there is no Triton: a pass for each vector."""
    torch.mul(vectors[0], weights[0], out=out)
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        out.add_(vector, alpha=weight)
    return out.sum().isfinite() | out.isfinite().all()


@cache
def _kernel() -> Any:
    """What launches the Triton kernel; None where there is no Triton."""
    try:
        from . import device_kernel
    except ImportError:
        return None
    return device_kernel.launch
