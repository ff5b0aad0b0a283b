"""Expander codes (Raviv et al. 2018): workers are vertices of a regular graph that expands well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..code import Code
from .approximate import Probabilities, listed, require_probabilities, table_code
from .regular_graph_code import regular_graph, require_graph
from .table import require_count

TRIES = 16
"""Random graphs of which `expander_code` keeps the one that expands most."""


def expander_code(n: int, degree: int, p: Probabilities | None = None, seed: int = 0) -> Code:
    """Like `regular_graph_code`, with coefficients 1 / degree, on that of 16 random graphs which expands most (Raviv et al.).

    Without p the master decodes by least squares. With straggle probabilities p, weights are 1 / (1 - p), the fixed form of
    Raviv's n / (number of responders): unbiased, and O(n) to decode.

    >>> expander_code(8, degree=3, p=0.5).decoder.weights(np.ones(8, dtype=bool))[0].tolist() == [2.0] * 8
    True
    """
    n, degree = require_graph("expander_code", n, degree)
    seed = require_count("expander_code", "seed", seed, 0, 2**62, "It fixes the random graphs.")
    graph = min((regular_graph(n, degree, seed * TRIES + t) for t in range(TRIES)), key=_second_eigenvalue) / degree
    given = ("" if p is None else f", p={listed(p)}") + (f", seed={seed}" if seed else "")
    name = f"expander_code({n}, degree={degree}{given})"
    if p is None:
        return table_code(name, n, graph, "least_squares")
    return table_code(name, n, graph, "fixed", 1 / (1 - require_probabilities("expander_code", n, p, certain=False)))


def _second_eigenvalue(adjacent: NDArray[np.float64]) -> float:
    """The second largest absolute eigenvalue: the smaller, the better the graph expands."""
    return float(np.sort(np.abs(np.linalg.eigvalsh(adjacent)))[-2])
