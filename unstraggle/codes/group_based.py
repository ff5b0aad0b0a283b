"""Group-based gradient coding (Wang et al., ICDCS 2019): groups of unequal workers, each of which has all data once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import encoders
from ..checks import require_count
from ..scheme.code import Code
from ..scheme.names import seeded
from ..scheme.rule import Need
from .approximate import listed
from .facts import scheme
from .heterogeneity_aware import SPEEDS, _arcs, require_speeds, shares, tasks_of
from .shared import one_message


@scheme(
    "one",
    f"group_based({SPEEDS}, s=2)",
    sent="m_i = Σ_{j∈P(i)} g_j,  the P(i) of a group are disjoint and cover all;  outside groups as heterogeneity_aware",
    decoded="g = Σ_{i∈G} m_i of the first whole group G,  or from the workers outside groups, as heterogeneity_aware",
    papers=("wang2019heterogeneity",),
    tried=("group_based([1, 2, 3, 4, 4], s=1)", "group_based([1, 1, 2, 2, 3, 3, 4], s=2, groups=1)"),
)
def group_based(speeds: ArrayLike, s: int, *, groups: int | None = None, k: int | None = None, seed: int = 0) -> Code:
    """Groups of workers share the data by speed and send plain sums; one whole group suffices. Any s workers may be missing.

    groups: how many, s + 1 by default, of about equal total speed. With fewer, the workers that are left are coded so that s -
    groups of them may be missing: each straggler breaks one group, or is one of those. speeds, k: as for
    `heterogeneity_aware`. A group does not amplify noise, and is whole with fewer messages than n - s; but a straggler takes
    its whole group out. The paper searches for groups in a given placement; here they are made to be equally fast.

    >>> code = group_based([1, 1, 2, 4], s=1)
    >>> [int((code.tasks.worker == i).sum()) for i in range(4)], round(code.noise_gain().worst, 6)
    ([2, 2, 4, 8], 1.0)
    """
    speed, s, k = require_speeds("group_based", speeds, s, k)
    count = s + 1 if groups is None else require_count("group_based", "groups", groups, 1, s + 1, "At most s + 1 are needed.")
    teams = _teams(speed, count, s)
    mask, matrix, needs = np.zeros((len(speed), k), dtype=bool), np.zeros((len(speed), k)), []
    for number, team in enumerate(teams):
        spare = 0 if number < count else s - count
        mask[team] = _arcs(shares(speed[team], (spare + 1) * k, most=k), k)
        matrix[team] = encoders.null_space(mask[team], seed) if spare else mask[team]
        needs.append(Need(len(team) - spare, tuple(team.tolist())))
    chosen = "" if count == s + 1 else f", groups={count}"
    name = f"group_based({listed(speed)}, s={s}{chosen}, k={k}{seeded(seed)})"
    return one_message(name, tasks_of(mask, len(speed)), matrix, Need(1, tuple(needs)))


def _teams(speed: NDArray[np.float64], count: int, s: int) -> list[NDArray[np.int64]]:
    """Workers of each group, and last those outside: the fastest first, to whom it leaves the furthest behind its share.

    >>> [team.tolist() for team in _teams(np.array([1.0, 1.0, 2.0, 4.0]), 2, 1)]
    [[3], [0, 1, 2]]
    """
    due = np.array([1.0] * count + [float(s + 1 - count)] * (count < s + 1))
    fewest = np.maximum(due, 1).astype(int)
    given, members = np.zeros(len(due)), [[] for _ in due]  # type: NDArray[np.float64], list[list[int]]
    for at, worker in enumerate(np.argsort(-speed, kind="stable").tolist()):
        missing = np.array([max(0, need - len(team)) for need, team in zip(fewest, members, strict=True)])
        able = missing > 0 if missing.sum() >= len(speed) - at else np.ones(len(due), dtype=bool)
        team = int(np.where(able, given / due, np.inf).argmin())
        members[team].append(worker)
        given[team] += speed[worker]
    return [np.sort(team) for team in members]
