"""The paper's own low-complexity bit allocation: nested sets of the most reliable workers ([C] section III-B, Algorithm 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .bits_solvers import hull_slopes

FINE = 16
"""Steps into which the relaxation divides a bit."""

GAIN = 1e-12
"""A swap of one bit must gain more than this."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def nested_subsets(p: Floats, omega: Floats, gamma: float, residual: int) -> Counts:
    """(n,) bits beyond 2. For K = 1, 2, ... the K smallest p share everything: by Lagrange multipliers or equally, whichever
    is better, then by swaps of one bit while they gain; the best K wins.

    Of the same quality as `hull_and_core`, but slower, and slower than the exact dynamic program: use it to compare.

    >>> nested_subsets(np.array([0.1, 0.9, 0.5]), np.tile([1.0, 0.3, 0.1, 0.03], (3, 1)), 1.0, 4)
    array([3, 0, 1])
    """
    order = np.argsort(p, kind="stable")
    u = (1 - p[order, None]) / (p[order, None] + gamma * omega[order])
    slopes = hull_slopes(_between(p[order], omega[order], gamma)) if omega.shape[1] > 1 else np.empty((len(p), 0))
    best, most = np.zeros(len(p), dtype=np.int64), -np.inf
    for size in range(max(1, -(-residual // max(1, u.shape[1] - 1))), len(p) + 1):
        extra = _allocated(u[:size], slopes[:size], residual)
        value = _value(u[:size], extra) + float(u[size:, 0].sum())
        if value > most + GAIN:
            best, most = np.append(extra, np.zeros(len(p) - size, dtype=np.int64)), value
        if size >= residual:
            break
    found = np.empty_like(best)
    found[order] = best
    return found


def _allocated(u: Floats, slopes: Floats, residual: int) -> Counts:
    """(K,) the better of both starts, then swaps."""
    starts = [_relaxed(u, slopes, residual), _equal(len(u), residual)]
    return _swapped(u, max(starts, key=lambda extra: _value(u, extra)), residual)


def _relaxed(u: Floats, slopes: Floats, residual: int) -> Counts:
    """(K,) what is worth the multiplier to each, scaled to the budget and rounded down; the rest goes to who gains most.

    A worker's utility less multiplier times bits is largest where its concave hull has that slope, so that the multiplier is
    the critical slope of all hulls together.
    """
    cap, steps = u.shape[1] - 1, FINE * residual
    if slopes.size <= steps:
        return np.full(len(u), cap)
    critical = np.partition(slopes.ravel(), slopes.size - steps)[slopes.size - steps] if steps else np.inf
    taken = (slopes > critical).sum(axis=1) / FINE
    scaled = taken * (residual / taken.sum()) if taken.sum() else taken
    extra: Counts = np.minimum(np.floor(scaled + 1e-9), cap).astype(np.int64)
    rows = np.arange(len(u))
    for _ in range(residual - int(extra.sum())):
        gain = np.where(extra < cap, u[rows, np.minimum(extra + 1, cap)] - u[rows, extra], -np.inf)
        extra[gain.argmax()] += 1
    return extra


def _equal(size: int, residual: int) -> Counts:
    return residual // size + (np.arange(size) < residual % size).astype(np.int64)


def _swapped(u: Floats, extra: Counts, residual: int) -> Counts:
    """Move one bit from who loses least to who gains most while that gains."""
    rows, cap, extra = np.arange(len(u)), u.shape[1] - 1, extra.copy()
    for _ in range(residual * len(u)):
        now = u[rows, extra]
        up = np.where(extra < cap, u[rows, np.minimum(extra + 1, cap)] - now, -np.inf)
        down = np.where(extra > 0, now - u[rows, np.maximum(extra - 1, 0)], np.inf)
        giver, taker = _best_pair(up, down)
        if not up[taker] - down[giver] > GAIN:
            break
        extra[giver] -= 1
        extra[taker] += 1
    return extra


def _best_pair(up: Floats, down: Floats) -> tuple[int, int]:
    """Giver and taker, two workers, for which up[taker] - down[giver] is largest."""
    giver, taker = int(down.argmin()), int(up.argmax())
    if giver != taker or len(up) == 1:
        return giver, taker
    others = np.delete(np.arange(len(up)), giver)
    second_giver, second_taker = int(others[down[others].argmin()]), int(others[up[others].argmax()])
    if up[taker] - down[second_giver] >= up[second_taker] - down[giver]:
        return second_giver, taker
    return giver, second_taker


def _value(u: Floats, extra: Counts) -> float:
    return float(u[np.arange(len(u)), extra].sum())


def _between(p: Floats, omega: Floats, gamma: float) -> Floats:
    """(n, FINE cap + 1) utilities of parts of bits; the logarithm of omega is interpolated linearly."""
    cap = omega.shape[1] - 1
    x = np.arange(FINE * cap + 1) / FINE
    left = np.minimum(x.astype(int), cap - 1)
    logs = np.log(np.maximum(omega, 1e-300))
    noise = np.exp(logs[:, left] + (logs[:, left + 1] - logs[:, left]) * (x - left))
    return np.asarray((1 - p[:, None]) / (p[:, None] + gamma * noise))
