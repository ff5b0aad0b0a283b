"""Lagrange coded computing for least squares (Li et al. 2018, polynomially coded regression): the data are encoded."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..checks import require_load
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from ..scheme.rule import Need
from .facts import scheme

INSIDE = 0.97
"""The data stand at Chebyshev points shrunk by this factor, which keeps them between the workers' points."""


@scheme(
    "one",
    "lagrange(12, load=3)",
    sent="worker i holds X̃_{i,r} = u_r(x_i),  u_r the polynomial through u_r(y_c) = X_{rb+c},  b = ⌈n / load⌉\n"
    "m_i = Σ_r gradient on X̃_{i,r} = h(x_i),  deg h = 2 (b - 1)",
    decoded="g = Σ_c h(y_c),  h interpolated from any 2 b - 1 messages",
    papers=("li2018polynomially",),
    tried=(
        "lagrange(12, load=4)",
        "lagrange(10, load=3)",
    ),
    limit="least squares only",
    note="It encodes the data, so that it works for least squares only.",
)
def lagrange(n: int, load: int) -> Code:
    """Workers hold `load` encoded partitions and send one message; any 2 ceil(n / load) - 1 of them give the gradient.

    Encoded partition rho of worker i is u_rho(alpha_i), the interpolation of raw partitions rho b, ..., rho b + b - 1 at
    beta_1, ..., beta_b with b = ceil(n / load). The worker's sum of gradients is a polynomial of degree 2 (b - 1) in alpha_i,
    and its values at the betas add up to the gradient. Only for least squares, whose gradient is quadratic in the data:
    `code.data` (encoded x raw partitions) goes to `problems.LeastSquares.encode`.

    The workers' points are equally spaced: Chebyshev points crowd at the ends, and seven neighbours of 40 there decode with an
    error of 8e-6 instead of 8e-9. From thresholds of about 15 on, float64 loses the worst survivor sets.

    >>> lagrange(40, load=10).threshold
    7
    """
    n, load = require_load("lagrange", n, load)
    columns = -(-n // load)
    alphas, betas = (2 * np.arange(n) + 1) / n - 1, INSIDE * _chebyshev_points(columns)
    threshold = 2 * columns - 1
    worker = np.arange(n * load) // load
    messages = Messages(np.arange(n), np.full(n, load), csr_array((np.ones(n * load), (worker, np.arange(n * load)))))
    rows = chebyshev.chebvander(alphas, threshold - 1)
    target = chebyshev.chebvander(betas, threshold - 1).sum(axis=0)
    decoder = Span(csr_array(rows), Need(threshold, tuple(range(n))), target)
    tasks = Tasks(worker, np.arange(n * load))
    return Code(f"lagrange({n}, load={load})", n, tasks, messages, decoder, data=_encoding(alphas, betas, n, load))


def _encoding(alphas: NDArray[np.float64], betas: NDArray[np.float64], n: int, load: int) -> csr_array[np.float64]:
    """(n load, n) weights of the raw partitions in the encoded ones; the partitions that fill up the last row are zero."""
    basis = np.stack([_lagrange_basis(betas, c, alphas) for c in range(len(betas))], axis=1)
    full = np.kron(np.eye(load), basis).reshape(load, n, -1).transpose(1, 0, 2).reshape(n * load, -1)
    return csr_array(full[:, :n])


def _lagrange_basis(nodes: NDArray[np.float64], c: int, at: NDArray[np.float64]) -> NDArray[np.float64]:
    others = np.delete(nodes, c)
    return np.asarray(((at[:, None] - others) / (nodes[c] - others)).prod(axis=1))


def _chebyshev_points(count: int) -> NDArray[np.float64]:
    return np.cos(np.pi * (2 * np.arange(count) + 1) / (2 * count))
