"""The interface of a latency model, and arrival times from task times."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..code import Code
from ..errors import Invalid


class Latency(Protocol):
    """A sampler of arrival times. Rounds are drawn one after the other, so that two codes with equal n and seed share draws."""

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """(rounds, M) times at which the messages of the code reach the master; infinite for never."""
        ...


@runtime_checkable
class Speeds(Protocol):
    """A latency model in which a worker may have one speed a round; the simulator then need not write out every arrival."""

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> NDArray[np.float64] | None:
        """(rounds, n) seconds that a worker takes for a unit of work, or None where its tasks differ."""
        ...


def arrivals(code: Code, durations: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, M) arrival times from (R, T) durations of the tasks: a worker does its tasks one after the other."""
    padded = np.concatenate([durations, np.zeros((len(durations), 1))], axis=1)
    finished = padded[:, code.tasks.queues].cumsum(axis=2)
    return np.asarray(finished[:, code.messages.worker, code.messages.after - 1])


def checked(times: NDArray[np.float64], source: object) -> NDArray[np.float64]:
    """Sampled times, refused if any is negative or not a number."""
    if times.size and not times.min() >= 0:
        raise Invalid(
            f"Latency models must give times >= 0, but {source} gave {times.min()}. Check its parameters or its trace."
        )
    return times
