"""Work in proportion to speed, as candidates of `plan.auto`: for workers that differ in the same way in every round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..codes import heterogeneity_aware, uncoded
from ..latency import FixedCost
from ..randomness import Seed
from ..scheme.arrivals import task_seconds
from ..scheme.code import Code
from .base import Plan
from .handed import TRIAL, mean_time, plan_of

UNEQUAL = 1.2
"""The slowest worker must take so much longer than the fastest, on average, for work to be divided by speed."""

PARTITIONS = (2, 4, 8)
"""Of the data, for each worker: many follow the speeds more closely, few cost less."""


def speed_plans(design: Any, model: Any, n: int, rounds: int, rng: Seed, carry: bool) -> Iterator[Plan]:
    """Shares by speed: the best without copies, which waits for all, and the best with one worker to spare.

    design: how long tasks take, from which speeds are taken. model: the same with the network around it, which is scored.
    """
    speeds = measured_speeds(design, n, min(rounds, TRIAL))
    if n < 2 or speeds.max() < UNEQUAL:
        return

    def seconds(code: Code) -> float:
        return mean_time(model, code, min(rounds, TRIAL), rng, carry)

    for s in (0, 1):
        yield plan_of(min((heterogeneity_aware(speeds, s, k=each * n) for each in PARTITIONS), key=seconds))


def measured_speeds(design: Any, n: int, rounds: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n,) units of work per second without the fixed cost of a task, over those of the slowest worker.

    >>> from unstraggle.latency import Replay
    >>> measured_speeds(Replay([[1.0, 2.0, 4.0]]), 3, 1).tolist()
    [4.0, 2.0, 1.0]
    """
    base = design.base if isinstance(design, FixedCost) else design
    means = task_seconds(base, uncoded(n), rounds, np.random.default_rng(0)).mean(axis=0)
    if not (np.isfinite(means) & (means > 0)).all():  # who may never end has no speed
        return np.ones(n)
    return np.asarray((means.max() / means).round(2))
