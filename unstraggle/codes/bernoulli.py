"""Bernoulli gradient code, BGC (Charles et al. 2017): every worker holds every partition with the same probability."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ..code import Code
from .approximate import require_size, table_code
from .table import require_count, require_load


def bernoulli_code(n: int, load: int, seed: int = 0) -> Code:
    """Worker i adds up the partitions that it holds, each with probability load / n; all that arrives is added up.

    load: mean partitions a worker. The sum is biased, and partitions that nobody holds are lost: use `stochastic_code` for an
    unbiased sum, or decode with `LeastSquares`.

    >>> code = bernoulli_code(50, load=2)
    >>> code.k, 80 < code.messages.coef.nnz < 120
    (50, True)
    """
    n, load = require_load("bernoulli_code", require_size("bernoulli_code", n), load)
    seed = require_count("bernoulli_code", "seed", seed, 0, 2**63 - 1, "It fixes the random table.")
    rng = np.random.default_rng(seed)
    counts = rng.binomial(n, load / n, size=n)
    part = np.concatenate([rng.choice(n, count, replace=False) for count in counts.tolist()])
    held = csr_array((np.ones(len(part)), (np.repeat(np.arange(n), counts), part)), shape=(n, n))
    given = f", seed={seed}" if seed else ""
    return table_code(f"bernoulli_code({n}, load={load}{given})", n, held, "fixed")
