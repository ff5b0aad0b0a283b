"""Estimate: the gradient of one round, and the record of how it came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .step import Step


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(Step):
    """The decoded gradient (dim,) with its second track, if any, and the record of its round.

    got: (M,) which messages had arrived when the round ended, arrivals: (M,) when, infinite for those that had not. The
    gradient of a step that was skipped is zero. Where messages stay on a device, it is a tensor there. computed: (n, 2) seconds
    that workers took for the tasks that they told of, and the units of work of these; zeros for who told of none.
    """

    tracks: Any
    got: NDArray[np.bool_]
    arrivals: NDArray[np.float64]
    computed: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 2)))

    @property
    def gradient(self) -> Any:
        """(dim,) the first track."""
        return self.tracks[0]

    @property
    def second(self) -> Any:
        """(dim,) the second track where the code has one, else the first."""
        return self.tracks[-1]
