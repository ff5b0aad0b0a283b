"""Compiled: the probability that sorted uniforms stay below a staircase, with its gradient. No term alternates in sign."""

from __future__ import annotations

import numpy as np
from numba import njit

NEGLIGIBLE = 1e-24
"""Probabilities below this are dropped, which makes the work grow with N^2 and not N^3."""


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def staircase(stairs, probability, gradient):  # type: ignore[no-untyped-def]
    """P(U_(1) <= stairs[k, 0], ..., U_(N) <= stairs[k, N - 1]) for N uniforms and each k, and its derivatives by the stairs.

    The uniforms are the points of a Poisson process of rate N, given that there are N of them. `ways[q, j]` is the probability
    of j points below stair q such that every stair up to q has enough of them; from stair to stair it is convolved with a
    Poisson law. The backward pass gives all derivatives at the price of a second sweep. stairs: (K, N), nondecreasing in N.
    """
    size = stairs.shape[1]
    raw, poisson = np.zeros((size + 1, size + 1)), np.empty((size + 1, size + 1))
    lengths = np.zeros(size + 1, np.int64)
    condition = np.exp(size + np.log(np.arange(1, size + 1) / size).sum())
    for k in range(len(stairs)):
        _forward(stairs[k], poisson, lengths, raw)
        scale = condition * np.exp(-size * (1.0 - stairs[k, -1]))
        probability[k] = scale * raw[size, size]
        _backward(poisson, lengths, raw, gradient[k])
        gradient[k] *= scale * size


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _forward(stairs, poisson, lengths, raw):  # type: ignore[no-untyped-def]
    """raw[q, j]: j points below stair q, enough below all stairs before; those with j < q are not enough for q itself."""
    size = len(stairs)
    raw[:] = 0.0
    raw[0, 0] = 1.0
    before = 0.0
    for q in range(1, size + 1):
        mean = size * (stairs[q - 1] - before)
        before = stairs[q - 1]
        lengths[q] = _poisson(mean, poisson[q])
        for j in range(q - 1, size + 1):
            share = raw[q - 1, j]
            if share > NEGLIGIBLE:
                for i in range(min(lengths[q], size + 1 - j)):
                    raw[q, j + i] += share * poisson[q, i]


@njit(nogil=True, cache=True)
def _poisson(mean, law):  # type: ignore[no-untyped-def]
    """Fill in the Poisson law up to where it becomes negligible, and say how far that is."""
    law[0] = np.exp(-mean)
    for i in range(1, len(law)):
        law[i] = law[i - 1] * mean / i
        if i > mean and law[i] < NEGLIGIBLE:
            return i
    return len(law)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _backward(poisson, lengths, raw, gradient):  # type: ignore[no-untyped-def]
    """Derivatives by the stairs: that by the mean number of points on a step, less that of the next step."""
    size = len(gradient)
    value, earlier = np.zeros(size + 1), np.zeros(size + 1)
    value[size] = 1.0
    next_step = -raw[size, size]
    for q in range(size, 0, -1):
        step = 0.0
        for j in range(q, size + 1):
            step += value[j] * (raw[q, j - 1] - raw[q, j])
        gradient[q - 1] = step - next_step
        next_step = step
        for j in range(q - 1, size + 1):
            total = 0.0
            if raw[q - 1, j] > NEGLIGIBLE:
                for i in range(max(q - j, 0), min(lengths[q], size + 1 - j)):
                    total += value[j + i] * poisson[q, i]
            earlier[j] = total
        value[q - 1 :] = earlier[q - 1 :]
