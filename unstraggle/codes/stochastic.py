"""Stochastic gradient coding, SGC (Bitar et al. 2020), for workers with different straggle probabilities."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..code import Code
from ..errors import Invalid
from .approximate import Probabilities, listed, require_probabilities, require_size, table_code
from .table import require_count

Placement = Literal["cyclic", "random"]


def stochastic_code(n: int, p: Probabilities, copies: Any = 2, placement: Placement = "cyclic", seed: int = 0) -> Code:
    """Partition j lies on d_j workers and counts 1 / (d_j (1 - p_i)) in the message of worker i, so that the sum is unbiased.

    p: straggle probabilities, a number or (n,). copies: d_j >= 1, a number or (n,). placement="cyclic" puts partition j on
    workers j, j + 1, ...; "random" on distinct random ones. Copies are weighted without regard to how reliable their workers
    are: `joint_code` has less variance where p differs or messages are quantised.

    >>> stochastic_code(3, p=0.5).messages.coef.toarray()
    array([[1., 0., 1.],
           [1., 1., 0.],
           [0., 1., 1.]])
    """
    n = require_size("stochastic_code", n)
    late = require_probabilities("stochastic_code", n, p, certain=False)
    seed = require_count("stochastic_code", "seed", seed, 0, 2**63 - 1, "It fixes the random placement.")
    counts = _copies(n, copies)
    part = np.repeat(np.arange(n), counts)
    worker = _workers(n, counts, placement, seed)
    coef = csr_array((1 / (counts[part] * (1 - late[worker])), (worker, part)), shape=(n, n))
    given = f", copies={np.asarray(copies).tolist()}, placement={placement!r}" + (f", seed={seed}" if seed else "")
    return table_code(f"stochastic_code({n}, p={listed(p)}{given})", n, coef, "fixed")


def _copies(n: int, copies: Any) -> NDArray[np.int64]:
    counts = np.asarray(copies)
    whole = np.issubdtype(counts.dtype, np.integer) and counts.shape in ((), (n,))
    if not whole or counts.min() < 1 or counts.max() > n:
        raise Invalid(
            f"stochastic_code needs 1 <= copies <= n={n} for all or for each of the {n} partitions, but got copies={copies!r}. "
            "A partition without a copy would bias the sum."
        )
    return np.array(np.broadcast_to(counts, n), dtype=np.int64)


def _workers(n: int, counts: NDArray[np.int64], placement: str, seed: int) -> NDArray[np.int64]:
    """Who holds the copies, partition by partition."""
    if placement == "cyclic":
        return np.concatenate([(j + np.arange(count)) % n for j, count in enumerate(counts.tolist())])
    if placement == "random":
        rng = np.random.default_rng(seed)
        return np.concatenate([rng.choice(n, count, replace=False) for count in counts.tolist()])
    raise Invalid(f'stochastic_code needs placement="cyclic" or "random", but got {placement!r}.')
