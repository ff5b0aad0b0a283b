"""Families of independent times other than the shifted exponential: Pareto, Weibull, log-normal, Burr XII, gamma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, gammaln, log_ndtr, ndtri

from ..doors import door
from ..randomness import Seed
from .base import Family, Times, require, require_count, require_shift


@door
@dataclass(frozen=True, repr=False)
class Pareto(Family):
    """P(T > t) = (scale / t)^shape for t >= scale: the heaviest tail; its mean is infinite for shape <= 1.

    >>> Pareto(shape=2, scale=1).mean
    2.0
    """

    shape: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, shape=(self.shape, 0), scale=(self.scale, 0))

    def quantile(self, lower: Times, upper: Times) -> Times:
        return np.asarray(self.scale * upper ** (-1 / self.shape))

    def survival(self, work: Any, deadline: Any) -> Times:
        with np.errstate(divide="ignore", over="ignore"):
            excess = np.maximum(np.asarray(deadline) / work, 0) / self.scale
            return np.asarray(np.minimum(1.0, excess**-self.shape))

    @property
    def mean(self) -> float:
        return self.scale * self.shape / (self.shape - 1) if self.shape > 1 else float("inf")

    def order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        """Closed form, a ratio of gamma functions."""
        return self.scale * _pareto_moment(require_count(n), -1 / self.shape)

    def harmonic_order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        return self.scale / _pareto_moment(require_count(n), 1 / self.shape)


def _pareto_moment(n: int, power: float) -> Times:
    """(n,) means of (1 - U_(q))^power, infinite where n - q + 1 + power <= 0."""
    left = np.arange(n, 0, -1.0)
    finite = left + power > 0
    logs = gammaln(n + 1) - gammaln(n + 1 + power) + gammaln(np.where(finite, left + power, 1.0)) - gammaln(left)
    return np.where(finite, np.exp(logs), np.inf)


@dataclass(frozen=True, repr=False)
class Shaped(Family):
    """shift + scale W, where a shape says what W is like."""

    shape: float
    scale: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, shape=(self.shape, 0), scale=(self.scale, 0))
        require_shift(self, self.shift)


@door
@dataclass(frozen=True, repr=False)
class Weibull(Shaped):
    """shift + scale W with P(W > t) = exp(-t^shape): heavier than exponential for shape < 1, lighter above."""

    def quantile(self, lower: Times, upper: Times) -> Times:
        exponential = np.where(lower < 0.5, -np.log1p(-lower), -np.log(upper))
        return np.asarray(self.shift + self.scale * exponential ** (1 / self.shape))

    def survival(self, work: Any, deadline: Any) -> Times:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-(_excess(self, work, deadline) ** self.shape)))


@door
@dataclass(frozen=True, repr=False)
class LogNormal(Family):
    """shift + exp(mu + sigma Z): the logarithm of the random part is normal."""

    mu: float
    sigma: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, mu=(self.mu, -np.inf), sigma=(self.sigma, 0))
        require_shift(self, self.shift)

    def quantile(self, lower: Times, upper: Times) -> Times:
        normal = np.where(lower < 0.5, ndtri(lower), -ndtri(upper))
        return np.asarray(self.shift + np.exp(self.mu + self.sigma * normal))

    def survival(self, work: Any, deadline: Any) -> Times:
        excess = np.maximum(np.asarray(deadline) / work - self.shift, 0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(log_ndtr((self.mu - np.log(excess)) / self.sigma)))


@door
@dataclass(frozen=True, repr=False)
class BurrXII(Family):
    """shift + scale W with P(W > t) = (1 + t^c)^-d: a power tail with index c d, a body that bends freely."""

    c: float
    d: float
    scale: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, c=(self.c, 0), d=(self.d, 0), scale=(self.scale, 0))
        require_shift(self, self.shift)

    def quantile(self, lower: Times, upper: Times) -> Times:
        log_upper = np.where(lower < 0.5, np.log1p(-lower), np.log(upper)) / self.d
        with np.errstate(divide="ignore"):
            log_excess = np.log(-np.expm1(log_upper)) - log_upper  # the logarithm does not overflow where d is small
        return np.asarray(self.shift + self.scale * np.exp(log_excess / self.c))

    def survival(self, work: Any, deadline: Any) -> Times:
        with np.errstate(divide="ignore"):
            return np.asarray(np.exp(-self.d * np.logaddexp(0, self.c * np.log(_excess(self, work, deadline)))))


@door
@dataclass(frozen=True, repr=False)
class Gamma(Shaped):
    """shift + scale W with W gamma distributed: a sum of `shape` exponential stages."""

    def quantile(self, lower: Times, upper: Times) -> Times:
        standard = np.where(lower < 0.5, gammaincinv(self.shape, lower), gammainccinv(self.shape, upper))
        return np.asarray(self.shift + self.scale * standard)

    def survival(self, work: Any, deadline: Any) -> Times:
        return np.asarray(gammaincc(self.shape, _excess(self, work, deadline)))

    def cdf(self, time: Any) -> Times:
        return np.asarray(gammainc(self.shape, _excess(self, 1.0, time)))


def _excess(family: Any, work: Any, deadline: Any) -> Times:
    """Standardised time above the shift."""
    return np.asarray(np.maximum(np.asarray(deadline) / work - family.shift, 0) / family.scale)
