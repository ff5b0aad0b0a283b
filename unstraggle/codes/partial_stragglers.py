"""Tandon et al.'s code for partial stragglers: slow workers still do a share of the work."""

from __future__ import annotations

import math
from dataclasses import replace

from ..checks import require_stragglers
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.names import number
from .combine import stack
from .cyclic_repetition import cyclic_repetition
from .facts import scheme
from .uncoded import uncoded


@scheme(
    "one",
    "partial_stragglers(12, s=2, slowdown=4)",
    sent="m_i = g_i of an uncoded share u = (s + 1) / (s + slowdown) of the data,\n"
    "then m'_i = Σ_{t=0..s} B[i, i+t] g'_{i+t} of the rest",
    decoded="g = Σ_i m_i (from all) + Σ_{i∈A} a_i m'_i (from any n - s)",
    papers=("tandon2017gradient",),
    tried=("partial_stragglers(10, s=2, slowdown=4)",),
)
def partial_stragglers(n: int, s: int, slowdown: float) -> Code:
    """Every worker first computes an uncoded share, needed from all, then a coded one, needed from n - s.

    slowdown: how many times slower a straggler is; the uncoded share takes it as long as all work takes the others. Of the
    data, (s + 1) / (s + slowdown) are uncoded.

    >>> code = partial_stragglers(10, s=2, slowdown=4)
    >>> [round(float(work), 6) for work in (code.ready()[0], code.ready()[-1])]
    [0.5, 2.0]
    """
    n, s = require_stragglers("partial_stragglers", n, s)
    if not (math.isfinite(slowdown) and slowdown > 1):
        raise Invalid(
            f"partial_stragglers needs slowdown > 1, but got {slowdown}. For workers that may fail, use cyclic_repetition."
        )
    plain = (s + 1) / (s + slowdown)
    code = stack(uncoded(n), cyclic_repetition(n, s), shares=(plain, 1 - plain))
    return replace(code, name=f"partial_stragglers({n}, s={s}, slowdown={number(slowdown)})")
