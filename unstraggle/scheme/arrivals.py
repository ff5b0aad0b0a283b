"""Latency: the role of a model that says when messages arrive, and what is asked of its times."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .code import Code

Times = NDArray[np.float64]


@runtime_checkable
class Latency(Protocol):
    """A sampler of arrival times. Rounds are drawn one after the other, so that two codes with equal n and seed share draws.

    `sample` is all that a model needs. What else it may know makes simulations faster and planners exact: `Speeds`, `Resumes`,
    `Survival` and `OrderStatistics`, which are recognised by their methods.
    """

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, M) times at which the messages of the code reach the master; infinite for never."""
        ...


@runtime_checkable
class Speeds(Protocol):
    """A latency model in which a worker may have one speed per round; the simulator then need not write out every arrival."""

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times | None:
        """(rounds, n) seconds that a worker takes for a unit of work, or None where its tasks differ."""
        ...


@runtime_checkable
class Resumes(Protocol):
    """A latency model whose rounds have numbers, such as a replayed trace: draws in chunks go on where the one before ended."""

    def from_round(self, first: int) -> Latency:
        """The same rounds, beginning with a later one."""
        ...


@runtime_checkable
class Survival(Protocol):
    """A latency model that knows how probable it is to be late; `plan.deadline` needs it."""

    def survival(self, work: Any, deadline: Any) -> Times:
        """P(a worker takes longer than `deadline` for `work` units)."""
        ...


@runtime_checkable
class OrderStatistics(Protocol):
    """A latency model that knows the mean time of the q-th fastest worker; `plan.block_sizes` needs it."""

    def order_statistics(self, n: int) -> Times:
        """(n,) mean of the q-th smallest of n times of a unit of work."""
        ...


def checked(times: Times, source: object) -> Times:
    """Sampled times, refused if any is negative or not a number."""
    if times.size and not times.min() >= 0:
        raise Invalid(
            f"Latency models must give times >= 0, but {source} gave {times.min()}. Check its parameters or its trace."
        )
    return times
