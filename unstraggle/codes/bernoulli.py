"""Bernoulli gradient code, BGC (Charles et al. 2017): every worker holds every partition with the same probability."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from ..checks import require_count, require_load
from ..randomness import generator
from ..scheme.code import Code
from .approximate import Decode, require_decode, require_size, table_code
from .facts import scheme


@scheme(
    "approximate",
    "bernoulli(12, load=3, decode='one_step')",
    sent="m_i = Σ_j B_ij g_j,  B_ij = 1 with probability load / n, else 0",
    decoded='decode="one_step":  ĝ = M / (load |A|) Σ_{i∈A} m_i,  M = n less the idle workers;\ndecode="sum":  ĝ = Σ_{i∈A} m_i',
    papers=("charles2017approximate",),
    tried=(
        "bernoulli(10, load=2)",
        "bernoulli(10, load=3, seed=1, decode='one_step')",
        "bernoulli(10, load=3, decode='least_squares')",
    ),
    note="Charles et al. decode in one step, as in the example. The plain sum counts a partition as often as it is heard.",
)
def bernoulli(n: int, load: int, seed: int = 0, *, decode: Literal["sum", "one_step", "least_squares"] = "sum") -> Code:
    """Worker i adds up the partitions that it holds, each with probability load / n; all that arrives is added up.

    load: mean partitions per worker. The sum is biased, and partitions that nobody holds are lost: use `stochastic` for an
    unbiased sum. decode="one_step" multiplies by n / (load * responders), as Charles et al. do (idle workers count as answering
    like the others); "least_squares" comes closest to the gradient, at O(n^3) a set.

    >>> code = bernoulli(50, load=2)
    >>> code.k, 80 < code.messages.coef.nnz < 120
    (50, True)
    """
    n, load = require_load("bernoulli", require_size("bernoulli", n), load)
    seed = require_count("bernoulli", "seed", seed, 0, 2**63 - 1, "It fixes the random table.")
    rng = generator(seed)
    counts = rng.binomial(n, load / n, size=n)
    part = np.concatenate([rng.choice(n, count, replace=False) for count in counts.tolist()])
    held = csr_array((np.ones(len(part)), (np.repeat(np.arange(n), counts), part)), shape=(n, n))
    require_decode("bernoulli", decode, "sum", "one_step", "least_squares")
    given = (f", seed={seed}" if seed else "") + (f", decode={decode!r}" if decode != "sum" else "")
    how: Decode = "fixed" if decode == "sum" else decode
    return table_code(f"bernoulli({n}, load={load}{given})", n, held, how, 1 / load if decode == "one_step" else 1.0)
