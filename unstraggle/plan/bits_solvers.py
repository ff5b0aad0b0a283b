"""Solvers of the bit allocation: maximise the sum of u[i, r_i] where the r_i sum to a given residual budget."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize

CORE = 24
"""Workers that `hull_and_core` allocates exactly, given the bits of all others."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def dynamic_program(u: Floats, residual: int) -> Counts:
    """(n,) the exact optimum over (n, cap + 1) utilities, O(n residual cap); ties leave more to lower indices ([C] Lemma 3).

    >>> dynamic_program(np.array([[0.0, 1, 5], [0, 3, 4]]), 3)
    array([2, 1])
    """
    n, cap = u.shape[0], u.shape[1] - 1
    value = np.full(residual + cap + 1, -np.inf)
    value[cap] = 0.0
    taken = np.zeros((n, residual + 1), dtype=np.int16)
    for i, row in enumerate(u):
        high = min((i + 1) * cap, residual)
        low = max(0, residual - (n - 1 - i) * cap)
        options = sliding_window_view(value, cap + 1)[low : high + 1, ::-1] + row
        best = options.argmax(axis=1)
        taken[i, low : high + 1] = best
        value[cap:] = -np.inf
        value[cap + low : cap + high + 1] = options[np.arange(len(best)), best]
    return _trace(taken, residual)


def _trace(taken: NDArray[np.int16], residual: int) -> Counts:
    extra = np.zeros(len(taken), dtype=np.int64)
    for i in range(len(taken) - 1, -1, -1):
        extra[i] = taken[i, residual]
        residual -= int(extra[i])
    return extra


def hull_and_core(u: Floats, residual: int) -> Counts:
    """(n,) whole segments of the concave hulls, steepest first, then the exact optimum of the workers nearest the last slope.

    The hulls' optimum is an upper bound, and whole segments lose less than one of them; the core wins most of that back.

    >>> hull_and_core(np.array([[0.0, 1, 5], [0, 3, 4]]), 3)
    array([2, 1])
    """
    n = len(u)
    if residual == 0 or n <= CORE:
        return dynamic_program(u, residual)
    slopes = hull_slopes(u)
    critical = np.partition(slopes.ravel(), slopes.size - residual)[slopes.size - residual]
    extra: Counts = (slopes > critical).sum(axis=1)
    segment = (slopes == critical).sum(axis=1)
    unused = _fill(extra, segment, residual - int(extra.sum()))
    distance = np.abs(slopes - critical).min(axis=1)
    if len(unused):
        distance[unused[0]] = -1.0
    core = np.sort(np.argsort(distance, kind="stable")[:CORE])
    extra[core] = dynamic_program(u[core], residual - int(np.delete(extra, core).sum()))
    return extra


def _fill(extra: Counts, segment: Counts, rest: int) -> Counts:
    """Give critical segments, while they fit, to the lowest indices; who is left without one."""
    owners = np.flatnonzero(segment)
    fits = np.cumsum(segment[owners]) <= rest
    extra[owners[fits]] += segment[owners[fits]]
    return np.asarray(owners[~fits])


def hull_slopes(u: Floats) -> Floats:
    """(n, cap) slopes of the least concave function above each row, bit by bit.

    >>> hull_slopes(np.array([[0.0, 1, 5, 6]]))
    array([[2.5, 2.5, 1. ]])
    """
    slopes = np.diff(u, axis=1)
    bends = np.diff(slopes, axis=1) > 1e-12 * np.abs(u).max(axis=1, keepdims=True)
    start = np.where(bends.any(axis=1), _tangents(u, slopes), 0)
    while True:
        rows = np.flatnonzero((bends & (np.arange(1, bends.shape[1] + 1) > start[:, None])).any(axis=1) & (start > 0))
        if not len(rows):
            return np.minimum.accumulate(slopes, axis=1)
        for i in rows.tolist():
            start[i] += _tangents(u[i : i + 1, start[i] :], slopes[i : i + 1, start[i] :])[0]


def _tangents(u: Floats, slopes: Floats) -> Counts:
    """Replace slopes up to where the steepest line from each row's start touches the row; return how far that is."""
    steps = np.arange(1, u.shape[1])
    lines = (u[:, 1:] - u[:, :1]) / steps
    ends = lines.argmax(axis=1)
    covered = steps - 1 <= ends[:, None]
    np.copyto(slopes, lines[np.arange(len(u)), ends][:, None], where=covered)
    return np.asarray(ends + 1)


def greedy(u: Floats, residual: int) -> Counts:
    """(n,) bit by bit to whoever gains most from one more; ties to the lowest index.

    >>> greedy(np.array([[0.0, 1, 5], [0, 3, 4]]), 2)
    array([1, 1])
    """
    cap = u.shape[1] - 1
    gain = np.diff(u, axis=1)
    extra = np.zeros(len(u), dtype=np.int64)
    heap = [(-gain[i, 0], i) for i in range(len(u) if cap else 0)]
    heapq.heapify(heap)
    for _ in range(residual):
        _, i = heap[0]
        extra[i] += 1
        if extra[i] < cap:
            heapq.heapreplace(heap, (-gain[i, extra[i]], i))
        else:
            heapq.heappop(heap)
    return extra


def equal_split(p: Floats, residual: int) -> Counts:
    """(n,) the same for all, one more for the smallest p where it does not divide.

    >>> equal_split(np.array([0.9, 0.1, 0.5]), 5)
    array([1, 2, 2])
    """
    extra = np.full(len(p), residual // len(p))
    extra[np.argsort(p, kind="stable")[: residual % len(p)]] += 1
    return extra


def continuous(p: Floats, omega: Floats, gamma: float, residual: int) -> Counts:
    """(n,) real numbers of bits by SLSQP from the equal split, rounded down, the rest to the largest fractions.

    omega (n, cap + 1) is interpolated between whole bits, its logarithm linearly.
    """
    n, cap = omega.shape[0], omega.shape[1] - 1
    if cap == 0:
        return np.zeros(n, dtype=np.int64)
    logs = np.log(np.maximum(omega, 1e-300))
    rows = np.arange(n)

    def negative(x: Floats) -> tuple[float, Floats]:
        left = np.clip(np.floor(x).astype(int), 0, cap - 1)
        slope = logs[rows, left + 1] - logs[rows, left]
        noise = gamma * np.exp(logs[rows, left] + slope * (x - left))
        utility = (1 - p) / (p + noise)
        return -float(utility.sum()), utility * noise * slope / (p + noise)

    whole = LinearConstraint(np.ones((1, n)), residual, residual)
    start = np.full(n, residual / n)
    answer = minimize(negative, start, jac=True, method="SLSQP", bounds=[(0, cap)] * n, constraints=[whole])
    return _rounded(np.clip(answer.x, 0, cap), residual, cap)


def _rounded(x: Floats, residual: int, cap: int) -> Counts:
    """Whole numbers <= cap with the given sum; exact sums survive solvers that leave the budget by a little."""
    extra = np.floor(x + 1e-9).astype(np.int64)
    order = np.argsort(extra - x, kind="stable")
    while extra.sum() != residual:
        missing = residual - int(extra.sum())
        able = order[extra[order] < cap] if missing > 0 else order[::-1][extra[order[::-1]] > 0]
        extra[able[: abs(missing)]] += np.sign(missing)
    return extra
