"""Latency: the role of a model that says when messages arrive, and what is asked of its times."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .code import Code

Times = NDArray[np.float64]


class Latency(Protocol):
    """A sampler of arrival times. Rounds are drawn one after the other, so that two codes with equal n and seed share draws."""

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, M) times at which the messages of the code reach the master; infinite for never."""
        ...


@runtime_checkable
class Speeds(Protocol):
    """A latency model in which a worker may have one speed a round; the simulator then need not write out every arrival."""

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times | None:
        """(rounds, n) seconds that a worker takes for a unit of work, or None where its tasks differ."""
        ...


def checked(times: Times, source: object) -> Times:
    """Sampled times, refused if any is negative or not a number."""
    if times.size and not times.min() >= 0:
        raise Invalid(
            f"Latency models must give times >= 0, but {source} gave {times.min()}. Check its parameters or its trace."
        )
    return times
