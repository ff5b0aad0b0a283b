"""Estimate: the gradient of one round, and the record of how it came about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .step import Step


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(Step):
    """The decoded gradient (dim,) with its second track, if any, and the record of its round.

    got: (M,) which messages had arrived when the round ended, arrivals: (M,) when, infinite for those that had not. The
    gradient of a step that was skipped is zero.
    """

    tracks: NDArray[Any]
    got: NDArray[np.bool_]
    arrivals: NDArray[np.float64]

    @property
    def gradient(self) -> NDArray[Any]:
        """(dim,) the first track."""
        return np.asarray(self.tracks[0])

    @property
    def second(self) -> NDArray[Any]:
        """(dim,) the second track where the code has one, else the first."""
        return np.asarray(self.tracks[-1])
