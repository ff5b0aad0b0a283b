"""Sign: one bit per coordinate, and still unbiased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from .base import Coded, Model, require_bucket, require_dim
from .layout import Format, Kind


@door
@dataclass(frozen=True)
class Sign(Coded):
    """Plus or minus the norm, plus with probability (1 + x / norm) / 2: the one-bit quantiser of 1-bit SGC.

    bucket: coordinates that share a norm, a multiple of 512; None: all of them share one. The variance is (d - 1) |x|^2, with
    d the smaller of dim and bucket, and many messages average it out. Use QSGD(bits=2, bucket=512) where two bits fit.

    >>> Sign().decode(Sign().encode([0.0, -2.0], seed=3))[1]
    np.float32(-2.0)
    """

    bucket: int | None = None
    bits: ClassVar[int] = 1

    def __post_init__(self) -> None:
        require_bucket("Sign", self.bucket)

    @property
    def format(self) -> Format:
        return Format(Kind.SIGN, 1, int(self.bucket or 0))

    def square_error(self, x: NDArray[np.float64], step: NDArray[np.float64]) -> float:
        return float(np.sum(step**2 - x**2))

    def omega(self, dim: int, model: Model = "paper") -> float:
        """d - 1, whatever the model; d is dim, or the bucket if that is smaller."""
        return max(0.0, require_dim(dim, self.bucket, model) - 1.0)
