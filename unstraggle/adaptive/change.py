"""Has the cluster changed? Waits that have become longer or shorter, and workers that have become slow or fast, for good."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]

REFERENCE = 16
"""Rounds that must be known before later ones are compared with them."""
SLACK, LIMIT, MOST = 0.5, 5.0, 4.0
"""Standard deviations: what counts as usual, from which sum on waits have changed, and the most that a single round counts.
So no single round, however long, is a change."""
RECENT = 24
"""Rounds in which a worker must have been slower, or faster, than before."""
MOSTLY, FACTOR = 0.2, 1.25
"""A worker is slower if it was in all but this share of the recent rounds, by this factor over all but this share of those
before."""


class Change(NamedTuple):
    """What has changed, in words, and so many rounds ago."""

    what: str
    rounds: int


def changed(waits: Times, speeds: Times, worth: float) -> Change | None:
    """The first of both tests that says so. waits: (R,) of one code; speeds: (S, n) of all rounds since the last change."""
    return longer_or_shorter(waits, worth) or slower_or_faster(speeds)


def longer_or_shorter(waits: Times, worth: float) -> Change | None:
    """Sums of what the later half of the waits is above, and below, the mean of the first half (Page's test).

    The deviation is that of the first half, and at least `worth` of its mean: who gains less from a change need not see it.

    >>> longer_or_shorter(np.repeat([1.0, 3.0], [20, 2]), worth=0.05)
    Change(what='rounds take 3.0 times as long', rounds=2)
    """
    split = max(REFERENCE, len(waits) // 2)
    if len(waits) <= split:
        return None
    usual, spread = float(waits[:split].mean()), _spread(waits[:split])
    steps = np.clip((waits[split:] - usual) / max(spread, worth * usual), -MOST, MOST)
    slack = SLACK + split**-0.5  # the usual itself is known to within so much
    for sign in (1.0, -1.0):
        since = _since(sign * steps, slack)
        if since:
            return Change(f"rounds take {float(waits[-since:].mean()) / usual:.1f} times as long", since)
    return None


def _spread(waits: Times) -> float:
    """The standard deviation; more where slow rounds follow slow ones, for then sums of them vary more."""
    around = waits - waits.mean()
    alike = float(np.clip((around[1:] * around[:-1]).sum() / max((around**2).sum(), 1e-300), 0.0, 0.9))
    return float(waits.std() * np.sqrt((1 + alike) / (1 - alike)))


def _since(steps: Times, slack: float) -> int:
    """Since how many rounds the sum of what is above the usual grows, where it is beyond the limit; else 0."""
    total, began = 0.0, 0
    for place, step in enumerate(steps.tolist()):
        total = max(0.0, total + step - slack)
        began = place + 1 if total == 0.0 else began
    return len(steps) - began if total > LIMIT else 0


def slower_or_faster(speeds: Times) -> Change | None:
    """The worker whose time, relative to the round's median, differs most from before, if it does in nearly all rounds.

    >>> speeds = np.ones((60, 4))
    >>> speeds[36:, 2] = 5.0
    >>> slower_or_faster(speeds)
    Change(what='worker 2 takes 5.0 times as long as before', rounds=24)
    """
    if len(speeds) < 2 * RECENT:
        return None
    relative = speeds / np.median(speeds, axis=1, keepdims=True)
    before, recent = relative[:-RECENT], relative[-RECENT:]
    up = np.quantile(recent, MOSTLY, axis=0) / np.quantile(before, 1 - MOSTLY, axis=0)
    down = np.quantile(before, MOSTLY, axis=0) / np.quantile(recent, 1 - MOSTLY, axis=0)
    worker = int(np.argmax(np.maximum(up, down)))
    if max(up[worker], down[worker]) < FACTOR:
        return None
    times = float(np.median(recent[:, worker]) / np.median(before[:, worker]))
    return Change(f"worker {worker} takes {times:.1f} times as long as before", RECENT)
