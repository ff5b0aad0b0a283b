"""Means of order statistics, by a quadrature that is stable for any number of workers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Quantile = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""(u, 1 - u) to the u-quantile; both are given so that neither end loses digits."""

STEP, REACH, FINE = 0.004, 700.0, 3.0
NEGLIGIBLE = 1e-17
SLOWEST = 1e-6
"""A tail that shrinks by less than this for each unit of z is taken not to shrink at all."""


def order_means(quantile: Quantile, n: int, power: int = 1) -> NDArray[np.float64]:
    """(n,) means of T_(q)^power, q = 1..n, for n independent times with the given quantile function; infinite where they are.

    The q-th smallest of n uniforms has a beta density; with u = 1 / (1 + e^-z) and z = 3 sinh(tau) the integrand is smooth and
    vanishes at both ends, so equal steps in tau converge exponentially and no sum alternates (unlike equation 8 of [B]).
    """
    tau = np.arange(-np.arcsinh(REACH / FINE), np.arcsinh(REACH / FINE), STEP)
    z = FINE * np.sinh(tau)
    lower, upper = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    with np.errstate(divide="ignore", over="ignore"):
        values = power * np.log(quantile(np.exp(lower), np.exp(upper)))
    inside = np.flatnonzero(np.abs(values) < REACH)  # where the time is within the range of floating point numbers
    if not len(inside):
        return np.full(n, np.inf)
    keep = slice(inside[0], inside[-1] + 1)
    z, values, lower, upper, step = z[keep], values[keep], lower[keep], upper[keep], (STEP * FINE * np.cosh(tau))[keep]
    scales = gammaln(n + 1) - gammaln(np.arange(1, n + 1)) - gammaln(np.arange(n, 0, -1))
    return np.array([_mean(values + scales[q - 1] + q * lower + (n - q + 1) * upper, z, step) for q in range(1, n + 1)])


def _mean(logs: NDArray[np.float64], z: NDArray[np.float64], step: NDArray[np.float64]) -> float:
    """Integral of e^logs over z, with what lies beyond both ends, where it is exponential in z."""
    with np.errstate(over="ignore", under="ignore"):
        terms = np.exp(logs) * step
    total = float(terms.sum())
    return total + sum(_beyond(logs[ends], z[ends], step[ends[0]], total) for ends in ([0, 1], [-1, -2]))


def _beyond(logs: NDArray[np.float64], z: NDArray[np.float64], step: float, total: float) -> float:
    """What the integral has outside one end, from the end and its neighbour; infinite if it does not shrink outwards."""
    edge = float(np.exp(min(logs[0], REACH)))
    if not edge > NEGLIGIBLE * total:
        return 0.0
    shrinks = (logs[1] - logs[0]) / abs(z[1] - z[0])
    return edge / shrinks - edge * step / 2 if shrinks > SLOWEST else float("inf")
