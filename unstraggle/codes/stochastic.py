"""Stochastic gradient coding, SGC (Bitar et al. 2020), for workers with different straggle probabilities."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..checks import require_count
from ..errors import Invalid
from ..randomness import generator
from ..scheme.code import Code
from .approximate import Probabilities, listed, require_probabilities, require_size, table_code
from .facts import scheme

Placement = Literal["cyclic", "random", "balanced"]

LARGEST_BALANCED = 64
"""Copies of a partition up to which "balanced" looks for the places of the next one."""


@scheme(
    "approximate",
    "stochastic(12, p={p}, copies=3, placement='balanced')",
    sent="m_i = Σ_{j on worker i} g_j / (d_j (1 - p_i)),  d_j = copies of partition j",
    decoded="ĝ = Σ_{i∈A} m_i",
    papers=("bitar2020stochastic",),
    tried=(
        "stochastic(8, p=0.3)",
        "stochastic(13, p=0.3, copies=4, placement='balanced')",
    ),
)
def stochastic(n: int, p: Probabilities, copies: Any = 2, placement: Placement = "cyclic", seed: int = 0) -> Code:
    """Partition j lies on d_j workers and counts 1 / (d_j (1 - p_i)) in the message of worker i, so that the sum is unbiased.

    p: straggle probabilities, a number or (n,). copies: d_j >= 1, a number or (n,). placement="cyclic" puts partition j on
    workers j, j + 1, ...; "random" on distinct random ones; "balanced" so that any two partitions share as few workers as the
    search finds, at most one where n is large enough: the pairwise balanced scheme of Bitar et al. Copies are weighted without
    regard to how reliable their workers are: `optimally_structured` has less variance where p or bits differ.

    >>> stochastic(3, p=0.5).messages.coef.toarray()
    array([[1., 0., 1.],
           [1., 1., 0.],
           [0., 1., 1.]])
    """
    n = require_size("stochastic", n)
    late = require_probabilities("stochastic", n, p, certain=False)
    seed = require_count("stochastic", "seed", seed, 0, 2**63 - 1, "It fixes the random placement.")
    counts = _copies(n, copies)
    part = np.repeat(np.arange(n), counts)
    worker = _workers(n, counts, placement, seed)
    coef = csr_array((1 / (counts[part] * (1 - late[worker])), (worker, part)), shape=(n, n))
    given = f", copies={np.asarray(copies).tolist()}, placement={placement!r}" + (f", seed={seed}" if seed else "")
    return table_code(f"stochastic({n}, p={listed(p)}{given})", n, coef, "fixed")


def _copies(n: int, copies: Any) -> NDArray[np.int64]:
    counts = np.asarray(copies)
    whole = np.issubdtype(counts.dtype, np.integer) and counts.shape in ((), (n,))
    if not whole or counts.min() < 1 or counts.max() > n:
        raise Invalid(
            f"stochastic needs 1 <= copies <= n={n} for all or for each of the {n} partitions, but got copies={copies!r}. "
            "A partition without a copy would bias the sum."
        )
    return np.array(np.broadcast_to(counts, n), dtype=np.int64)


def _workers(n: int, counts: NDArray[np.int64], placement: str, seed: int) -> NDArray[np.int64]:
    """Who holds the copies, partition by partition."""
    if placement == "cyclic":
        return np.concatenate([(j + np.arange(count)) % n for j, count in enumerate(counts.tolist())])
    if placement == "balanced":
        steps = spread_steps(n, int(counts.max()))
        return np.concatenate([(j + steps[:count]) % n for j, count in enumerate(counts.tolist())])
    if placement == "random":
        rng = generator(seed)
        return np.concatenate([rng.choice(n, count, replace=False) for count in counts.tolist()])
    raise Invalid(f'stochastic needs placement="cyclic", "random" or "balanced", but got {placement!r}.')


def spread_steps(n: int, count: int) -> NDArray[np.int64]:
    """(count,) steps round n workers whose differences repeat as little as a greedy search finds.

    Partitions j and l share a worker for each time that j - l is such a difference.

    >>> spread_steps(7, 3), spread_steps(13, 4)                                 # every difference once: projective planes
    (array([0, 1, 3]), array([0, 1, 3, 9]))
    """
    count = require_count("stochastic", "copies", count, 1, LARGEST_BALANCED, 'Use placement="random" for so many copies.')
    steps, seen = [0], np.zeros(n, dtype=np.int64)
    for _ in range(count - 1):
        apart = (np.arange(n)[:, None] - np.array(steps)) % n
        most = np.maximum(seen[apart], seen[-apart % n]).max(axis=1) + (_repeats(apart, n) > 0)
        total = seen[apart].sum(axis=1) + _repeats(apart, n)
        order = np.lexsort((total, most))
        chosen = next(int(c) for c in order if c not in steps)
        np.add.at(seen, np.concatenate([apart[chosen], -apart[chosen] % n]), 1)
        steps.append(chosen)
    return np.array(steps)


def _repeats(apart: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """(n,) how many differences, forth and back, a candidate would have twice by itself."""
    both = np.sort(np.concatenate([apart, -apart % n], axis=1), axis=1)
    return np.asarray((np.diff(both, axis=1) == 0).sum(axis=1))
