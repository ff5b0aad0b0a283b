"""Masks: which message may contain which partial gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid


def cyclic_mask(n: int, load: int) -> NDArray[np.bool_]:
    """Row i holds i, i + 1, ..., i + load - 1 (mod n).

    >>> cyclic_mask(4, 2).astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
    """
    return (np.arange(n)[None, :] - np.arange(n)[:, None]) % n < load


def threshold(mask: NDArray[np.bool_]) -> int:
    """Rows that always suffice: one more than the most rows that miss a partition."""
    return int((~mask).sum(axis=0).max()) + 1


def require_mask(mask: Any) -> NDArray[np.bool_]:
    """A two-dimensional boolean mask in which every row and every column has an entry."""
    array = np.asarray(mask).astype(bool)
    if array.ndim != 2 or not array.size or not array.any(axis=0).all() or not array.any(axis=1).all():
        raise Invalid(
            f"A mask is a table messages x partitions with an entry in every row and column, but got shape {array.shape} "
            "or an empty row or column. Give every partition to a worker and every worker a partition."
        )
    return array


def scaled(matrix: NDArray[Any]) -> NDArray[Any]:
    """Each row divided by its largest entry: scaling a message changes nothing in what can be decoded."""
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    return np.asarray(matrix / largest)
