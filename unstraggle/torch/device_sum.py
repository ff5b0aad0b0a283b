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
REMEMBERED = 64
"""Weights that are kept on the device: as a rule they are those of the round before."""


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
    launch = kernel()
    if launch is None:
        return _by_torch(out, weights, vectors)
    for at in range(0, len(vectors), AT_ONCE):
        report = torch.zeros(1, dtype=torch.float64, device=out.device)
        some = nine(tuple(weights[at : at + AT_ONCE]), 1.0, out.device)
        launch(out, report, some, vectors[at : at + AT_ONCE], at == 0)
    return report[0] == 0


def _by_torch(out: Tensor, weights: Sequence[float], vectors: Sequence[Tensor]) -> Tensor:
    """Where there is no Triton: a pass for each vector."""
    torch.mul(vectors[0], weights[0], out=out)
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        out.add_(vector, alpha=weight)
    return out.sum().isfinite() | out.isfinite().all()


_nines: dict[tuple[Any, ...], Tensor] = {}


def nine(weights: tuple[float, ...], factor: float, device: torch.device) -> Tensor:
    """Weights, zeros and a factor on the device, where they are as a rule already."""
    key = weights, factor, device
    if key not in _nines:
        if len(_nines) >= REMEMBERED:
            _nines.clear()
        numbers = [*weights, *[0.0] * (AT_ONCE - len(weights)), factor]
        _nines[key] = torch.tensor(numbers, dtype=torch.float64).to(device)
    return _nines[key]


@cache
def kernel() -> Any:
    """What launches the Triton kernel; None where there is no Triton."""
    try:
        from . import device_kernel
    except ImportError:
        return None
    return device_kernel.launch
