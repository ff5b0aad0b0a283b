"""Sums on request (Ramamoorthy, Meng and Girimaji, NeurIPS 2024): a fixed order of tasks, reports, and sums when asked."""

from __future__ import annotations

from ..checks import require_count, require_load
from ..scheme.code import Code
from .facts import scheme
from .shared import handed
from .work_conserving import WHY


@scheme(
    "handed",
    "sums_on_request(12, load=3, pieces=4)",
    sent="m_i = Σ_{j∈S(i)} g_j,  S(i) = the partitions of which worker i was the first to be done, when asked",
    decoded="g = Σ_i m_i",
    papers=("ramamoorthy2024leveraging",),
    tried=("sums_on_request(5, load=2, pieces=3)",),
)
def sums_on_request(n: int, load: int, pieces: int) -> Code:
    """Workers go through their `load` shares in a fixed order and report every piece; the first to be done with it counts.

    Nobody waits for a word from the master, and what a slow worker did is not lost. It computes much twice: use
    `work_conserving` where a word takes less than a piece.

    >>> sums_on_request(4, load=2, pieces=4).load
    2.0
    """
    n, load = require_load("sums_on_request", n, load)
    pieces = require_count("sums_on_request", "pieces", pieces, 1, 10**4, WHY)
    return handed(f"sums_on_request({n}, load={load}, pieces={pieces})", n, load, pieces, helpers=False, in_order=True)
