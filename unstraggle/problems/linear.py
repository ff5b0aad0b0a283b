"""What linear models share: gradients X_j^T r_j, where the residuals r_j depend on X_j theta, in partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..blocks import block_slices
from ..checks import require_count

Vector = NDArray[np.float64]
Data = tuple[NDArray[np.float64], Vector]


@dataclass(frozen=True, eq=False)
class Linear(ABC):
    """Features and labels of each partition. A subclass says what the residuals are.

    The gradient comes in blocks of coordinates at proportional cost, as paper [B] has it: residuals are computed once for all
    blocks of a partition, and kept until other parameters come.
    """

    partitions: tuple[Data, ...]
    _last: list[tuple[Vector, dict[int, Vector]]] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def residuals(self, params: Vector, part: int) -> Vector:
        """(samples,) derivative of the loss by the prediction X theta."""

    @property
    def k(self) -> int:
        return len(self.partitions)

    @property
    def dim(self) -> int:
        return int(self.partitions[0][0].shape[1])

    @property
    def dtype(self) -> np.dtype[np.float64]:
        return np.dtype(np.float64)

    def only(self, parts: Set[int]) -> Self:
        """The problem of a worker that needs only these partitions; the others are empty."""
        none = np.empty((0, self.dim)), np.empty(0)
        return replace(self, partitions=tuple(data if part in parts else none for part, data in enumerate(self.partitions)))

    def grad(self, params: Vector, part: int, where: slice = slice(None), step: int = 0) -> Vector:
        """The partial gradient of one partition, or the coordinates `where` of it; the same at every step."""
        whole = where.indices(self.dim) == (0, self.dim, 1)
        found = self.residuals(params, part) if whole else self._kept(params, part)
        return np.asarray(self.partitions[part][0][:, where].T @ found)

    def gradient(self, params: Vector) -> Vector:
        """The whole gradient, computed in one place."""
        return np.asarray(sum(self.grad(params, part) for part in range(self.k)))

    def _kept(self, params: Vector, part: int) -> Vector:
        """Residuals, computed once while the parameters stay the same. Parameters are compared, for arrays may be reused."""
        last = self._last[0] if self._last else None
        if last is None or not np.array_equal(last[0], params):
            last = np.array(params), {}
            self._last[:] = [last]
        if part not in last[1]:
            last[1][part] = self.residuals(params, part)
        return last[1][part]


def cut(features: ArrayLike, labels: ArrayLike, parts: int | Sequence[float]) -> tuple[Data, ...]:
    """Samples in contiguous partitions: so many of equal size, or with the given fractions."""
    x, y = np.asarray(features, dtype=float), np.asarray(labels, dtype=float)
    if isinstance(parts, int):
        count = require_count("A problem", "parts", parts, 1, 10**6, "Give the number of partitions.")
        parts = [1 / count] * count
    return tuple((x[rows], y[rows]) for rows in block_slices(len(x), list(parts)))
