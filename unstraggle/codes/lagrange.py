"""Lagrange coded computing for least squares (Li et al. 2018, polynomially coded regression): the data are encoded."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..checks import require_count, require_load
from ..errors import Invalid
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from ..scheme.rule import Need
from .facts import scheme

INSIDE = 0.97
"""The data stand at Chebyshev points shrunk by this factor, which keeps them between the workers' points."""


@scheme(
    "one",
    "lagrange(12, load=3)",
    sent="worker i holds X̃_{i,r} = u_r(x_i),  u_r the polynomial through u_r(y_c) = X_{rb+c},  b = ⌈n messages / load⌉\n"
    "m_i = Σ_r gradient on X̃_{i,r} = h(x_i),  deg h = 2 (b - 1);  with several messages, each has a point x of its own",
    decoded="g = Σ_c h(y_c),  h interpolated from any 2 b - 1 messages",
    papers=("li2018polynomially",),
    tried=(
        "lagrange(12, load=4)",
        "lagrange(10, load=3)",
        "lagrange(8, load=4, messages=2)",
    ),
    limit="least squares only",
    note="It encodes the data, so that it works for least squares only.",
)
def lagrange(n: int, load: int, messages: int = 1) -> Code:
    """Workers hold `load` encoded partitions and send one message; any 2 ceil(n / load) - 1 of them give the gradient.

    messages: how many a worker sends, each after load / messages of its encoded partitions, which must be whole (the
    multi-message variant of Ozfatura et al. 2019). Every message is a value at a point of its own, and any
    2 ceil(n messages / load) - 1 of all of them give the gradient: work of slow workers counts, for more messages.

    Encoded partition rho of worker i is u_rho(alpha_i), the interpolation of raw partitions rho b, ..., rho b + b - 1 at
    beta_1, ..., beta_b with b = ceil(n / load). The worker's sum of gradients is a polynomial of degree 2 (b - 1) in alpha_i,
    and its values at the betas add up to the gradient. Only for least squares, whose gradient is quadratic in the data:
    `code.data` (encoded x raw partitions) goes to `problems.LeastSquares.encode`.

    The workers' points are equally spaced: Chebyshev points crowd at the ends, and seven neighbours of 40 there decode with an
    error of 8e-6 instead of 8e-9. From thresholds of about 15 on, float64 loses the worst survivor sets, and from about 30 on
    nearly all of them.

    >>> lagrange(40, load=10).threshold, lagrange(40, load=10, messages=2).threshold
    (7, 15)
    """
    n, load = require_load("lagrange", n, load)
    many = require_count("lagrange", "messages", messages, 1, load, "Give a number that divides load.")
    if load % many:
        raise Invalid(f"lagrange needs a number of messages that divides load={load}, but got messages={many}. Try messages=1.")
    each, points = load // many, n * many
    columns = -(-n // each)
    threshold = 2 * columns - 1
    if threshold > points:
        raise Invalid(
            f"lagrange({n}, load={load}, messages={many}) needs {threshold} messages, but all workers send {points} together. "
            f"Give a higher load, or fewer messages."
        )
    alphas, betas = (2 * np.arange(points) + 1) / points - 1, INSIDE * _chebyshev_points(columns)
    message, encoded = np.arange(n * load) // each, np.arange(n * load)
    sent = np.tile(np.arange(1, many + 1) * each, n)
    table = Messages(np.arange(points) // many, sent, csr_array((np.ones(n * load), (message, encoded))))
    rows = chebyshev.chebvander(alphas, threshold - 1)
    target = chebyshev.chebvander(betas, threshold - 1).sum(axis=0)
    decoder = Span(csr_array(rows), Need(threshold, tuple(range(points))), target)
    name = f"lagrange({n}, load={load}{f', messages={many}' if many > 1 else ''})"
    return Code(name, n, Tasks(encoded // load, encoded), table, decoder, data=_encoding(alphas, betas, n, each))


def _encoding(alphas: NDArray[np.float64], betas: NDArray[np.float64], n: int, each: int) -> csr_array[np.float64]:
    """(points each, n) weights of the raw partitions in the encoded ones; the partitions that fill up the last row are zero."""
    basis = np.stack([_lagrange_basis(betas, c, alphas) for c in range(len(betas))], axis=1)
    full = np.kron(np.eye(each), basis).reshape(each, len(alphas), -1).transpose(1, 0, 2).reshape(len(alphas) * each, -1)
    return csr_array(full[:, :n])


def _lagrange_basis(nodes: NDArray[np.float64], c: int, at: NDArray[np.float64]) -> NDArray[np.float64]:
    others = np.delete(nodes, c)
    return np.asarray(((at[:, None] - others) / (nodes[c] - others)).prod(axis=1))


def _chebyshev_points(count: int) -> NDArray[np.float64]:
    return np.cos(np.pi * (2 * np.arange(count) + 1) / (2 * count))
