"""Plain: numbers as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import Invalid
from .base import Bytes, Floats, Model, require_dim
from .wire import as_bytes


@dataclass(frozen=True)
class Plain:
    """No header and no rounding: the codec of messages that are not quantised.

    In a run such messages have the numbers of the problem, be they float64 or complex, and never come here; by itself it takes
    float32. `Identity` is float32 in an envelope with checksums.

    >>> codec = Plain()
    >>> codec.accumulate(np.ones(2, np.float32), [codec.check(codec.encode([1.0, -2.0], seed=0), 2)], [0.5])
    array([1.5, 0. ], dtype=float32)
    """

    bits: ClassVar[int] = 32

    def size(self, length: int) -> int:
        return 4 * length

    def encode(self, x: ArrayLike, seed: int) -> Bytes:
        return np.array(x, "<f4").view(np.uint8)

    def check(self, payload: Any, length: int) -> NDArray[np.float32]:
        found = as_bytes(payload)
        if len(found) != self.size(length):
            raise Invalid(f"A plain payload of {length} coordinates has {self.size(length)} bytes, but got {len(found)}.")
        return found.view("<f4")

    def accumulate(self, out: Floats, payloads: Sequence[NDArray[np.float32]], weights: Sequence[float]) -> Floats:
        for vector, weight in zip(payloads, weights, strict=True):
            out += np.float32(weight) * vector
        return out

    def variance(self, x: ArrayLike, *, relative: bool = False) -> float:
        return 0.0

    def omega(self, dim: int, model: Model = "paper") -> float:
        """0."""
        require_dim(dim, None, model)
        return 0.0


PLAIN = Plain()
