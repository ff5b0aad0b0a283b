"""Closed forms and rivals for block sizes: [B] theorems 2 and 3, its subgradient method, and the codes it compares with."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from ..errors import Invalid
from ..randomness import Seed, generator
from .runtime import Runtime, Sampled, Vector, expected

SLOWDOWN = 6.0
"""The slowdown of Tandon's stragglers that [B] compares with: (1 + ln 2) / (1 - ln 2) rounded up."""

SLOWEST, TUNING_ROUNDS = 1e4, 20_000


def equaliser(rates: Vector) -> tuple[Vector, float]:
    """Block sizes (as fractions) for which all blocks end at once if T_(q) = 1 / rates[q - 1], and that time ([B] theorem 2).

    With rates = 1 / E[T_(q)] this is x^(t), with rates = E[1 / T_(q)] it is x^(f); the time for the former bounds every design
    from below (Jensen). An infinite rate of the fastest worker puts everything on the most redundant block.
    """
    n = len(rates)
    if np.isinf(rates[0]):
        return np.eye(n)[-1], 0.0
    slowest_first = rates[::-1]
    steps = np.diff(slowest_first, prepend=0.0) / np.arange(1, n + 1)
    return steps / steps.sum(), float(1 / steps.sum())


def single(means: Vector, total: float) -> Vector:
    """All work at the one redundancy s that minimises (s + 1) E[T_(n-s)]."""
    best = int(np.argmin(np.arange(1, len(means) + 1) * means[::-1]))
    return np.asarray(total * np.eye(len(means))[best])


def ferdinand(means: Vector, total: float, layers: int | None = None) -> Vector:
    """Hierarchical coding of Ferdinand and Draper with so many equal layers; layer j is an (n, k_j) code, sum of k_j = total.

    Their program has many solutions; we take the lexicographic min-max: starting at k_j = 1, the layer with the least
    j E[T_(k_j + 1)] is raised again and again. By default there is a layer a coordinate, which forces k_j = 1.
    """
    n, count = len(means), int(total) if layers is None else layers
    if not 1 <= count <= total or total > n * count:
        raise Invalid(f"ferdinand needs {total / n:g} <= layers <= {total:g}, but got layers={layers}.")
    raised = np.ones(count, dtype=np.int64)
    heap = [((j + 1) * means[1], j) for j in range(count)] if n > 1 else []
    for _ in range(int(total) - count):
        _, j = heapq.heappop(heap)
        raised[j] += 1
        if raised[j] < n:
            heapq.heappush(heap, ((j + 1) * means[raised[j]], j))
    return np.asarray(np.bincount(n - raised, minlength=n) * (total / count), dtype=np.float64)


def tandon_work(n: int, s: int, slowdown: float) -> Vector:
    """Work in Tandon's partial-straggler code, relative to its uncoded share: that from all workers, the rest from n - s."""
    return np.where(np.arange(n) < s, 1.0, slowdown)


def tandon(model: Runtime, slowdown: float | None = SLOWDOWN) -> tuple[int, float, float]:
    """(s, slowdown, time of a unit of work) of the best partial-straggler code; a slowdown of None is tuned as well."""
    quick: Runtime = Sampled(model.times[:TUNING_ROUNDS]) if isinstance(model, Sampled) else model
    slowdowns = [_tuned(quick, s) if slowdown is None else slowdown for s in range(model.n)]
    s = int(np.argmin([_tandon_time(quick, s, chosen) for s, chosen in enumerate(slowdowns)]))
    return s, slowdowns[s], _tandon_time(model, s, slowdowns[s])


def _tandon_time(model: Runtime, s: int, slowdown: float) -> float:
    return (s + 1) / (s + slowdown) * expected(model, tandon_work(model.n, s, slowdown))


def _tuned(model: Runtime, s: int) -> float:
    """The slowdown that makes the code for s stragglers fastest."""
    found = minimize_scalar(
        lambda log: _tandon_time(model, s, float(np.exp(log))),
        bounds=(1e-3, np.log(SLOWEST)),
        method="bounded",
        options={"xatol": 1e-2},
    )
    return float(np.exp(found.x))


def subgradient(
    latency: Any,
    n: int,
    total: float,
    rng: Seed = 0,
    iterations: int = 500,
    batch: int = 10_000,
    trace: list[Vector] | None = None,
) -> Vector:
    """The paper's stochastic projected subgradient method: from x^(t), steps proportional to 1/k, fresh batches of 1e4 rounds.

    The first step moves a distance of `total`, so that the method does not depend on units. `trace` collects the iterates.
    """
    random = generator(rng)
    sizes = total * equaliser(1 / latency.order_statistics(n))[0]
    first = None
    for k in range(1, iterations + 1):
        slope = _batch_gradient(np.sort(latency.speeds(n, batch, random), axis=1), sizes)
        first = first or total / float(np.linalg.norm(slope))
        sizes = project(sizes - first / k * slope, total)
        if trace is not None:
            trace.append(sizes)
    return sizes


def _batch_gradient(times: Vector, sizes: Vector) -> Vector:
    """Derivatives of the mean runtime over a batch by the block sizes."""
    ranks = np.arange(1, len(sizes) + 1)
    last = np.argmax(times[:, ::-1] * np.cumsum(ranks * sizes), axis=1)
    by_work = np.bincount(last, weights=times[np.arange(len(last)), len(sizes) - 1 - last], minlength=len(sizes)) / len(last)
    return np.asarray(ranks * np.cumsum(by_work[::-1])[::-1])


def project(point: Vector, total: float) -> Vector:
    """The nearest point with entries >= 0 that sum to `total`.

    >>> project(np.array([3.0, 1.0, -5.0]), 2.0).tolist()
    [2.0, 0.0, 0.0]
    """
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(point) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.asarray(np.maximum(point - shift, 0.0))
