"""A random regular assignment with optimal decoding: workers are vertices of a regular graph and hold their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count
from ..errors import Invalid
from ..randomness import generator
from ..scheme.code import Code
from .approximate import table_code
from .facts import scheme

SWITCHES = 10
"""Attempted switches an edge: enough to forget the graph that the random one starts from."""

LARGEST = 2000
"""Workers of a graph code: a survivor set costs O(n^3) to decode."""


@scheme(
    "approximate",
    "optimal_decoding(12, degree=3)",
    sent="m_i = Σ_{j adjacent to i} g_j,  in a regular graph",
    decoded="ĝ = Σ_{i∈A} a_i m_i,  where a minimises  |Σ_{i∈A} a_i B[i, :] - (1, ..., 1)|",
    papers=("raviv2018gradient", "charles2017approximate"),
    tried=("optimal_decoding(10, degree=3)",),
)
def optimal_decoding(n: int, degree: int, seed: int | None = 0) -> Code:
    """Worker i adds up the partitions of its neighbours in a random regular graph; the master decodes by least squares.

    degree: partitions per worker, and workers per partition; n * degree must be even. seed=None takes the circulant graph (for
    degree 2 the cycle). The estimate is the closest one to the sum for the set that arrived, but it is biased, and a set costs
    O(n^3) to decode: use `optimally_structured` where p is known. Raviv et al. assign by graphs in this way, Charles et al.
    decode so. In the scheme of Glasgow and Wootters workers are edges: `graph_assignment`, which errs less for the same work.

    >>> code = optimal_decoding(10, degree=3)
    >>> code.messages.coef.sum(axis=0).tolist() == [3.0] * 10
    True
    """
    n, degree = require_graph("optimal_decoding", n, degree)
    if seed is not None:
        seed = require_count("optimal_decoding", "seed", seed, 0, 2**63 - 1, "It fixes the random graph; None: no shuffling.")
    given = "" if seed == 0 else f", seed={seed}"
    return table_code(f"optimal_decoding({n}, degree={degree}{given})", n, regular_graph(n, degree, seed), "least_squares")


def require_graph(scheme: str, n: Any, degree: Any) -> tuple[int, int]:
    """Vertices and degree of a regular graph that exists."""
    n = require_count(scheme, "n", n, 2, LARGEST, f"A larger one is slow to decode: use cluster({scheme}(...), times=...).")
    degree = require_count(scheme, "degree", degree, 1, n - 1, "A vertex has at most n - 1 neighbours.")
    if n * degree % 2:
        raise Invalid(
            f"{scheme} needs n * degree even, or no regular graph exists, but got n={n}, degree={degree}. "
            f"Use degree={degree + 1 if degree + 1 < n else degree - 1}."
        )
    return n, degree


def regular_graph(n: int, degree: int, seed: int | None) -> NDArray[np.float64]:
    """(n, n) adjacency matrix of the circulant graph, shuffled by switches of pairs of edges that keep all degrees."""
    steps = np.append(np.arange(1, degree // 2 + 1), [n // 2] * (degree % 2)).astype(int)
    adjacent = np.zeros((n, n))
    for step in steps.tolist():
        adjacent[np.arange(n), (np.arange(n) + step) % n] = adjacent[(np.arange(n) + step) % n, np.arange(n)] = 1
    if seed is None:
        return adjacent
    edges = np.argwhere(np.triu(adjacent)).tolist()
    rng = generator(seed)
    picks = rng.integers(len(edges), size=(SWITCHES * len(edges), 2)).tolist()
    for (first, second), flip in zip(picks, (rng.random(len(picks)) < 0.5).tolist(), strict=True):
        _switch(adjacent, edges, first, second, flip)
    return adjacent


def _switch(adjacent: NDArray[np.float64], edges: list[list[int]], first: int, second: int, flip: bool) -> None:
    """Replace edges ab, cd by ac, bd (or ad, bc), unless that makes a loop or a double edge."""
    (a, b), (c, d) = edges[first], edges[second]
    if flip:
        c, d = d, c
    if len({a, b, c, d}) < 4 or adjacent[a, c] or adjacent[b, d]:
        return
    for u, v, present in ((a, b, 0), (c, d, 0), (a, c, 1), (b, d, 1)):
        adjacent[u, v] = adjacent[v, u] = present
    edges[first], edges[second] = [a, c], [b, d]
