"""Why the past may not tell the future: what a trace must not be planned with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..latency import fixed_cost
from ..trace import Trace
from ..trace.summary import load_curve

DRIFT_P, DRIFT = 0.01, 1.1
"""A trace drifts when its halves differ with this p-value, and by this factor."""

LOAD_CURVE = 0.25
"""Time is not proportional to work when the load curve leaves 1 by more than this."""

GONE = 5
"""Rounds at the end of a trace of which a worker has finished none when it counts as gone."""


def doubts(trace: Trace | None) -> list[str]:
    """Reasons not to predict from a trace; none for a latency model.

    >>> from unstraggle.trace import from_seconds
    >>> doubts(from_seconds(np.where(np.arange(40)[:, None] < 20, 1.0, [1.0, np.inf])))
    ['worker 1 finishes nothing from round 20 on: replace it, or leave it out, and record again']
    """
    if trace is None:
        return []
    return list(gone(trace)) or list(_let_go(trace)) or list(_unfinished(trace)) or list(_changed(trace))


def gone(trace: Trace) -> Iterator[str]:
    """Workers that are dead, or as good as dead, since some round."""
    finished = np.isfinite(trace.seconds)
    silent = np.argmax(finished[::-1], axis=0) + np.where(finished.any(axis=0), 0, len(trace))
    for worker in np.flatnonzero(silent >= GONE).tolist():
        since = trace.numbers[len(trace) - silent[worker]]
        yield f"worker {worker} finishes nothing from round {since} on: replace it, or leave it out, and record again"


def _let_go(trace: Trace) -> Iterator[str]:
    """Rounds of a code, which end before everyone is heard: that a worker was late is known, but not how late."""
    cut, code = int(np.isinf(trace.seconds).any(axis=1).sum()), trace.meta.get("code")
    if cut and code:
        yield (
            f"recorded under {code}, {cut} of whose {len(trace)} rounds ended before a worker had finished anything, so that "
            f'its time is not known: record rounds that wait for all ("uncoded({trace.n})"), and plan with those'
        )


def _unfinished(trace: Trace) -> Iterator[str]:
    """Workers that finish nothing in rounds of one half only: what is chosen on the other half cannot know of them."""
    lost, half = np.isinf(trace.seconds), len(trace) // 2
    if lost.all(axis=1).any():
        yield f"nobody finishes anything in {int(lost.all(axis=1).sum())} of {len(trace)} rounds"
        return
    first, second = (int(rounds.any(axis=1).sum()) for rounds in (lost[:half], lost[half:]))
    if bool(first) != bool(second):
        which = "first" if first else "second"
        yield f"a worker finishes nothing in {first + second} of {len(trace)} rounds, all in the {which} half of the trace"


def _changed(trace: Trace) -> Iterator[str]:
    told = trace.summary()
    if told.drift_p < DRIFT_P and max(told.drift, 1 / told.drift) > DRIFT:
        yield f"the trace drifts: the second half takes {told.drift:.2f} times as long as the first"
    curve = _curve(trace)
    if curve and abs(curve[-1] - 1) > LOAD_CURVE:
        tasks, factor = len(curve), curve[-1]
        yield f"time is not proportional to work: {tasks} tasks take {factor:.2f} times as long as modelled"


def _curve(trace: Trace) -> tuple[float, ...]:
    """The load curve without what every task costs however small it is, where the trace tells that: planners know of it."""
    cost = fixed_cost(trace)
    times = np.maximum(trace.durations - (cost.seconds if cost.known else 0.0), 1e-12)
    return load_curve(times, trace.work)
