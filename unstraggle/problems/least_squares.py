"""Least squares: gradients X_j^T (X_j theta - y_j), summed over the samples of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..doors import door
from ..errors import Invalid
from .linear import Linear, Vector, cut

if TYPE_CHECKING:
    from ..scheme.code import Code


@door
@dataclass(frozen=True, eq=False)
class LeastSquares(Linear):
    """Partitions of a regression data set, raw or encoded.

    >>> problem = LeastSquares.split(np.eye(4), np.arange(4.0), parts=2)
    >>> problem.grad(np.zeros(4), 1).tolist()
    [0.0, 0.0, -2.0, -3.0]
    """

    @classmethod
    @door
    def split(cls, features: ArrayLike, labels: ArrayLike, parts: int | Sequence[float]) -> LeastSquares:
        """Cut samples into contiguous partitions: so many of equal size, or with the given fractions."""
        if np.ndim(features) != 2 or np.shape(labels) != np.shape(features)[:1]:
            raise Invalid(
                f"LeastSquares needs features (samples, dim) and labels (samples,), but got {np.shape(features)} and "
                f"{np.shape(labels)}."
            )
        return cls(cut(features, labels, parts))

    @classmethod
    @door
    def for_code(cls, code: Code, features: ArrayLike, labels: ArrayLike) -> LeastSquares:
        """The partitions that a code's workers hold: raw ones of the code's shares, or encoded ones."""
        if code.data is None:
            return cls.split(features, labels, code.shares.tolist())
        return cls.split(features, labels, int(code.data.shape[1])).encode(code.data)

    def residuals(self, params: Vector, part: int) -> Vector:
        x, y = self.partitions[part]
        return np.asarray(x @ params - y)

    def encode(self, matrix: Any) -> LeastSquares:
        """Partitions that are linear combinations of these (matrix: encoded x raw), as Lagrange coding wants them.

        Shorter partitions are filled up with samples of zeros, which add nothing to any gradient.
        """
        if matrix.shape[1] != self.k:
            raise Invalid(f"The encoding is for {matrix.shape[1]} partitions, but the problem has {self.k}.")
        longest = max(len(y) for _, y in self.partitions)
        x = np.stack([_filled(x, longest) for x, _ in self.partitions])
        y = np.stack([_filled(y, longest) for _, y in self.partitions])
        rows = matrix.toarray()
        return LeastSquares(tuple(zip(np.tensordot(rows, x, axes=1), rows @ y, strict=True)))


def _filled(values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    return np.concatenate([values, np.zeros((length - len(values), *values.shape[1:]))])
