"""Linear combinations of long vectors, in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORT = 1 << 14
"""Coordinates below which NumPy is as good as a kernel, which takes a second to load."""


def weighted_sum(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool = True
) -> NDArray[Any]:
    """out = sum of weights[i] * vectors[i], its real part, or += if not fresh; added up in float64, whatever the types.

    >>> weighted_sum(np.empty(2), [2.0, -1.0], [np.array([1.0, 2.0]), np.array([0.5, 0.5])])
    array([1.5, 3.5])
    """
    if len(out) >= SHORT and _alike(vectors) and not np.iscomplexobj(weights):
        addresses = np.array([vector.ctypes.data for vector in vectors], dtype=np.uint64)
        _kernels().add_all(out, addresses, np.asarray(weights, dtype=np.float64), np.empty(0, vectors[0].dtype), fresh)
        return out
    total = np.zeros(len(out)) if fresh else out.astype(np.float64)
    for weight, vector in zip(weights, vectors, strict=True):
        total += (weight * vector.astype(np.result_type(vector, np.float64))).real
    out[:] = total
    return out


def _alike(vectors: Sequence[NDArray[Any]]) -> bool:
    """Whether there are vectors, all of one type that the kernel takes."""
    types = {vector.dtype for vector in vectors}
    return len(types) == 1 and types <= {np.dtype("f4"), np.dtype("f8")} and all(v.flags.c_contiguous for v in vectors)


@cache
def _kernels() -> Any:
    from . import sums_kernel

    return sums_kernel
