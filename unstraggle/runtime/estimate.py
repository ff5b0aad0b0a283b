"""Estimate: the gradient of one round, and how it came about."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """Where the time of a round went, along the message that ended it: seconds."""

    compute: float
    transfer: float
    wait: float
    decode: float


@dataclass(frozen=True, eq=False)
class Estimate:
    """The decoded gradient (dim,) with its second track, if any, and the record of its round.

    exact: whether it is the sum of all partial gradients. got: (M,) which messages had arrived when the round ended,
    arrivals: (M,) when, infinite for those that had not. late:
    messages of earlier rounds that came meanwhile. damaged: refused ones. lost: workers that were lost before or during the
    round, even if they came back. skipped: no gradient could be had, and the policy is to go on: the gradient is zero.
    """

    tracks: NDArray[Any]
    round: int
    step: int
    time: float
    exact: bool
    residual: float
    got: NDArray[np.bool_]
    arrivals: NDArray[np.float64]
    late: int = 0
    duplicates: int = 0
    damaged: int = 0
    lost: tuple[int, ...] = ()
    bytes: int = 0
    skipped: bool = False
    split: Split = field(default=Split(0.0, 0.0, 0.0, 0.0))

    @property
    def gradient(self) -> NDArray[Any]:
        """(dim,) the first track."""
        return np.asarray(self.tracks[0])

    @property
    def second(self) -> NDArray[Any]:
        """(dim,) the second track where the code has one, else the first."""
        return np.asarray(self.tracks[-1])

    @property
    def messages(self) -> int:
        """How many messages had arrived."""
        return int(self.got.sum())

    def to_dict(self) -> dict[str, Any]:
        """The record without the gradient, for JSON."""
        return {
            "round": self.round,
            "step": self.step,
            "time": self.time,
            "exact": self.exact,
            "residual": self.residual,
            "messages": self.messages,
            "late": self.late,
            "duplicates": self.duplicates,
            "damaged": self.damaged,
            "lost": list(self.lost),
            "bytes": self.bytes,
            "skipped": self.skipped,
            "split": dict(vars(self.split)),
        }
