"""Fractional repetition (Tandon et al., ICML 2017): groups of s + 1 workers that all compute the same."""

from __future__ import annotations

from dataclasses import replace

from ..checks import require_stragglers
from ..errors import Invalid
from ..scheme.code import Code
from .combine import cluster
from .facts import scheme
from .shared import repeated


@scheme(
    "one",
    "fractional_repetition(12, s=2)",
    sent="m_i = Σ_{j∈G(i)} g_j,  G(i) = the s + 1 partitions of group ⌊i / (s + 1)⌋",
    decoded="g = Σ over groups of the first m_i of the group",
    papers=("tandon2017gradient",),
    tried=("fractional_repetition(12, s=3)",),
)
def fractional_repetition(n: int, s: int) -> Code:
    """Groups of s + 1 workers hold the same s + 1 partitions and send their plain sum; the first of each group counts.

    Tolerates any s missing workers and often many more, and does not amplify noise at all. Needs s + 1 to divide n: use
    `cyclic_repetition` otherwise.

    >>> code = fractional_repetition(6, s=2)
    >>> code.threshold, round(code.noise_gain().worst, 6)
    (4, 1.0)
    """
    n, s = require_stragglers("fractional_repetition", n, s)
    if n % (s + 1):
        near = [d - 1 for d in range(1, n + 1) if n % d == 0]
        low, high = max(d for d in near if d < s), min(d for d in near if d > s)
        raise Invalid(
            f"fractional_repetition needs s + 1 to divide n, but got n={n}, s={s}. "
            f"Use s={low} or s={high}, or cyclic_repetition, which takes any s."
        )
    return replace(cluster(repeated(s + 1), times=n // (s + 1)), name=f"fractional_repetition({n}, s={s})")
