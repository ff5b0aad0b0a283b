"""Identity: no quantisation, in the same envelope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .base import Coded, Model, require_dim
from .layout import Format, Kind


@dataclass(frozen=True)
class Identity(Coded):
    """float32 coordinates as they are, with header and checksums. The seed is recorded and changes nothing.

    >>> Identity().decode(Identity().encode([1.5, -2.0], seed=0))
    array([ 1.5, -2. ], dtype=float32)
    """

    bits: ClassVar[int] = 32

    @property
    def format(self) -> Format:
        return Format(Kind.IDENTITY, 32)

    def square_error(self, x: NDArray[np.float64], step: NDArray[np.float64]) -> float:
        return 0.0

    def omega(self, dim: int, model: Model = "paper") -> float:
        """0."""
        require_dim(dim, None, model)
        return 0.0
