"""Heterogeneity-aware gradient coding (Wang et al., ICDCS 2019): loads by speed, any s workers may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import encoders
from ..checks import require_count, require_stragglers
from ..doors import door
from ..errors import Invalid
from ..scheme.code import Code, Tasks
from ..scheme.names import seeded
from ..scheme.rule import Need
from .approximate import listed
from .facts import scheme
from .shared import one_message

Ints = NDArray[np.int64]
SPEEDS = "[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]"


@scheme(
    "one",
    f"heterogeneity_aware({SPEEDS}, s=2)",
    sent="m_i = Σ_{j∈P(i)} B[i, j] g_j,  P(i) = an arc of partitions, as long as worker i is fast, each in s + 1 arcs",
    decoded="g = Σ_{i∈A} a_i m_i,  where the weights a solve  Σ_{i∈A} a_i B[i, :] = (1, ..., 1);  any n - s messages do",
    papers=("wang2019heterogeneity",),
    tried=("heterogeneity_aware([1, 2, 3, 4, 4], s=1)", "heterogeneity_aware([1, 1, 4], s=1, k=5)"),
)
def heterogeneity_aware(speeds: ArrayLike, s: int, *, k: int | None = None, seed: int = 0) -> Code:
    """Worker i computes about (s + 1) k speeds[i] / sum(speeds) of k partitions; any n - s messages give the sum.

    speeds: (n,) units of work per second, measured; only their ratios count. All workers then end at about the same time, where
    equal loads would wait for the slow ones. k: partitions, 2 n by default; more follow the speeds more closely. For speeds
    that last. Those that change from round to round are for `work_conserving`.

    >>> code = heterogeneity_aware([1, 1, 2, 4], s=1)
    >>> [int((code.tasks.worker == i).sum()) for i in range(4)], code.threshold
    ([2, 2, 4, 8], 3)
    """
    speed, s, k = require_speeds("heterogeneity_aware", speeds, s, k)
    n, loads = len(speed), shares(speed, (s + 1) * k, most=k)
    mask = _arcs(loads, k)
    matrix = encoders.null_space(mask, seed) if s else mask.astype(float)
    name = f"heterogeneity_aware({listed(speed)}, s={s}, k={k}{seeded(seed)})"
    return one_message(name, tasks_of(mask, n), matrix, Need(n - s, tuple(range(n))))


@door
def proportional(speeds: ArrayLike, *, k: int | None = None) -> Code:
    """Work in proportion to speed, without copies: `heterogeneity_aware` with s=0, which waits for all.

    >>> proportional([1, 3]).name
    'heterogeneity_aware([1.0, 3.0], s=0, k=4)'
    """
    return heterogeneity_aware(speeds, 0, k=k)


def require_speeds(scheme: str, speeds: Any, s: Any, k: Any) -> tuple[NDArray[np.float64], int, int]:
    """Speeds of workers (n,), stragglers that they tolerate, and partitions."""
    speed = np.atleast_1d(np.asarray(speeds, dtype=float))
    if speed.ndim != 1 or not len(speed) or not (np.isfinite(speed) & (speed > 0)).all():
        raise Invalid(f"{scheme} needs a finite speed > 0 for each worker, but got speeds={speeds!r}. Leave out dead workers.")
    n, s = require_stragglers(scheme, len(speed), s)
    why = "Each worker needs at least one partition."
    return speed, s, 2 * n if k is None else require_count(scheme, "k", k, n, 10**6, why)


def shares(speed: NDArray[np.float64], total: int, most: int) -> Ints:
    """(n,) whole numbers >= 1 with a sum of `total`, at most `most` each, as close to the ratio of speeds as they can be.

    >>> shares(np.array([1.0, 1.0, 6.0]), total=8, most=4).tolist()
    [2, 2, 4]
    """
    wanted = np.ones(len(speed))
    capped = np.zeros(len(speed), dtype=bool)
    for _ in speed:  # what the fastest cannot hold goes to the others
        rest = total - most * capped.sum()
        wanted = np.where(capped, most, rest * speed / speed[~capped].sum() if not capped.all() else most)
        if not (wanted > most).any():
            break
        capped |= wanted > most
    loads = np.clip(np.floor(wanted), 1, most).astype(np.int64)
    while loads.sum() != total:
        up = loads.sum() < total
        room = (loads < most) if up else (loads > 1)
        behind = np.where(room, wanted - loads if up else loads - wanted, -np.inf)
        loads[int(behind.argmax())] += 1 if up else -1
    return loads


def _arcs(loads: Ints, k: int) -> NDArray[np.bool_]:
    """(n, k) arcs laid end to end around a circle of k partitions: each is covered equally often, by different workers."""
    start = np.concatenate([[0], np.cumsum(loads)[:-1]])
    return np.asarray((np.arange(k) - start[:, None]) % k < loads[:, None])


def tasks_of(mask: NDArray[np.bool_], n: int) -> Tasks:
    """Each worker computes what it holds, partitions of n / k units of work."""
    worker, part = np.nonzero(mask)
    return Tasks(worker, part, work=n / mask.shape[1])
