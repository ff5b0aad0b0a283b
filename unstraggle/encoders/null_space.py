"""The random null-space code: for any mask, the best of several draws."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .support import scaled, threshold

RANDOM_SETS, CONTIGUOUS_SETS = 30, 10


def null_space(mask: NDArray[np.bool_], seed: int = 0, tries: int = 12) -> NDArray[np.float64]:
    """(R, k) matrix with the support of the mask of which any `threshold(mask)` rows span the ones.

    All columns lie in the orthogonal complement of a random subspace N and have inner product 1 with a vector a in that
    complement: a decodes from all rows, and adding elements of N to it decodes from fewer. The draw whose worst noise gain
    over random and contiguous survivor sets is least is kept, which makes the code usable at n = 100 and beyond.
    """
    rng = np.random.default_rng(seed)
    missing = list(_missing_sets(len(mask), len(mask) - threshold(mask), rng))
    draws = [_draw(mask, rng) for _ in range(tries)]
    return min(draws, key=lambda draw: _worst_gain(*draw, missing))[0]


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


def _missing_sets(size: int, missing: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    for _ in range(RANDOM_SETS):
        yield rng.permutation(size)[:missing]
    for start in range(0, size, max(1, size // CONTIGUOUS_SETS)):
        yield (start + np.arange(missing)) % size


def _worst_gain(
    matrix: NDArray[np.float64],
    null: NDArray[np.float64],
    weights: NDArray[np.float64],
    missing: list[NDArray[np.int64]],
) -> float:
    """Largest length of (weight x row length) over the sets of missing rows."""
    lengths = np.linalg.norm(matrix, axis=1)
    gains = []
    for rows in missing:
        try:
            decoding = weights - null @ np.linalg.solve(null[rows], weights[rows])
        except np.linalg.LinAlgError:
            return np.inf
        gains.append(np.linalg.norm(decoding * lengths))
    return float(max(gains))
