"""Coefficients that mix blocks of coordinates, after Ye and Abbe (2018), with random instead of Vandermonde matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..randomness import generator
from .null_space import missing_sets
from .support import cyclic_mask


def mixing(n: int, s: int, blocks: int, seed: int = 0, tries: int = 12) -> NDArray[np.float64]:
    """(n, n * blocks) coefficients of messages of 1 / blocks of the gradient, of which any n - s give all blocks of the sum.

    Worker i has partitions i, ..., i + s + blocks - 1 (mod n); column part * blocks + block. The rows are combinations, by a
    random matrix A, of the sums of the blocks and of n - s - blocks vectors more, chosen such that a worker needs nothing of
    partitions that it does not have. The draw whose worst noise gain over survivor sets is least is kept.
    """
    rng = generator(seed)
    sets = missing_sets(n, s, rng)
    draws = [_draw(n, s, blocks, rng) for _ in range(tries)]
    return min(draws, key=lambda draw: _worst_gain(draw, blocks, sets))[1]


Draw = tuple[NDArray[np.float64], NDArray[np.float64]]


def _draw(n: int, s: int, blocks: int, rng: np.random.Generator) -> Draw:
    """(A, coefficients): A has n rows and n - s columns, the first of which stand for the sums of the blocks."""
    outer = rng.standard_normal((n, n - s))
    has = cyclic_mask(n, s + blocks)
    coef = np.zeros((n, n, blocks))
    for part in range(n):
        without = ~has[:, part]
        inner = np.zeros((n - s, blocks))
        inner[:blocks] = np.eye(blocks)
        inner[blocks:] = np.linalg.solve(outer[without, blocks:], -outer[without, :blocks]) if without.any() else 0.0
        coef[:, part] = np.where(has[:, part, None], outer @ inner, 0.0)
    lengths = np.abs(coef).max(axis=(1, 2))
    return outer / lengths[:, None], coef.reshape(n, -1) / lengths[:, None]


def _worst_gain(draw: Draw, blocks: int, missing: NDArray[np.int64]) -> float:
    """Largest length of (weight x row length) of a block over the sets of missing rows."""
    outer, coef = draw
    lengths, worst = np.linalg.norm(coef, axis=1), 0.0
    for rows in missing:
        heard = np.delete(np.arange(len(outer)), rows)
        try:
            weights = np.linalg.inv(outer[heard])[:blocks]
        except np.linalg.LinAlgError:
            return np.inf
        worst = max(worst, float(np.linalg.norm(weights * lengths[heard], axis=1).max()))
    return worst
