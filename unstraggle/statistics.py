"""Means over runs or rounds, savings, and their intervals."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

NORMAL_975 = 1.959964
"""Half the width of a 95 % interval, in standard errors."""

FEWEST, BATCHES, SHORTEST = 10, 50, 10
"""Batches of what follows one another, at least and at most so many, of at least so many values each."""


def mean_and_half(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over runs, the first axis, and half the width of its 95 % interval (Student's t); nan for a single run.

    >>> mean, half = mean_and_half(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), round(float(half), 3)
    (2.0, 2.484)
    """
    from scipy.stats import t  # slow to load, and few need it

    count = len(values)
    if count < 2:
        return values.mean(axis=0), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), np.asarray(t.ppf(0.975, count - 1) * values.std(axis=0, ddof=1) / sqrt(count))


def ratio_and_half(above: NDArray[Any], below: NDArray[Any]) -> tuple[float, float]:
    """Ratio of the means of two quantities over the same runs, and half the width of its 95 % interval; nan for a single run.

    >>> ratio, half = ratio_and_half(np.array([2.0, 4.1, 6.0]), np.array([1.0, 2.0, 3.0]))
    >>> round(ratio, 3), round(half, 3)
    (2.017, 0.075)
    """
    ratio = float(above.mean() / below.mean())
    return ratio, float(mean_and_half(above - ratio * below)[1] / below.mean())


def batch_means(values: NDArray[Any]) -> NDArray[Any]:
    """Means of equal batches of values that follow one another, independent enough for an interval; few are left as they are.

    >>> batch_means(np.arange(100.0))[:3].tolist()
    [4.5, 14.5, 24.5]
    """
    batches = min(BATCHES, len(values) // SHORTEST)
    if batches < FEWEST:
        return values
    size = len(values) // batches
    return np.asarray(values[: batches * size].reshape(batches, size).mean(axis=1, dtype=np.float64))


def saving_of(
    times: NDArray[np.float64], wait: NDArray[np.float64], chained: bool = False
) -> tuple[float, tuple[float, float]]:
    """Share of the mean waiting time that is saved, with the interval of a ratio of paired means.

    chained: rounds follow one another and hang together.
    """
    if not np.isfinite(times).all() or not np.isfinite(wait).all():
        saved = 1.0 if np.isfinite(times).all() else 0.0 if np.isinf(wait).any() else -np.inf
        return saved, (saved, saved)
    ratio = float(times.mean() / wait.mean())
    gaps = times - ratio * wait
    gaps = batch_means(gaps) if chained else gaps
    half = NORMAL_975 * float(gaps.std(ddof=1) / np.sqrt(len(gaps)) / wait.mean())
    return 1 - ratio, (1 - ratio - half, 1 - ratio + half)
