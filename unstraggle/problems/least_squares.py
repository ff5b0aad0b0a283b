"""Least squares: gradients X_j^T (X_j theta - y_j), summed over the samples of a partition."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..blocks import block_slices
from ..errors import Invalid

if TYPE_CHECKING:
    from ..code import Code

Data = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Partitions of a regression data set, raw or encoded.

    >>> problem = LeastSquares.split(np.eye(4), np.arange(4.0), parts=2)
    >>> problem.grad(np.zeros(4), 1).tolist()
    [0.0, 0.0, -2.0, -3.0]
    """

    partitions: tuple[Data, ...]

    @classmethod
    def split(cls, features: ArrayLike, labels: ArrayLike, parts: int | Sequence[float]) -> LeastSquares:
        """Cut samples into contiguous partitions: so many of equal size, or with the given fractions."""
        x, y = np.asarray(features, dtype=float), np.asarray(labels, dtype=float)
        if x.ndim != 2 or y.shape != x.shape[:1]:
            raise Invalid(f"LeastSquares needs features (samples, dim) and labels (samples,), but got {x.shape} and {y.shape}.")
        fractions = [1 / parts] * parts if isinstance(parts, int) else list(parts)
        return cls(tuple((x[rows], y[rows]) for rows in block_slices(len(x), fractions)))

    @classmethod
    def for_code(cls, code: Code, features: ArrayLike, labels: ArrayLike) -> LeastSquares:
        """The partitions that a code's workers hold: raw ones of the code's shares, or encoded ones."""
        if code.data is None:
            return cls.split(features, labels, code.shares.tolist())
        return cls.split(features, labels, int(code.data.shape[1])).encode(code.data)

    @property
    def k(self) -> int:
        return len(self.partitions)

    @property
    def dim(self) -> int:
        return int(self.partitions[0][0].shape[1])

    @property
    def dtype(self) -> np.dtype[np.float64]:
        return np.dtype(np.float64)

    def only(self, parts: Set[int]) -> LeastSquares:
        """The problem of a worker that needs only these partitions; the others are empty."""
        none = np.empty((0, self.dim)), np.empty(0)
        return LeastSquares(tuple(data if part in parts else none for part, data in enumerate(self.partitions)))

    def grad(self, params: NDArray[np.float64], part: int, where: slice = slice(None), step: int = 0) -> NDArray[np.float64]:
        """The partial gradient of one partition, or the coordinates `where` of it; the same at every step."""
        x, y = self.partitions[part]
        return np.asarray(x[:, where].T @ (x @ params - y))

    def gradient(self, params: NDArray[np.float64]) -> NDArray[np.float64]:
        """The whole gradient, computed in one place."""
        return np.asarray(sum(self.grad(params, part) for part in range(self.k)))

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
