"""Ones: a problem whose gradients cost next to nothing. Apart, because every worker process imports it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Ones:
    """Gradients that cost next to nothing to compute: what is left is the engine."""

    k: int
    dim: int
    type: str = "f8"

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.type)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        return ones(len(params[where]), self.type)


CACHE: dict[tuple[int, str], NDArray[Any]] = {}


def ones(length: int, kind: str) -> NDArray[Any]:
    if (length, kind) not in CACHE:
        CACHE[length, kind] = np.ones(length, kind)
    return CACHE[length, kind]
