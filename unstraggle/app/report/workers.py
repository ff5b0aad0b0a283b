"""Who was late, and who was lost: a row for each worker."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from ..runs import Run


@dataclass(frozen=True)
class Row:
    """Shares of the steps in which a worker was not heard of in time, and in which it was lost; its median lateness.

    lost: None where only a trace is known, which does not tell lost from late.
    """

    worker: int
    late: float
    lost: float | None
    factor: float | None


def rows(run: Run) -> list[Row]:
    """All workers of a run, the least punctual first; empty where nothing is known of single workers."""
    silent, factors = _from_trace(run)
    lost, late = _shares(run, "lost"), _shares(run, "late")
    n = run.trace.n if run.trace else 1 + max([*(lost or ()), *(late or ()), *(_shares(run, "used") or ())], default=-1)
    found = []
    for worker in range(n):
        gone = None if lost is None else lost[worker]
        unheard = max(silent.get(worker, 0.0) - (gone or 0.0), 0.0)
        found.append(Row(worker, unheard if late is None else late[worker], gone, factors.get(worker)))
    return sorted(found, key=lambda row: (-(row.lost or 0.0), -row.late, -(row.factor or 0)))


def _shares(run: Run, name: str) -> defaultdict[int, float] | None:
    """In which share of the steps a worker is in a list; None where no step has it."""
    lists = [step[name] for step in run.steps if isinstance(step.get(name), list)]
    if not lists:
        return None
    counts = Counter(int(worker) for workers in lists for worker in set(workers))
    return defaultdict(float, {worker: count / len(run.steps) for worker, count in counts.items()})


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
