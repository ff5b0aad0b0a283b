"""The random cyclic code of Tandon et al. (ICML 2017, algorithm 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..randomness import generator


def random(n: int, s: int, seed: int = 0) -> NDArray[np.float64]:
    """(n, n) cyclic matrix whose rows lie in the null space of a random (s, n) matrix that annihilates the ones.

    Any n - s rows span the ones with probability 1, but noise is amplified strongly: kept for comparison.
    """
    parity = generator(seed).standard_normal((s, n))
    if s:
        parity[:, -1] = -parity[:, :-1].sum(axis=1)
    matrix = np.zeros((n, n))
    for i in range(n):
        others = (i + 1 + np.arange(s)) % n
        matrix[i, i] = 1.0
        matrix[i, others] = -np.linalg.solve(parity[:, others], parity[:, i])
    return matrix
