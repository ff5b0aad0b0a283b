"""The optimal unbiased structure for workers that straggle and quantise ([C] section IV; OSGC where omega = 0)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..code import Code
from ..errors import Invalid
from .approximate import (
    Probabilities,
    listed,
    require_gamma,
    require_omega,
    require_probabilities,
    require_size,
    row_sums,
    table_code,
)
from .table import require_count

SNAP = 1e-9
"""A sum of W_i this close to an integer is that integer; otherwise rounding would assign slivers of partitions."""

SEARCHED = 20
"""Groups of up to this many workers are searched for all ways to split them."""

Construction = Literal["overlap", "split"]
Assigned = tuple[NDArray[np.int64], int, int]


def joint_code(
    n: int,
    k: int | None = None,
    *,
    p: Probabilities,
    omega: Probabilities = 0.0,
    gamma: float = 1.0,
    construction: Construction = "overlap",
) -> Code:
    """Unbiased, with the least bound on the error: worker i carries W_i = k / (delta_i Delta) partitions ([C] Theorem 1).

    p: straggle probabilities; omega: relative variance of the quantisers at the bits that `plan.bits` gave them; both a number
    or (n,). delta_i = (p_i + gamma omega_i) / (1 - p_i), Delta the sum of 1 / delta_i. k: partitions, by default n.
    construction="overlap" lays the workers side by side over the partitions (equation 22, at most n + k - 1 coefficients);
    "split" first looks for groups of workers that carry whole partitions (equation 34, one coefficient less a group).

    Needs the p of the deadline in use: with a wrong p it is biased, and `erasure_head`, which needs none, may be safer.

    >>> code = joint_code(3, p=[0.5, 0.5, 0.2])
    >>> (code.messages.coef.toarray() * [[0.5], [0.5], [0.8]]).round(3)                  # W: rows sum to W_i, columns to 1
    array([[0.5, 0. , 0. ],
           [0.5, 0. , 0. ],
           [0. , 1. , 1. ]])
    """
    n = require_size("joint_code", n)
    parts = n if k is None else require_count("joint_code", "k", k, 1, 10**6, "Give the number of partitions.")
    late, noise = require_probabilities("joint_code", n, p), require_omega("joint_code", n, omega)
    sums = row_sums(late, noise, require_gamma("joint_code", gamma), parts)
    groups = [(workers, first, overlap(sums[workers], count)) for workers, first, count in _groups(sums, parts, construction)]
    worker = np.concatenate([workers[shares.nonzero()[0]] for workers, _, shares in groups])
    part = np.concatenate([first + shares.nonzero()[1] for _, first, shares in groups])
    share = np.concatenate([shares[shares.nonzero()] for _, _, shares in groups])
    name = f"joint_code({n}{'' if k is None else f', k={k}'}, p={listed(p)}{_options(omega, gamma, construction)})"
    return table_code(name, n, csr_array((share / (1 - late[worker]), (worker, part)), shape=(n, parts)), "fixed")


def overlap(sums: NDArray[np.float64], k: int) -> csr_array[Any]:
    """(n, k) the W with these row sums and column sums 1 that lays worker after worker over the partitions ([C] equation 22).

    >>> overlap(np.array([0.5, 1.5]), 2).toarray()
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """
    ends = np.cumsum(sums)
    ends = np.where(np.abs(ends - np.rint(ends)) <= SNAP, np.rint(ends), ends)
    ends[-1] = k
    cuts = np.union1d(ends, np.arange(k + 1.0))
    middle = (cuts[1:] + cuts[:-1]) / 2
    return csr_array((np.diff(cuts), (np.searchsorted(ends, middle), middle.astype(np.int64))), shape=(len(sums), k))


def _options(omega: Probabilities, gamma: float, construction: str) -> str:
    """What differs from the defaults, for the code's name."""
    given = f", omega={listed(omega)}" if np.any(np.asarray(omega)) else ""
    given += f", gamma={gamma}" if gamma != 1 else ""
    return given + (f", construction={construction!r}" if construction != "overlap" else "")


def _groups(sums: NDArray[np.float64], k: int, construction: str) -> list[Assigned]:
    """(workers, first partition, how many) of groups that carry whole partitions."""
    if construction not in ("overlap", "split"):
        raise Invalid(f'joint_code needs construction="overlap" or "split", but got {construction!r}.')
    carry = np.flatnonzero(sums > 0)
    if construction == "overlap":
        return [(carry, 0, k)]
    groups: list[Assigned] = []
    waiting, first = [(carry, k)], 0
    while waiting:
        workers, count = waiting.pop()
        inside = _whole_subset(sums[workers], count - 1)
        if inside is None:
            groups.append((workers, first, count))
            first += count
            continue
        taken = int(np.rint(sums[workers[inside]].sum()))
        waiting += [(workers[~inside], count - taken), (workers[inside], taken)]
    return groups


def _whole_subset(sums: NDArray[np.float64], most: int) -> NDArray[np.bool_] | None:
    """(n,) the fewest workers that carry 1 to `most` whole partitions, among all subsets or the first of the sorted workers."""
    n = len(sums)
    if n > SEARCHED:
        order = np.argsort(sums, kind="stable")
        found = np.flatnonzero(_whole(np.cumsum(sums[order]), most))
        return None if not len(found) else np.isin(np.arange(n), order[: found[0] + 1])
    totals = np.zeros(1)
    for value in sums[:-1].tolist():
        totals = np.concatenate([totals, totals + value])
    found = np.flatnonzero(_whole(totals, most))
    if not len(found):
        return None
    best = found[np.argmin(np.bitwise_count(found))]
    return np.asarray((best >> np.arange(n)) & 1, dtype=bool)


def _whole(totals: NDArray[np.float64], most: int) -> NDArray[np.bool_]:
    nearest = np.rint(totals)
    return np.asarray((nearest >= 1) & (nearest <= most) & (np.abs(totals - nearest) <= SNAP))
