"""The random null-space code: for any mask, the best of several draws."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from ..randomness import generator
from .support import scaled, threshold

ALL_SETS = 500
"""Up to so many survivor sets, all are tried; beyond, SOME_SETS random and as many contiguous ones."""
SOME_SETS = 100


def null_space(mask: NDArray[np.bool_], seed: int = 0, tries: int = 12) -> NDArray[np.float64]:
    """(R, k) matrix with the support of the mask of which any `threshold(mask)` rows span the ones.

    All columns lie in the orthogonal complement of a random subspace N and have inner product 1 with a vector a in that
    complement: a decodes from all rows, and adding elements of N to it decodes from fewer. The draw whose worst noise gain
    over random and contiguous survivor sets is least is kept, which makes the code usable at n = 100 and beyond.
    """
    rng = generator(seed)
    missing = missing_sets(len(mask), len(mask) - threshold(mask), rng)
    draws = (_draw(mask, rng) for _ in range(tries))
    return min(draws, key=lambda draw: _worst_gain(draw, missing))[0]


Draw = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def _draw(mask: NDArray[np.bool_], rng: np.random.Generator) -> Draw:
    """(matrix, null space, weights that decode from all rows)."""
    size = len(mask)
    null = np.linalg.qr(rng.standard_normal((size, size - threshold(mask))))[0]
    weights = _project_out(null, rng.standard_normal(size))
    matrix = np.zeros(mask.shape)
    for j, held in enumerate(mask.T):
        column = _project_out(np.linalg.qr(null[held])[0], weights[held])
        matrix[held, j] = column / (column @ weights[held])
    lengths = np.abs(matrix).max(axis=1)
    return scaled(matrix), null * lengths[:, None], weights * lengths


def _project_out(basis: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """The part of a vector orthogonal to an orthonormal basis; twice, because once loses digits."""
    for _ in range(2):
        vector = vector - basis @ (basis.T @ vector)
    return vector


def missing_sets(size: int, missing: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """(sets, missing) rows that do not arrive."""
    if comb(size, missing) <= ALL_SETS:
        return np.array(list(combinations(range(size), missing)), dtype=np.int64)
    random = [rng.permutation(size)[:missing] for _ in range(SOME_SETS)]
    starts = range(0, size, max(1, size // SOME_SETS))
    return np.array(random + [(start + np.arange(missing)) % size for start in starts])


def _worst_gain(draw: Draw, missing: NDArray[np.int64]) -> float:
    """Largest length of (weight x row length) over the sets of missing rows."""
    matrix, null, weights = draw
    lengths = np.linalg.norm(matrix, axis=1)
    worst = 0.0
    for rows in missing:
        try:
            decoding = weights - null @ np.linalg.solve(null[rows], weights[rows])
        except np.linalg.LinAlgError:
            return np.inf
        worst = max(worst, float(np.linalg.norm(decoding * lengths)))
    return worst
