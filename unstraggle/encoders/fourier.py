"""The real Fourier (cyclic MDS) code, for all n and s."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .support import scaled


def fourier(n: int, s: int) -> NDArray[np.float64]:
    """(n, n) cyclic matrix of which any n - s rows span the ones, from a polynomial with s roots around -1.

    Raviv et al. take n-th roots of unity, which is real only for odd n - s; for even n - s we take the n-th roots of -1 and
    rescale the columns. Well conditioned for random survivor sets; for contiguous ones only while s is small.

    >>> fourier(6, 1)[0].round(6).tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    generator = _generator(n, s)
    row, step = np.divmod(np.arange(n * (s + 1)), s + 1)
    column = (row + step) % n
    matrix = np.zeros((n, n))
    matrix[row, column] = generator[step]
    if (n - s) % 2 == 0:
        matrix[row, column] *= np.where(row + step >= n, -1.0, 1.0)
        matrix /= np.cos(np.pi * (np.arange(n) - (n - 1) / 2) / n)
    return scaled(matrix)


def _generator(n: int, s: int) -> NDArray[np.float64]:
    """(s + 1,) coefficients from x^0 on of the product of (x - root), built from conjugate pairs to keep its digits."""
    angles = np.pi * (n - s + 1 + 2 * np.arange(s)) / n
    coefficients = np.array([1.0, 1.0]) if s % 2 else np.array([1.0])
    for angle in angles[: s // 2]:
        coefficients = np.convolve(coefficients, [1.0, -2 * np.cos(angle), 1.0])
    return coefficients
