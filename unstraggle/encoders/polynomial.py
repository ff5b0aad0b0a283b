"""The polynomial (Reed-Solomon) code of Halbawi et al. (ISIT 2018), for any mask."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .support import scaled

REAL_LIMIT = 12
"""Most messages of the real form: beyond it, float64 loses the gradient."""


def polynomial(mask: NDArray[np.bool_], field: Literal["complex", "real"] = "complex") -> NDArray[Any]:
    """(R, k) values at the messages' points of polynomials that are 1 at a common point and 0 where the mask is empty.

    Partition j has the polynomial f_j; the messages are values of sum_j g_j f_j, whose value at the common point is the
    gradient. Complex: roots of unity and the point 0. Real: Chebyshev points, usable for few messages only.
    """
    points, centre = _points(len(mask), field)
    factors = (points[:, None] - points[None, :]) / (centre - points)[None, :]
    columns = [np.where(held, factors[:, ~held].prod(axis=1), 0) for held in mask.T]
    return scaled(np.stack(columns, axis=1))


def _points(size: int, field: str) -> tuple[NDArray[Any], float]:
    if field == "complex":
        return np.exp(2j * np.pi * np.arange(size) / size), 0.0
    if field != "real":
        raise Invalid(f'field must be "complex" or "real", but got {field!r}.')
    if size > REAL_LIMIT:
        raise Invalid(
            f"The real polynomial code keeps its digits up to {REAL_LIMIT} messages only, but got {size}. "
            'Use field="complex", or cyclic_repetition, which is real for any n.'
        )
    points = np.cos(np.pi * (2 * np.arange(size) + 1) / (2 * size))
    return points, 0.5 * float(points[size // 2 - 1] + points[size // 2]) if size > 1 else 2.0
