"""The optimal block sizes, with a certificate: a lower bound on the expected runtime of every other choice."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import coo_array, csr_array, hstack

from ..randomness import Seed, generator
from .rivals import equaliser
from .runtime import Exact, Runtime, Sampled, Slope, Smoothed, Vector

LINEAR = 60_000
"""Rounds times workers up to which rounds that are all there is are solved as a linear program."""

SEARCH_NUMBERS = 400_000
"""Rounds times workers that a search over draws looks at."""

POWERS = (30.0, 100.0, 300.0)


def optimum(
    latency: Any, model: Runtime, total: float, gap: float = 1e-3, rng: Seed = 0, evaluations: int = 200
) -> tuple[Vector, float]:
    """(n,) work at each redundancy that minimises the expected runtime, and a lower bound on it.

    Exact runtimes: quasi-Newton steps on the logarithms of the sizes until the gap is small. The runtime f is convex and
    homogeneous, so f(y) >= y . f'(x) for all x, y, and total * min f'(x) bounds every design from below. Measured rounds: a
    linear program, whose value is the bound. Draws: the same steps on a smoothed runtime; the bound is then statistical, from
    fresh draws and lowered by three standard errors, and less tight.
    """
    allowed = np.isfinite(latency.order_statistics(model.n))[::-1]
    start = np.where(allowed, equaliser(1 / latency.order_statistics(model.n))[0], 0.0)
    if isinstance(model, Exact):
        search = Search(model, total, gap, allowed)
        search.run(start, evaluations)
        return search.sizes, search.bound
    assert isinstance(model, Sampled)
    if model.exact and model.times.size <= LINEAR:
        return _linear(model, total)
    return _by_draws(latency, model, total, allowed, start, rng)


def _by_draws(
    latency: Any, model: Sampled, total: float, allowed: Any, sizes: Vector, rng: Seed, evaluations: int = 60
) -> tuple[Vector, float]:
    """Search on draws, less and less smoothed; bound on others."""
    rounds = max(2000, SEARCH_NUMBERS // model.n)
    seen, fresh = (np.sort(latency.speeds(model.n, rounds, r), axis=1) for r in generator(rng).spawn(2))
    once, share = _distinct(seen)
    for power in POWERS:
        search = Search(Smoothed(once, power, share), total, 0.0, allowed)
        search.run(sizes, evaluations)
        sizes = search.sizes
    work = np.cumsum(np.arange(1, model.n + 1) * sizes)
    power = max(POWERS, key=lambda p: _least_slope(Smoothed(once, p, share), work, allowed))
    different, shares = _distinct(fresh)
    others = Smoothed(different, power, shares)
    bound = total * _least_slope(others, work, allowed) - 3 * Sampled(fresh).error(work)
    return sizes, max(0.0, bound)


def _distinct(times: Vector) -> tuple[Vector, Vector]:
    """Rounds of equal times once, with their share of all: workers that have two speeds give n + 1 different ones."""
    once, count = np.unique(times, axis=0, return_counts=True)
    return once, count / len(times)


def _least_slope(model: Smoothed, work: Vector, allowed: Any) -> float:
    return float(_by_sizes(model.mixture(work))[allowed].min())


class _Enough(Exception):
    """The gap is small enough."""


@dataclass
class Search:
    """Quasi-Newton search over the logarithms of the block sizes; keeps the best sizes and the best bound."""

    model: Slope
    total: float
    gap: float
    allowed: Any
    cost: float = np.inf
    bound: float = 0.0
    sizes: Vector = field(default_factory=lambda: np.empty(0))

    def run(self, start: Vector, evaluations: int) -> None:
        logs = np.log(np.maximum(start[self.allowed], 1e-9))
        options: Any = {"maxfun": evaluations, "maxiter": evaluations, "ftol": 1e-14, "gtol": 1e-12, "maxcor": 30}
        with suppress(_Enough):
            minimize(self._log_cost, logs, jac=True, method="L-BFGS-B", options=options)

    def _log_cost(self, logs: Vector) -> tuple[float, Vector]:
        sizes = np.zeros(self.model.n)
        sizes[self.allowed] = np.exp(logs - logs.max())
        sizes *= self.total / sizes.sum()
        slope = _by_sizes(self.model.gradient(np.cumsum(np.arange(1, len(sizes) + 1) * sizes)))
        cost = float(slope @ sizes)
        self._note(cost, sizes, slope)
        share = sizes[self.allowed] * (slope[self.allowed] - cost / self.total) / cost
        return float(np.log(cost)), share

    def _note(self, cost: float, sizes: Vector, slope: Vector) -> None:
        self.bound = max(self.bound, self.total * float(slope[self.allowed].min()))
        if cost < self.cost:
            self.cost, self.sizes = cost, sizes
        if self.cost - self.bound <= self.gap * self.bound:
            raise _Enough


def _by_sizes(by_work: Vector) -> Vector:
    """(n,) derivatives by the work at each redundancy s, which counts s + 1 times for its own block and all later ones."""
    return np.asarray(np.arange(1, len(by_work) + 1) * np.cumsum(by_work[::-1])[::-1])


def _linear(model: Sampled, total: float) -> tuple[Vector, float]:
    """Minimise the mean over rounds of z_r, z_r >= T_(n-s) S_s for all s, with S the cumulated work: exact for these rounds."""
    rounds, n = model.times.shape
    ranks = np.arange(1, n + 1)
    unending = np.asarray(np.isinf(model.times).any(axis=0))[::-1]  # blocks that may never end stay empty
    r, s = np.divmod(np.arange(rounds * n), n)
    lower = csr_array(np.tril(np.ones((n, n))) * ranks)
    times = np.where(unending[s], 0.0, model.times[r, n - 1 - s])
    scaled = coo_array((times, (np.arange(rounds * n), s)), shape=(rounds * n, n)).tocsr() @ lower
    epigraph = coo_array((-np.ones(rounds * n), (np.arange(rounds * n), r)), shape=(rounds * n, rounds)).tocsr()
    scale = float(times.mean()) * total
    objective = np.concatenate([np.zeros(n), np.full(rounds, 1 / rounds)])
    budget = np.concatenate([np.ones(n), np.zeros(rounds)])[None, :]
    constraints: Any = hstack([scaled * (total / scale), epigraph])
    found = linprog(
        objective,
        A_ub=constraints,
        b_ub=np.zeros(rounds * n),
        A_eq=budget,
        b_eq=[1.0],
        bounds=[(0, 0 if empty else None) for empty in (*unending, *[False] * rounds)],
        method="highs",
    )
    solution: Any = found
    return total * np.maximum(solution.x[:n], 0.0), float(solution.fun) * scale
