"""Ignore stragglers (IS-SGD): no redundancy, what is late counts as zero."""

from __future__ import annotations

from scipy.sparse import eye_array

from ..scheme.code import Code
from .approximate import Probabilities, listed, require_probabilities, require_size, table_code
from .facts import scheme


@scheme(
    "approximate",
    "ignore_stragglers(12, p={p})",
    sent="m_i = g_i",
    decoded="ĝ = Σ_{i∈A} m_i / (1 - p_i);  without p,  ĝ = Σ_{i∈A} m_i",
    papers=("chen2016revisiting",),
    tried=(
        "ignore_stragglers(6)",
        "ignore_stragglers(4, p=[0.1, 0.2, 0.3, 0.4])",
    ),
)
def ignore_stragglers(n: int, p: Probabilities | None = None) -> Code:
    """Every worker sends its own partial gradient; what arrives by the deadline is added up ([C] baseline IS-SGD).

    Without p the sum is biased: partition i counts with its probability of arriving. With straggle probabilities p, a number
    or (n,), messages are divided by 1 - p and the sum is unbiased, at the price of a large variance where p is near 1: use
    `optimally_structured` there.

    >>> ignore_stragglers(4, p=[0.0, 0.5, 0.5, 0.75]).decoder.fixed.tolist()
    [[1.0, 2.0, 2.0, 4.0]]
    """
    n = require_size("ignore_stragglers", n)
    if p is None:
        return table_code(f"ignore_stragglers({n})", n, eye_array(n), "fixed")
    late = require_probabilities("ignore_stragglers", n, p, certain=False)
    return table_code(f"ignore_stragglers({n}, p={listed(p)})", n, eye_array(n), "fixed", 1 / (1 - late))
