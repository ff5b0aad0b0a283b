"""Maximum likelihood for the families of independent times: what has a closed form is put in, and the rest is searched.

The likelihood of a shifted family grows without bound when the shift approaches the smallest time and the density is infinite
there. So no shift comes closer to it than (mean - smallest) / (n - 1), which also makes that of an exponential unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import digamma, gammaln, polygamma

from .base import Family
from .families import BurrXII, Gamma, LogNormal, Pareto, Weibull
from .shifted_exponential import Exponential, ShiftedExponential

Vector = NDArray[np.float64]
Profile = Callable[[Vector], tuple[float, tuple[float, ...]]]
"""Times above the shift, to the largest log-likelihood a time and the parameters that reach it."""

LARGEST = 1e4
"""Bound of c, d and 1 / d of a Burr distribution: beyond it is a Weibull or a Pareto distribution for all that can be seen."""

SHIFTS = 16
"""Shifts that are tried before the best is refined."""

SHIFTS_FROM = 1000
"""Times that this first search looks at: so many of the ordered times, evenly spaced."""


@dataclass(frozen=True)
class Estimate:
    """The most likely member of a family: its number of parameters and its log-likelihood."""

    name: str
    model: Family
    parameters: int
    log_likelihood: float


def estimates(times: Vector) -> list[Estimate]:
    """The most likely member of every family, for positive times that are not all equal."""
    times = np.sort(times)
    closed = [_exponential(times), _shifted_exponential(times), _pareto(times)]
    return closed + [_shifted(name, make, profile, times) for name, (make, profile) in _SHIFTED.items()]


def _exponential(times: Vector) -> Estimate:
    mean = float(times.mean())
    return Estimate("Exponential", Exponential(1 / mean), 1, -len(times) * (np.log(mean) + 1))


def _shifted_exponential(times: Vector) -> Estimate:
    shift = largest_shift(times)
    excess = float(times.mean()) - shift
    return Estimate("ShiftedExponential", ShiftedExponential(1 / excess, shift), 2, -len(times) * (np.log(excess) + 1))


def _pareto(times: Vector) -> Estimate:
    """The logarithms of Pareto times are shifted exponential."""
    logs = np.log(times)
    log_scale = float(logs[0] - (logs.mean() - logs[0]) / (len(logs) - 1))
    shape = 1 / float(logs.mean() - log_scale)
    likelihood = len(logs) * (np.log(shape) - 1) - float(logs.sum())
    return Estimate("Pareto", Pareto(shape, float(np.exp(log_scale))), 2, likelihood)


def largest_shift(times: Vector) -> float:
    """The smallest time less its bias, (mean - smallest) / (n - 1), and at least 0."""
    smallest = float(times.min())
    return max(0.0, smallest - (float(times.mean()) - smallest) / (len(times) - 1))


def _shifted(name: str, make: Callable[..., Family], profile: Profile, times: Vector) -> Estimate:
    shift = _best_shift(profile, times)
    likelihood, values = profile(times - shift)
    return Estimate(name, make(*values, shift=shift), len(values) + 1, len(times) * likelihood)


def _best_shift(profile: Profile, times: Vector) -> float:
    """The shift of largest likelihood: a grid, finest below the smallest time, first on a thinned sample and then on all."""
    largest = largest_shift(times)
    unit = (float(times.mean()) - largest) / len(times)
    every = max(1, len(times) // SHIFTS_FROM)
    thin = times[every // 2 :: every]
    places = np.linspace(0, np.log1p(largest / unit), SHIFTS)  # logarithms of the distance from the largest shift

    def shift(place: float) -> float:
        return largest - unit * float(np.expm1(place)) if place < places[-1] else 0.0

    @cache
    def loss(place: float, sample: Literal["thin", "all"] = "all") -> float:
        return -profile((times if sample == "all" else thin) - shift(place))[0]

    best = min(range(SHIFTS), key=lambda i: loss(float(places[i]), "thin"))
    while (near := min(range(max(best - 1, 0), min(best + 2, SHIFTS)), key=lambda i: loss(float(places[i])))) != best:
        best = near
    ends = places[max(best - 1, 0)], places[min(best + 1, SHIFTS - 1)]
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 0.01})
    return shift(min(float(found.x), float(places[best]), key=loss))


def _log_normal(excess: Vector) -> tuple[float, tuple[float, ...]]:
    logs = np.log(excess)
    mu, sigma = float(logs.mean()), float(logs.std())
    return -np.log(sigma) - 0.5 * np.log(2 * np.pi) - 0.5 - mu, (mu, sigma)


def _gamma(excess: Vector) -> tuple[float, tuple[float, ...]]:
    """Newton's method for log(shape) - digamma(shape) = log of the mean - mean of the logs; the scale follows."""
    mean, log_mean = float(excess.mean()), float(np.log(excess).mean())
    gap = max(float(np.log(mean)) - log_mean, 1e-12)
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(5):
        slope = 1 / shape - float(polygamma(1, shape))
        shape = max(shape / 2, shape - (np.log(shape) - float(digamma(shape)) - gap) / slope)
    scale = mean / shape
    return (shape - 1) * log_mean - shape - shape * np.log(scale) - float(gammaln(shape)), (float(shape), scale)


