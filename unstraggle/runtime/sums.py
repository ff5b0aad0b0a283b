"""Linear combinations of long vectors, in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..threads import cores, pool

SHORT = 1 << 14
"""Coordinates below which NumPy is as good as a kernel, which takes a second to load."""

PIECE = 1 << 17
"""Coordinates that are summed at a time."""

LONG = 1 << 20
"""Coordinates from which on two threads share the work: while the last messages are added, workers are idle."""


def weighted_sum(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool = True
) -> NDArray[Any]:
    """out = sum of weights[i] * vectors[i], its real part, or += if not fresh; added up in float64, whatever the types.

    >>> weighted_sum(np.empty(2), [2.0, -1.0], [np.array([1.0, 2.0]), np.array([0.5, 0.5])])
    array([1.5, 3.5])
    """
    if len(out) >= SHORT and _alike(vectors) and not np.iscomplexobj(weights):
        return _in_pieces(out, [float(weight.real) for weight in weights], vectors, fresh)
    total = np.zeros(len(out)) if fresh else out.astype(np.float64)
    for weight, vector in zip(weights, vectors, strict=True):
        total += (weight * vector.astype(np.result_type(vector, np.float64))).real
    out[:] = total
    return out


def finite(values: NDArray[Any]) -> bool:
    """Whether no number is NaN or infinite. The sum alone is quick, and finite as a rule.

    >>> finite(np.ones(2)), finite(np.array([1.0, np.nan])), finite(np.full(2, 1e308))
    (True, False, True)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def _in_pieces(out: NDArray[Any], weights: list[float], vectors: Sequence[NDArray[Any]], fresh: bool) -> NDArray[Any]:
    """Four vectors in one pass. Else piece by piece of the sum, each of which stays in cache while vectors are added to it."""
    kernels = _kernels()
    if len(vectors) == 4:
        return _by_threads(kernels.set_four if fresh else kernels.add_four, out, weights, vectors)
    room = np.empty(PIECE)
    for start in range(0, len(out), PIECE):
        target = out[start : start + PIECE]
        total, parts = room[: len(target)], [vector[start : start + PIECE] for vector in vectors]
        first = 4 if fresh and len(parts) >= 4 else 0
        if first:
            kernels.set_four(total, *parts[:4], *weights[:4])
        else:
            total[:] = 0.0 if fresh else target
        for at in range(first, len(parts) - 3, 4):
            kernels.add_four(total, *parts[at : at + 4], *weights[at : at + 4])
        for at in range(first + (len(parts) - first) // 4 * 4, len(parts)):
            kernels.add_one(total, parts[at], weights[at])
        target[:] = total
    return out


def _by_threads(kernel: Any, out: NDArray[Any], weights: list[float], vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One pass, by two threads where it is long."""

    def run(start: int, stop: int) -> None:
        kernel(out[start:stop], *(vector[start:stop] for vector in vectors), *weights)

    if len(out) < LONG or cores() == 1:
        run(0, len(out))
    else:
        list(pool(2).map(run, [0, len(out) // 2], [len(out) // 2, len(out)]))
    return out


def _alike(vectors: Sequence[NDArray[Any]]) -> bool:
    """Whether there are vectors, all of one type that the kernel takes."""
    types = {vector.dtype for vector in vectors}
    return len(types) == 1 and types <= {np.dtype("f4"), np.dtype("f8")} and all(v.flags.c_contiguous for v in vectors)


@cache
def _kernels() -> Any:
    from . import sums_kernel

    return sums_kernel
