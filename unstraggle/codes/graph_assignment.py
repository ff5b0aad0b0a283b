"""Graph assignment (Glasgow and Wootters 2021): workers are edges of a regular graph and hold the partitions at its ends."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from ..checks import require_count
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.names import seeded
from .approximate import table_code
from .facts import scheme
from .optimal_decoding import LARGEST, regular_graph


@scheme(
    "approximate",
    "graph_assignment(12, degree=3)",
    sent="m_i = g_u + g_v,  where worker i is the edge uv of a regular graph whose vertices are the 2 n / degree partitions",
    decoded="ĝ = Σ_{i∈A} a_i m_i,  where a minimises  |Σ_{i∈A} a_i B[i, :] - (1, ..., 1)|",
    papers=("glasgow2021approximate",),
    tried=("graph_assignment(12, degree=3)", "graph_assignment(10, degree=2, seed=1)"),
)
def graph_assignment(n: int, degree: int, seed: int = 0) -> Code:
    """Workers are the edges of a random regular graph on 2 n / degree partitions; each adds up the two at its ends.

    degree: workers that hold a partition, and the work of a worker, two partitions of degree / 2 units. The master decodes by
    least squares: workers that hang together with an odd circle decode exactly, and elsewhere two sides are out by how much
    they differ in size. For n = 24, degree = 3 and p = 0.1 the mean error is 5 to 9 times less than that of `optimal_decoding`,
    and about that of repetition; 3 or 4 stragglers lose one partition of 16 at worst, half of what repetition loses.
    Biased like `optimal_decoding`, and O(n^3) a set: use `optimally_structured` where p is known and unbiased sums matter.

    >>> code = graph_assignment(24, degree=3)
    >>> code.k, code.load, np.unique(code.messages.coef.sum(axis=0)).tolist()
    (16, 3.0, [3.0])
    """
    n, degree = _require(n, degree)
    seed = require_count("graph_assignment", "seed", seed, 0, 2**63 - 1, "It fixes the random graph.")
    ends = np.argwhere(np.triu(regular_graph(2 * n // degree, degree, seed)))
    held = csr_array((np.ones(2 * n), (np.repeat(np.arange(n), 2), ends.ravel())), shape=(n, 2 * n // degree))
    return table_code(f"graph_assignment({n}, degree={degree}{seeded(seed)})", n, held, "least_squares")


def _require(n: int, degree: int) -> tuple[int, int]:
    """Edges and degree of a regular graph that exists."""
    why = "A larger one is slow to decode: use cluster(graph_assignment(...), times=...)."
    n = require_count("graph_assignment", "n", n, 1, LARGEST, why)
    fits = [d for d in range(1, n + 1) if 2 * n % d == 0 and 2 * n // d > d]
    if degree not in fits:
        raise Invalid(
            f"graph_assignment needs 2 n / degree partitions, more than degree, but got n={n}, degree={degree!r}. "
            f"Use one of degree={fits}."
        )
    return n, int(degree)