def _weibull(excess: Vector) -> tuple[float, tuple[float, ...]]:
    """Newton's method for the shape; the scale follows."""
    logs = np.log(excess)
    log_mean, top = float(logs.mean()), float(logs.max())
    logs = logs - top
    shape = 1.28 / float(logs.std())  # the logarithm of a Weibull time has standard deviation pi / sqrt(6) / shape
    for _ in range(8):
        weights = np.exp(shape * logs)
        total, first, second = weights.sum(), weights @ logs, weights @ logs**2
        wrong = first / total - 1 / shape - (log_mean - top)
        shape = max(shape / 2, shape - wrong / (second / total - (first / total) ** 2 + 1 / shape**2))
        if abs(wrong) * shape < 1e-9:
            break
    log_scale = top + float(np.log(np.exp(shape * logs).mean())) / shape
    return float(np.log(shape) - shape * log_scale + (shape - 1) * log_mean - 1), (float(shape), float(np.exp(log_scale)))


def _burr(excess: Vector) -> tuple[float, tuple[float, ...]]:
    """Nelder and Mead's search over c and scale, from two starts; d follows."""
    logs = np.log(excess)
    centre, spread = float(np.median(logs)), float(logs.std())

    def parts(place: Vector) -> tuple[float, float, float]:
        c, scaled = float(np.exp(place[0])), logs - (centre + spread * place[1])
        bent = float(np.logaddexp(0, c * scaled).mean())
        d = 1 / bent
        return np.log(c * d) - (centre + spread * place[1]) + (c - 1) * float(scaled.mean()) - (d + 1) * bent, c, d

    def loss(place: Vector) -> float:
        likelihood, c, d = parts(place)
        return -likelihood if max(c, d, 1 / d) < LARGEST else np.inf

    starts = (np.array([np.log(1.8 / spread), 0.0]), np.array([np.log(1.3 / spread), 3.0]))  # log-logistic, nearly Weibull
    start = min(starts, key=loss)
    options: Any = {"xatol": 1e-3, "fatol": 1e-6, "maxfev": 200, "initial_simplex": start + _CORNERS}
    found = minimize(loss, start, method="Nelder-Mead", options=options)
    likelihood, c, d = parts(found.x)
    return float(likelihood), (c, d, float(np.exp(centre + spread * found.x[1])))


_CORNERS = np.array([[0.0, 0.0], [0.3, 0.0], [0.0, 0.5]])

_SHIFTED: dict[str, tuple[Callable[..., Family], Profile]] = {
    "Gamma": (Gamma, _gamma),
    "Weibull": (Weibull, _weibull),
    "LogNormal": (LogNormal, _log_normal),
    "BurrXII": (BurrXII, _burr),
}
