"""Logistic regression: gradients of the summed log-loss with a ridge, in partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from .linear import Linear, Vector, cut

if TYPE_CHECKING:
    from ..scheme.code import Code


@door
@dataclass(frozen=True, eq=False)
class Logistic(Linear):
    """Partitions of a data set with labels 0 and 1. ridge: of every sample, so that sums over samples stay sums.

    >>> problem = Logistic.split([[1.0], [2.0]], [0, 1], parts=2)
    >>> problem.grad(np.zeros(1), 1).tolist()
    [-1.0]
    """

    ridge: float = 0.0

    @classmethod
    @door
    def split(cls, features: ArrayLike, labels: ArrayLike, parts: int | Sequence[float], ridge: float = 0.0) -> Logistic:
        """Cut samples into contiguous partitions: so many of equal size, or with the given fractions."""
        shapes = np.shape(features), np.shape(labels)
        if len(shapes[0]) != 2 or shapes[1] != shapes[0][:1] or not np.isin(labels, (0, 1)).all():
            raise Invalid(
                f"Logistic needs features (samples, dim) and labels 0 or 1 (samples,), but got {shapes[0]} and {shapes[1]}."
            )
        return cls(cut(features, labels, parts), ridge)

    @classmethod
    @door
    def random(cls, code: Code, dim: int = 100, samples: int = 4000, ridge: float = 1e-3, rng: Seed = 0) -> Logistic:
        """Data drawn from a logistic model, in the partitions that a code wants."""
        random = generator(rng)
        x = random.standard_normal((samples, dim))
        y = random.random(samples) < _sigmoid(x @ random.standard_normal(dim) / np.sqrt(dim))
        return cls.split(x, y, code.shares.tolist(), ridge)

    def residuals(self, params: Vector, part: int) -> Vector:
        x, y = self.partitions[part]
        return np.asarray(_sigmoid(x @ params) - y)

    def grad(self, params: Vector, part: int, where: slice = slice(None), step: int = 0) -> Vector:
        """The partial gradient of one partition, or the coordinates `where` of it; the same at every step."""
        samples = len(self.partitions[part][1])
        return np.asarray(super().grad(params, part, where) + self.ridge * samples * params[where])

    def loss(self, params: NDArray[np.float64]) -> float:
        """The mean loss of a sample."""
        samples = sum(len(y) for _, y in self.partitions)
        losses = sum(float(np.sum(np.logaddexp(0, x @ params) - y * (x @ params))) for x, y in self.partitions)
        return losses / samples + self.ridge / 2 * float(params @ params)


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 + 0.5 * np.tanh(x / 2))
