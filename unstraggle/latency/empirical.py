"""Measured times: drawn again at random, or replayed as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed
from .base import OneSpeed, Times, literal, require_count


@door
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Empirical(OneSpeed):
    """Times drawn at random from measured ones.

    values (samples,): all workers alike and independent. values (rounds, n): whole rounds are drawn, so that differences
    between the workers, and what they share in a round, are kept; what hangs together from round to round is not.

    >>> Empirical([1.0, 2.0, 3.0]).order_statistics(1)
    array([2.])
    """

    values: Times

    def __init__(self, values: ArrayLike) -> None:
        object.__setattr__(self, "values", measured("Empirical", values))

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times:
        if self.values.ndim == 1:
            return rng.choice(self.values, (rounds, n))
        require_workers("Empirical", self.values, n)
        return self.values[rng.integers(len(self.values), size=rounds)]

    def survival(self, work: Any, deadline: Any) -> Times:
        """Share of measured times above deadline / work; from whole rounds (n,), one per worker."""
        return share_above(self.values, work, deadline)

    def order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        """Exact means over the measured times."""
        return self._mean(np.asarray(self.values), n)

    def order_statistics_error(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        return np.zeros(require_count(n))

    def harmonic_order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        with np.errstate(divide="ignore"):  # workers that never finished
            return np.asarray(1 / self._mean(1 / self.values, n, largest_first=True))

    def _mean(self, values: Times, n: int, largest_first: bool = False) -> Times:
        """(n,) means of the ordered values; the reciprocals of increasing times come largest first."""
        direction = -1 if largest_first else 1
        if values.ndim == 2:
            require_workers("Empirical", values, n)
            return np.asarray(np.sort(values, axis=1)[:, ::direction].mean(axis=0))
        ordered, ranks = np.sort(values)[::direction], np.arange(len(values) + 1) / len(values)
        finite = int(np.isfinite(ordered).sum())  # those that never end come last
        means = np.empty(require_count(n))
        for q in range(1, n + 1):
            below = betainc(q, n - q + 1, ranks)
            means[q - 1] = np.inf if below[finite] < 1 else np.diff(below)[:finite] @ ordered[:finite]
        return means

    def __repr__(self) -> str:
        return listing("Empirical", self.values)


@door
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Replay(OneSpeed):
    """Measured rounds one after the other, from the first on and round again: values (rounds, n).

    >>> Replay([[1.0, 2.0], [3.0, 1.0]]).order_statistics(2)
    array([1. , 2.5])
    """

    values: Times

    def __init__(self, values: ArrayLike) -> None:
        object.__setattr__(self, "values", measured("Replay", values))
        if self.values.ndim != 2:
            raise Invalid(f"Replay needs times (rounds, workers), but got shape {self.values.shape}.")

    def from_round(self, first: int) -> Replay:
        """The same rounds, beginning with a later one."""
        return Replay(np.roll(self.values, -first, axis=0))

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times:
        require_workers("Replay", self.values, n)
        return self.values[np.arange(rounds) % len(self.values)]

    def survival(self, work: Any, deadline: Any) -> Times:
        return share_above(self.values, work, deadline)

    def order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        return Empirical(self.values).order_statistics(n)

    def order_statistics_error(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        return np.zeros(require_count(n))

    def harmonic_order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        return Empirical(self.values).harmonic_order_statistics(n)

    def __repr__(self) -> str:
        return listing("Replay", self.values)


def measured(name: str, values: ArrayLike) -> Times:
    """Positive times, one- or two-dimensional; infinite ones stand for rounds that a worker never finished."""
    times = np.array(values, dtype=float)
    if times.ndim not in (1, 2) or times.size == 0:
        raise Invalid(f"{name} needs measured times (samples,) or (rounds, workers), but got shape {times.shape}.")
    if not (times > 0).all():
        raise Invalid(f"{name} needs positive times, but got {times[~(times > 0)][0]}. Drop what was not measured.")
    times.flags.writeable = False
    return times


def share_above(values: Times, work: Any, deadline: Any) -> Times:
    """Share of the values above deadline / work: (samples,) against any shape, (rounds, n) against a number or (..., n)."""
    limit = np.asarray(np.asarray(deadline) / work)
    if values.ndim == 1:
        return np.asarray(1 - np.searchsorted(np.sort(values), limit, side="right") / len(values))
    return np.asarray((np.moveaxis(values, 0, -1) > limit[..., None]).mean(axis=-1))


def listing(name: str, values: Times) -> str:
    """The expression that makes the model; a large one is only described."""
    if values.size <= 24:
        return f"{name}(values={literal(values.tolist())})"
    return f"{name}(<{' x '.join(map(str, values.shape))} values>)"


def require_workers(name: str, values: Times, n: int) -> None:
    if values.shape[1] != n:
        raise Invalid(f"{name} holds times of {values.shape[1]} workers, but {n} are asked for. Use a code with that n.")
