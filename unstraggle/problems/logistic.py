"""Logistic regression: gradients of the summed log-loss with a ridge, in partitions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..blocks import block_slices
from ..errors import Invalid
from ..randomness import Seed, generator

if TYPE_CHECKING:
    from ..code import Code

Data = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Logistic:
    """Partitions of a data set with labels 0 and 1. ridge: of every sample, so that sums over samples stay sums.

    >>> problem = Logistic.split([[1.0], [2.0]], [0, 1], parts=2)
    >>> problem.grad(np.zeros(1), 1).tolist()
    [-1.0]
    """

    partitions: tuple[Data, ...]
    ridge: float = 0.0

    @classmethod
    def split(cls, features: ArrayLike, labels: ArrayLike, parts: int | Sequence[float], ridge: float = 0.0) -> Logistic:
        """Cut samples into contiguous partitions: so many of equal size, or with the given fractions."""
        x, y = np.asarray(features, dtype=float), np.asarray(labels, dtype=float)
        if x.ndim != 2 or y.shape != x.shape[:1] or not np.isin(y, (0, 1)).all():
            raise Invalid(
                f"Logistic needs features (samples, dim) and labels 0 or 1 (samples,), but got {x.shape} and {y.shape}."
            )
        fractions = [1 / parts] * parts if isinstance(parts, int) else list(parts)
        return cls(tuple((x[rows], y[rows]) for rows in block_slices(len(x), fractions)), ridge)

    @classmethod
    def random(cls, code: Code, dim: int = 100, samples: int = 4000, ridge: float = 1e-3, rng: Seed = 0) -> Logistic:
        """Data drawn from a logistic model, in the partitions that a code wants."""
        random = generator(rng)
        x = random.standard_normal((samples, dim))
        y = random.random(samples) < _sigmoid(x @ random.standard_normal(dim) / np.sqrt(dim))
        return cls.split(x, y, code.shares.tolist(), ridge)

    @property
    def k(self) -> int:
        return len(self.partitions)

    @property
    def dim(self) -> int:
        return int(self.partitions[0][0].shape[1])

    @property
    def dtype(self) -> np.dtype[np.float64]:
        return np.dtype(np.float64)

    def only(self, parts: Set[int]) -> Logistic:
        """The problem of a worker that needs only these partitions; the others are empty."""
        none = np.empty((0, self.dim)), np.empty(0)
        return replace(self, partitions=tuple(data if p in parts else none for p, data in enumerate(self.partitions)))

    def grad(self, params: NDArray[np.float64], part: int, where: slice = slice(None), step: int = 0) -> NDArray[np.float64]:
        """The partial gradient of one partition, or the coordinates `where` of it; the same at every step."""
        x, y = self.partitions[part]
        return np.asarray(x[:, where].T @ (_sigmoid(x @ params) - y) + self.ridge * len(y) * params[where])

    def gradient(self, params: NDArray[np.float64]) -> NDArray[np.float64]:
        """The whole gradient, computed in one place."""
        return np.asarray(sum(self.grad(params, part) for part in range(self.k)))

    def loss(self, params: NDArray[np.float64]) -> float:
        """The mean loss of a sample."""
        samples = sum(len(y) for _, y in self.partitions)
        losses = sum(float(np.sum(np.logaddexp(0, x @ params) - y * (x @ params))) for x, y in self.partitions)
        return losses / samples + self.ridge / 2 * float(params @ params)


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 + 0.5 * np.tanh(x / 2))
