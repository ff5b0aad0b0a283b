"""E[max_n T_(N-n) S_n]: the expected runtime of block-coordinate codes ([B] eq. 5), exactly or over samples.

S_n is the work that a worker has done when its block tolerating n stragglers is finished; it does not decrease with n. The
function is convex in S and homogeneous, so its gradient g gives both its value (S . g) and a lower bound on every other design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..latency.base import Family, OneSpeed, per_task
from ..randomness import Seed, generator

Vector = NDArray[np.float64]

EXACT_WORKERS = 500
"""Up to so many workers the exact runtime is worth its cost, which grows with the square of their number."""


class Slope(Protocol):
    """The expected runtime, or one like it, as a function of the work S (n,)."""

    @property
    def n(self) -> int: ...

    def gradient(self, work: Vector) -> Vector:
        """(n,) derivatives by S; their product with S is the runtime."""
        ...


class Runtime(Slope, Protocol):
    """One whose error is known."""

    def error(self, work: Vector) -> float:
        """Standard error of the runtime, 0 where it is computed."""
        ...


def runtime(latency: Any, n: int, rng: Seed = 0, draws: int = 200_000, exact: bool | None = None) -> Runtime:
    """Exact for independent continuous times (by default up to EXACT_WORKERS workers) and measured rounds, else over draws."""
    require_one_speed(latency)
    if isinstance(latency, Family) and latency.continuous and (n <= EXACT_WORKERS if exact is None else exact):
        return Exact(latency, n)
    rounds = getattr(latency, "values", None)
    if isinstance(rounds, np.ndarray) and rounds.ndim == 2:
        latency.speeds(n, 0, generator(rng))
        return Sampled(np.sort(rounds, axis=1), exact=True)
    return Sampled(np.sort(latency.speeds(n, max(1000, draws * 50 // max(n, 50)), generator(rng)), axis=1))


def require_one_speed(latency: Any) -> None:
    """Block sizes presume that a worker has one speed in a round."""
    if not isinstance(latency, OneSpeed) or per_task(latency):
        raise Invalid(
            f"Planning block sizes needs a latency model with one speed per worker and round, but got {latency!r}. "
            'Use per="round", or a trace with times (rounds, workers).'
        )


class Exact:
    """Independent, identically distributed times with a continuous distribution: no sampling, about six digits.

    P(max <= t) is the probability that the sorted times stay below the staircase t / S; it is integrated over t by a
    double-exponential rule from the least possible time on.
    """

    NODES, REACH, STEP = 64, 4.0, 1e-5

    def __init__(self, latency: Family, n: int) -> None:
        self.latency, self._n = latency, n
        tau = np.linspace(-self.REACH, self.REACH, self.NODES)
        self._points = np.exp(np.pi / 2 * np.sinh(tau))
        self._weights = self._points * np.pi / 2 * np.cosh(tau) * (tau[1] - tau[0])
        self._least = float(latency.quantile(np.zeros(()), np.ones(())))
        middle = np.arange(1, n + 1) / (n + 1)
        self._typical = latency.quantile(middle, 1 - middle)[::-1]

    @property
    def n(self) -> int:
        return self._n

    def gradient(self, work: Vector) -> Vector:
        from .crossing import staircase

        work = np.maximum(work, 1e-12 * work[-1])
        start = self._least * work[-1]
        scale = max(float((self._typical * work).max()) - start, 1e-9 * float(work[-1]) * float(self._typical[0]))
        times = start + scale * self._points
        limits = times[:, None] / work[::-1]
        stairs = np.maximum.accumulate(np.clip(self.latency.cdf(limits), 0.0, 1.0), axis=1)
        probability, slopes = np.empty(len(times)), np.empty(stairs.shape)
        staircase(stairs, probability, slopes)
        by_work = slopes * self._density(limits) * limits / work[::-1]
        return np.asarray(((scale * self._weights) @ by_work)[::-1])

    def error(self, work: Vector) -> float:
        return 0.0

    def _density(self, times: Vector) -> Vector:
        """Derivative of the distribution function, by central differences relative to the distance from the least time."""
        excess = times - self._least
        later = self.latency.survival(1.0, self._least + excess * (1 + self.STEP))
        earlier = self.latency.survival(1.0, self._least + excess * (1 - self.STEP))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(excess > 0, (earlier - later) / (2 * self.STEP * excess), 0.0))


@dataclass(frozen=True, eq=False)
class Sampled:
    """The mean over given rounds: (R, n) sorted times. `exact` where these rounds are all there is."""

    times: Vector
    exact: bool = False

    @property
    def n(self) -> int:
        return int(self.times.shape[1])

    def gradient(self, work: Vector) -> Vector:
        """A subgradient: every round counts for the block that ends it."""
        last = self._last(work)
        sums = np.bincount(last, weights=self.times[np.arange(len(last)), self.n - 1 - last], minlength=self.n)
        return np.asarray(sums / len(last))

    def error(self, work: Vector) -> float:
        if self.exact:
            return 0.0
        return float(_ends(self.times, work).max(axis=1).std() / np.sqrt(len(self.times)))

    def _last(self, work: Vector) -> NDArray[np.int64]:
        """(R,) the block that ends each round."""
        last = np.empty(len(self.times), dtype=np.int64)
        step = max(1, (1 << 22) // self.n)
        for at in range(0, len(last), step):
            last[at : at + step] = np.argmax(_ends(self.times[at : at + step], work), axis=1)
        return last


def _ends(times: Vector, work: Vector) -> Vector:
    """(R, n) when each block ends, 0 where it is empty and all before it, however long its last worker takes."""
    return np.multiply(times[:, ::-1], work, out=np.zeros(times.shape), where=work > 0)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """The mean over rounds of the p-norm of the blocks' end times instead of their maximum: smooth, and never less.

    times: (R, n) sorted, of `share` (R,) of all rounds each.
    """

    times: Vector
    power: float
    share: Vector

    @property
    def n(self) -> int:
        return int(self.times.shape[1])

    def gradient(self, work: Vector) -> Vector:
        shares, ratios = self._shares(work)
        total = (shares * ratios).sum(axis=1, keepdims=True)
        return np.asarray(self.share @ (shares * total ** (1 / self.power - 1) * self.times[:, ::-1]))

    def mixture(self, work: Vector) -> Vector:
        """Like a gradient of the maximum, but every round counts for several blocks; it gives a lower bound all the same."""
        shares, _ = self._shares(work)
        return np.asarray(self.share @ (shares / shares.sum(axis=1, keepdims=True) * self.times[:, ::-1]))

    def _shares(self, work: Vector) -> tuple[Vector, Vector]:
        ends = self.times[:, ::-1] * work
        ratios = ends / ends.max(axis=1, keepdims=True)
        return ratios ** (self.power - 1), ratios


def expected(model: Runtime, work: Vector) -> float:
    """E[max_n T_(N-n) S_n]."""
    return float(work @ model.gradient(work))
