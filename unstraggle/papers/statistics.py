"""Means over runs and their intervals."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t


def mean_and_half(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over runs, the first axis, and half the width of its 95 % interval (Student's t); nan for a single run.

    >>> mean, half = mean_and_half(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), round(float(half), 3)
    (2.0, 2.484)
    """
    count = len(values)
    if count < 2:
        return values.mean(axis=0), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), np.asarray(t.ppf(0.975, count - 1) * values.std(axis=0, ddof=1) / sqrt(count))
