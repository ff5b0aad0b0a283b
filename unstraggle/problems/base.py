"""Problem: data and a model, cut into partitions."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Problem(Protocol):
    """What workers compute. It travels to every worker, so it must be picklable.

    The same arguments give the same numbers on whichever worker: randomness (batches, dropout) is seeded by step and part.
    """

    @property
    def k(self) -> int:
        """Partitions."""
        ...

    @property
    def dim(self) -> int:
        """Coordinates of the parameters and of a gradient."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a coordinate: float32 or float64."""
        ...

    def grad(self, params: NDArray[Any], part: int, where: slice = ..., step: int = 0) -> NDArray[Any]:
        """The gradient summed over the samples of one partition, or the coordinates `where` of it."""
        ...
