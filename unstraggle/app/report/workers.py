"""Who was late, and who was lost: a row a worker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ..runs import Run


@dataclass(frozen=True)
class Row:
    """Shares of the rounds in which a worker was not heard of in time, and in which it was lost; its median lateness."""

    worker: int
    late: float
    lost: float
    factor: float | None


def rows(run: Run) -> list[Row]:
    """All workers of a run, the least punctual first; empty where nothing is known of single workers."""
    lost, late = _counts(run, "lost", "dead"), _counts(run, "late")
    rounds = len(run.steps) or (len(run.trace) if run.trace else 0)
    n = run.trace.n if run.trace else 1 + max([*lost, *late], default=-1)
    silent, factors = _from_trace(run)
    found = []
    for worker in range(n):
        gone = lost[worker] / rounds
        unheard = silent.get(worker, late[worker] / rounds + gone)  # a trace does not tell lost from late
        found.append(Row(worker, max(unheard - gone, 0.0), gone, factors.get(worker)))
    return sorted(found, key=lambda row: (-row.lost, -row.late, -(row.factor or 0)))


def _counts(run: Run, *names: str) -> Counter[int]:
    """In how many steps a worker is in one of these lists."""
    lists = (step[name] for step in run.steps for name in names if isinstance(step.get(name), list))
    return Counter(int(worker) for workers in lists for worker in set(workers))


def _from_trace(run: Run) -> tuple[dict[int, float], dict[int, float]]:
    """Share of rounds without any message, and the median of time over the round's median, for each worker."""
    if run.trace is None:
        return {}, {}
    times = run.trace.finish
    heard = np.isfinite(times)
    silent = {w: float(1 - heard[:, w].mean()) for w in range(run.trace.n)}
    whole = np.where(heard, times, np.nan)[heard.any(axis=1)]
    relative = whole / np.nanmedian(whole, axis=1, keepdims=True)
    return silent, {w: float(np.nanmedian(relative[:, w])) for w in range(run.trace.n) if heard[:, w].any()}
