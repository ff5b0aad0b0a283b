"""What a master has seen of its workers: seconds of a unit of work by round and worker, and how little is known of the late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..runtime.estimate import Estimate
from ..scheme.code import Code

Times = NDArray[np.float64]

ALIKE = 1.1
"""Tasks whose work differs by less than this factor do not tell a fixed cost from work."""
MAD = 1.4826 * 1.2533
"""The standard error of a median, in median deviations over the root of the number of values."""
DEAR = 0.05
"""A fixed cost counts from this share of the smallest task on: less is noise of the medians."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A round: how long was waited for it, and (n,) seconds of a unit of work of each worker.

    code: by its name. work: units of work of a task. seconds: infinite for workers that had not told of any task when the round
    ended; then `least` (n,) is what is known: it takes them at least as long.
    """

    code: str
    work: float
    wait: float
    seconds: Times
    least: Times


def seen(estimate: Estimate, code: Code) -> Seen:
    """What the estimate of a round tells. Who was not heard of has not done its first task by the end of the round."""
    took, units = estimate.computed.T
    seconds = np.divide(took, units, out=np.full(code.n, np.inf), where=units > 0)
    first = code.tasks.work[code.tasks.queues[:, 0]]
    least = np.where(np.isfinite(seconds), 0.0, estimate.wait / first)
    return Seen(code.name, float(np.median(code.tasks.work)), float(estimate.wait), np.maximum(seconds, 1e-9), least)


def speeds(rounds: Sequence[Seen], cost: float = 0.0) -> Times:
    """(R, n) seconds of a unit of work, without the fixed cost of its tasks, and with a value for who was late.

    Late workers took at least as long as is known. What the same worker took in other rounds, if that is longer, stands in for
    it, one value after the other; if it never was, the least.
    """
    whole = np.array([one.seconds for one in rounds])
    least = np.array([one.least for one in rounds])
    for r, worker in np.argwhere(~np.isfinite(whole)).tolist():
        longer = np.sort(whole[np.isfinite(whole[:, worker]) & (whole[:, worker] >= least[r, worker]), worker])
        least[r, worker] = longer[r % len(longer)] if len(longer) else least[r, worker]
    filled = np.where(np.isfinite(whole), whole, least)
    own = cost / np.array([one.work for one in rounds])[:, None]
    return np.asarray(np.maximum(filled - own, 0.01 * filled))


def cost_of_a_task(rounds: Sequence[Seen]) -> float | None:
    """Seconds that a task costs however small it is, from rounds with tasks of different sizes; None where all are of one.

    A line for each worker through its medians over the rounds of each size, and the median of these. It counts where it is
    surely there, and a share of the smallest task that matters.

    >>> whole = Seen("", 1.0, 1.0, np.full(3, 1.1), np.zeros(3))
    >>> pieces = Seen("", 0.25, 1.0, np.full(3, 1.4), np.zeros(3))
    >>> round(cost_of_a_task([whole, whole, pieces, pieces]), 6)
    0.1
    """
    sizes = sorted({one.work for one in rounds})
    if sizes[-1] < ALIKE * sizes[0]:
        return None
    groups = [[one for one in rounds if one.work == size] for size in sizes]
    unit = np.array([np.median(speeds(group), axis=0) for group in groups])
    weights = np.sqrt([len(group) for group in groups])
    costs = np.polyfit(1 / np.array(sizes), unit, 1, w=weights)[0]
    cost = float(np.median(costs))
    error = MAD * float(np.median(np.abs(costs - cost))) / np.sqrt(len(costs))
    least = max(2 * error, DEAR * float(np.median(unit[0])) * sizes[0])
    return cost if cost > least else 0.0
