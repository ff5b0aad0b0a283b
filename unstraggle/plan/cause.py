"""Why workers are late: one that always is, one that changes, or the tasks themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..latency import fixed_cost
from ..trace import Trace

Kind = Literal["even", "persistent", "changing", "tasks", "mixed", "unknown"]

EVEN = 0.02
"""Workers whose times differ by less than this (standard deviation of the logarithm) are alike."""

FEWEST = 5
"""Rounds from which on a cause is named: in fewer, one that is slow always looks like one that was slow by chance."""

DOMINANT = 0.6
"""Share of the variance from which on one cause is named."""


@dataclass(frozen=True)
class Cause:
    """Where the differences between workers in a round come from, as shares of their variance (of logarithms).

    persistent: workers that differ in the same way in every round. changing: a worker that is slow in all its tasks of a
    round but not in others. tasks: single tasks that take longer, as with data of uneven size; None where a worker has one
    task, so that it cannot be told from changing. kind "unknown": fewer than 5 whole rounds. spread: standard deviation of
    the logarithm of the workers' times in a round. slowest: the worker that is slowest most often, and slowest_share how
    often.
    """

    kind: Kind
    spread: float
    persistent: float
    changing: float
    tasks: float | None
    slowest: int
    slowest_share: float

    def __str__(self) -> str:
        persistent, changing, tasks = (f"{100 * (share or 0):.0f} %" for share in (self.persistent, self.changing, self.tasks))
        told = "in all of its tasks" if self.tasks is not None else "by its machine or its data: one task per round cannot tell"
        return {
            "even": f"workers are alike: their times differ by {100 * self.spread:.2g} %",
            "persistent": f"the same workers are slow in every round ({persistent} of the differences); worker {self.slowest} "
            f"is the slowest in {100 * self.slowest_share:.0f} % of the rounds",
            "changing": f"a different worker is slow each round ({changing} of the differences), {told}",
            "tasks": f"single tasks take longer ({tasks} of the differences) and the slow worker changes: the data are the "
            "cause, not the machines",
            "unknown": f"fewer than {FEWEST} whole rounds do not tell who is slow always from who was by chance",
            "mixed": f"no single cause: of the differences {persistent} persist, {changing} change with the round, {tasks} "
            "come from single tasks",
        }[self.kind]


@door
def cause(trace: Trace) -> Cause:
    """Split the variance of the workers' mean task times, round by round, into its sources.

    >>> from unstraggle.trace import from_seconds
    >>> cause(from_seconds([[1.0, 1.0, 2.0], [1.1, 1.1, 2.2], [0.9, 0.9, 1.8], [1.0, 1.1, 2.1], [1.0, 1.0, 2.0]])).kind
    'persistent'
    """
    logs = _logs(trace)
    rounds, n, tasks = logs.shape
    means = logs.mean(axis=2)
    means = means - means.mean(axis=1, keepdims=True)
    single = float(logs.var(axis=2, ddof=1).mean() / tasks) if tasks > 1 else 0.0
    changing = max(float(_changing(means)) - single, 0.0)
    persistent = max(float(means.mean(axis=0).var()) - (changing + single) / rounds, 0.0)
    shares = np.array([persistent, changing, single]) / max(persistent + changing + single, 1e-300)
    slow = np.bincount(means.argmax(axis=1), minlength=n) / rounds
    spread = float(np.sqrt((means**2).mean()))
    return Cause(_kind(spread, shares, n, rounds), spread, *_told(shares, tasks), int(slow.argmax()), float(slow.max()))


def _logs(trace: Trace) -> NDArray[np.float64]:
    """(rounds, workers, tasks) logarithms of task times per unit of work, of the rounds in which everything ended.

    Without what every task costs however small it is: small tasks would look like slow data.
    """
    cost = fixed_cost(trace)
    times = (trace.durations - (cost.seconds if cost.known else 0.0)) / trace.work
    whole = times[np.isfinite(times).all(axis=(1, 2)) & (times > 0).all(axis=(1, 2))]
    return np.log(whole) if len(whole) else np.zeros((1, trace.n, 1))


def _changing(means: NDArray[np.float64]) -> float:
    """Variance of a worker's lateness over the rounds."""
    return float(means.var(axis=0, ddof=1).mean()) if len(means) > 1 else 0.0


def _told(shares: NDArray[np.float64], tasks: int) -> tuple[float, float, float | None]:
    return float(shares[0]), float(shares[1]), float(shares[2]) if tasks > 1 else None


def _kind(spread: float, shares: NDArray[np.float64], n: int, rounds: int) -> Kind:
    if rounds < FEWEST and n > 1:
        return "unknown"
    if spread < EVEN or n == 1:
        return "even"
    kinds: tuple[Kind, ...] = ("persistent", "changing", "tasks")
    return kinds[int(shares.argmax())] if shares.max() >= DOMINANT else "mixed"
