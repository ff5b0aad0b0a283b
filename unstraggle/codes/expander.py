"""Expander codes (Raviv et al. 2018): workers are vertices of a regular graph that expands well."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count
from ..errors import Invalid
from ..scheme.code import Code
from .approximate import Probabilities, listed, require_decode, require_probabilities, table_code
from .facts import scheme
from .optimal_decoding import regular_graph, require_graph

TRIES = 16
"""Random graphs of which `expander` keeps the one that expands most."""


@scheme(
    "approximate",
    "expander(12, degree=3)",
    sent="m_i = Σ_{j adjacent to i} g_j / degree,  in a regular graph that expands well",
    decoded="as optimal_decoding;  with p,  ĝ = Σ_{i∈A} m_i / (1 - p_i)",
    papers=("raviv2018gradient",),
    tried=(
        "expander(10, degree=3)",
        "expander(10, degree=3, decode='one_step')",
    ),
)
def expander(
    n: int,
    degree: int,
    p: Probabilities | None = None,
    seed: int = 0,
    *,
    decode: Literal["least_squares", "one_step"] = "least_squares",
) -> Code:
    """Like `optimal_decoding`, with coefficients 1 / degree, on that of 16 random graphs which expands most (Raviv et al.).

    Without p the master decodes by least squares, or with decode="one_step" multiplies by n / (number of responders), as
    Raviv et al. do. With straggle probabilities p, weights are 1 / (1 - p), the fixed form of the same: unbiased, and O(n) to
    decode.

    >>> expander(8, degree=3, p=0.5).decoder.weights(np.ones(8, dtype=bool))[0].tolist() == [2.0] * 8
    True
    """
    n, degree = require_graph("expander", n, degree)
    seed = require_count("expander", "seed", seed, 0, 2**62, "It fixes the random graphs.")
    graph = min((regular_graph(n, degree, seed * TRIES + t) for t in range(TRIES)), key=_second_eigenvalue) / degree
    require_decode("expander", decode, "least_squares", "one_step")
    if p is not None and decode == "one_step":
        raise Invalid(f"expander needs p or decode='one_step', not both, but got p={p!r}. With p its weights are 1 / (1 - p).")
    given = ("" if p is None else f", p={listed(p)}") + (f", seed={seed}" if seed else "")
    given += f", decode={decode!r}" if decode != "least_squares" else ""
    name = f"expander({n}, degree={degree}{given})"
    if p is None:
        return table_code(name, n, graph, decode)
    return table_code(name, n, graph, "fixed", 1 / (1 - require_probabilities("expander", n, p, certain=False)))


def _second_eigenvalue(adjacent: NDArray[np.float64]) -> float:
    """The second largest absolute eigenvalue: the smaller, the better the graph expands."""
    return float(np.sort(np.abs(np.linalg.eigvalsh(adjacent)))[-2])
