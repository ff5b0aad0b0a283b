"""What could be done about stragglers without a code, and what it would have saved on rounds that it was not chosen on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..statistics import saving_of

Times = NDArray[np.float64]

TOGETHER = 4
"""Rounds made one by `more work per step`."""


@dataclass(frozen=True)
class Remedy:
    """Something to do instead of coding: a sentence in the imperative, and the share of the waiting-for-all time that it saves.

    bound: whether the saving is the most that it could be, since the remedy is taken to be perfect.
    """

    name: str
    action: str
    saving: float
    saving_ci95: tuple[float, float]
    bound: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {**vars(self), "saving_ci95": list(self.saving_ci95)}

    def __str__(self) -> str:
        low, high = self.saving_ci95
        return (
            f"{self.action}: saves {'at most ' * self.bound}{100 * self.saving:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"
        )


def remedies(seconds: Times, kind: str, workers: tuple[int, ...]) -> list[Remedy]:
    """Those that suit the kind of straggling, best first, learned from the first half of the rounds and scored on the second.

    seconds: (rounds, n) of a unit of work, all finite.

    >>> slow = np.ones((40, 4)) * [1.0, 1.0, 1.0, 2.0]
    >>> print(remedies(slow, "persistent", (3,))[0])
    replace worker 3: saves 50.0 % (50.0 to 50.0 %)
    """
    half = len(seconds) // 2
    if half < 2 or seconds.shape[1] < 2:
        return []
    found = list(_suitable(seconds[:half], seconds[half:], kind, workers))
    return sorted(found, key=lambda remedy: -remedy.saving)


def _suitable(seen: Times, held: Times, kind: str, workers: tuple[int, ...]) -> Iterator[Remedy]:
    if kind in ("persistent", "mixed"):
        if 0 < len(workers) <= seen.shape[1] // 2:
            yield _replace(held, workers)
        yield _rebalance(seen, held)
    if kind == "data":
        yield _balance(held)
    if kind in ("transient", "mixed", "data") and len(held) >= 2 * TOGETHER:
        yield _more_work(held)


def _replace(held: Times, workers: tuple[int, ...]) -> Remedy:
    """By workers that are never slower than the slowest of the others."""
    others = np.delete(held, workers, axis=1)
    return Remedy("replace", f"replace {named(workers)}", *saving_of(others.max(axis=1), held.max(axis=1)))


def _rebalance(seen: Times, held: Times) -> Remedy:
    speed = 1 / seen.mean(axis=0)
    times = held * (speed / speed.mean())
    action = "give each worker data in proportion to its speed"
    return Remedy("rebalance", action, *saving_of(times.max(axis=1), held.max(axis=1)))


def _balance(held: Times) -> Remedy:
    action = "balance the batches, so that every worker gets data of equal cost"
    return Remedy("balance", action, *saving_of(held.mean(axis=1), held.max(axis=1)), bound=True)


def _more_work(held: Times) -> Remedy:
    """Fewer, larger steps: what is slow now and then averages out within a step. It changes the batch."""
    groups = held[: len(held) // TOGETHER * TOGETHER].reshape(-1, TOGETHER, held.shape[1])
    action = f"give workers {TOGETHER} times the work per step (a larger batch)"
    return Remedy("more work", action, *saving_of(groups.sum(axis=1).max(axis=1), groups.max(axis=2).sum(axis=1)))


def named(workers: tuple[int, ...]) -> str:
    """'worker 3', 'workers 1 and 4', or 'workers 0, 1, 2 and 5 more'."""
    if len(workers) == 1:
        return f"worker {workers[0]}"
    if len(workers) > 6:
        return f"workers {', '.join(map(str, workers[:5]))} and {len(workers) - 5} more"
    return f"workers {', '.join(map(str, workers[:-1]))} and {workers[-1]}"
