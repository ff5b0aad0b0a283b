"""ErasureHead (Wang et al. 2019): fractional repetition without waiting for groups that are silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ..checks import require_stragglers
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.decoders import Fixed, LeastSquares
from .approximate import require_decode
from .combine import cluster
from .facts import scheme
from .shared import repeated


@scheme(
    "approximate",
    "erasurehead(12, s=2)",
    sent="m_i = Σ_{j∈G(i)} g_j,  as fractional_repetition",
    decoded="ĝ = Σ over the groups that were heard of the mean of their messages",
    papers=("wang2019erasurehead",),
    tried=(
        "erasurehead(12, s=2)",
        "erasurehead(12, s=2, decode='sum')",
    ),
)
def erasurehead(n: int, s: int, *, decode: Literal["first", "sum"] = "first") -> Code:
    """Groups of s + 1 workers hold the same s + 1 partitions and send their sum; groups that are silent are left out.

    The responders of a group are averaged, which is the first responder's message, with less noise where messages are
    quantised. Exact once every group is heard, so `First(Recovered(), Deadline(...))` ends early. Biased otherwise, and not
    rescaled: use `stochastic` or `optimally_structured` for an unbiased sum. decode="sum" adds up all responders, so that a
    group counts as often as it is heard, like the baseline in the program of [C].

    >>> import numpy as np
    >>> got = np.array([True, True, False, True, False, False])
    >>> erasurehead(6, s=1).decoder.weights(got)
    array([[0.5, 0.5, 0. , 1. , 0. , 0. ]])
    """
    n, s = require_stragglers("erasurehead", n, s)
    if n % (s + 1):
        fits = [d - 1 for d in range(1, n + 1) if n % d == 0]
        raise Invalid(f"erasurehead needs s + 1 to divide n, but got n={n}, s={s}. Use one of s={fits}.")
    group = repeated(s + 1)
    require_decode("erasurehead", decode, "first", "sum")
    table = group.messages.coef
    near = replace(group, decoder=LeastSquares(table, group.decoder.rule) if decode == "first" else Fixed(table))
    given = "" if decode == "first" else f", decode={decode!r}"
    return replace(cluster(near, times=n // (s + 1)), name=f"erasurehead({n}, s={s}{given})")
