"""How wrong an approximate code is: bias and mean squared error for given straggle probabilities, and bounds on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..codes.approximate import gains, numbers, require_gamma, require_omega, require_probabilities
from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from ..scheme.code import Code
from ..scheme.decoders import Fixed, parts_of
from ..statistics import NORMAL_975

ENUMERATED = 16
"""Up to this many workers all sets of stragglers are gone through; beyond it they are drawn."""

CHUNK = 1024
"""Sets of stragglers decoded at a time."""

Floats = NDArray[np.float64]
Gradients = Literal["identical", "orthonormal"] | ArrayLike


@dataclass(frozen=True, eq=False)
class Error:
    """E|estimate - gradient|^2 = bias + straggling + quantising, all squared lengths; `relative` divides by |gradient|^2.

    mean: (k,) expected coefficient of each partial gradient, 1 where unbiased. ci95: of the mean squared error, equal ends
    where it is computed and not drawn.
    """

    mean_squared_error: float
    bias: float
    straggling: float
    quantising: float
    squared_norm: float
    mean: Floats
    ci95: tuple[float, float]

    @property
    def relative(self) -> float:
        """Mean squared error over the squared length of the gradient."""
        return self.mean_squared_error / self.squared_norm

    @property
    def unbiased(self) -> bool:
        """Whether every partial gradient counts once in the mean."""
        return bool(np.abs(self.mean - 1).max() <= 1e-9)


@dataclass(frozen=True, eq=False)
class Piece:
    """Workers that decode independently of all others: moments of the coefficients that they contribute.

    mean (k,) and second (k, k) moments of the coefficients, squares (M,) of the weights; spread: variance of the mean squared
    error's estimate, 0 where all sets were gone through.
    """

    mean: Floats
    second: Floats
    squares: Floats
    spread: float = 0.0

    @property
    def covariance(self) -> Floats:
        return np.asarray(self.second - np.outer(self.mean, self.mean))


@door
def mean_squared_error(
    code: Code,
    p: ArrayLike,
    gradients: Gradients = "orthonormal",
    *,
    gram: ArrayLike | None = None,
    quantiser_variance: ArrayLike | None = None,
    rounds: int = 4000,
    rng: Seed = 0,
) -> Error:
    """Bias and mean squared error of a code whose workers straggle independently with probabilities p ([C] Lemma 1).

    p: a number or (n,). gradients: "identical" or "orthonormal" partial gradients of length 1, or (k, dim); gram: their (k, k)
    inner products instead. quantiser_variance: E|Q(m) - m|^2 / |m|^2 of each message, a number or (M,). Exact for fixed
    weights, and for other decoders where independent parts have at most 16 workers; else from `rounds` random sets.

    Codes for blocks of coordinates and encoded data are refused: measure these on a problem.

    >>> from unstraggle.codes import ignore_stragglers
    >>> error = mean_squared_error(ignore_stragglers(4), p=0.5, gradients="identical")
    >>> error.relative, error.bias / error.squared_norm
    (0.3125, 0.25)
    """
    if len(code.blocks) > 1 or code.data is not None:
        raise Invalid(f"mean_squared_error needs a code over all coordinates and raw data, but got {code.name}.")
    late = require_probabilities("mean_squared_error", code.n, p)
    products = _gram(code.k, gradients, gram)
    noise = np.zeros(len(code.messages))
    if quantiser_variance is not None:
        noise = require_omega("mean_squared_error", len(noise), quantiser_variance)
    lengths = _quadratic(code.messages.coef.toarray(), products)
    pieces = list(_pieces(code, late, products, noise * lengths, rounds, rng))
    mean = np.sum([piece.mean for piece in pieces], axis=0)
    bias = float((mean - 1) @ products @ (mean - 1))
    straggling = float(sum((piece.covariance * products).sum() for piece in pieces))
    quantising = float(sum(piece.squares @ (noise * lengths) for piece in pieces))
    total = bias + straggling + quantising
    half = NORMAL_975 * float(np.sqrt(sum(piece.spread for piece in pieces)))
    return Error(total, bias, straggling, quantising, float(products.sum()), mean, (total - half, total + half))


@door
def lemma_bound(code: Code, p: ArrayLike, omega: ArrayLike = 0.0, gamma: float = 1.0, norm: float = 1.0) -> float:
    """No unbiased code with these fixed weights errs more while partial gradients are at most `norm` long ([C] Lemma 1).

    norm^2 times the sum of delta_i (sum over j of |W_ij|)^2, W_ij = (1 - p_i) a_i B_ij; one message per worker. omega: (n,).
    The absolute values matter: with negative W the row sums themselves are no bound.

    >>> from unstraggle.codes import optimally_structured
    >>> round(lemma_bound(optimally_structured([0.5] * 4), p=0.5), 6), round(least_bound([0.5] * 4, k=4), 6)
    (4.0, 4.0)
    """
    late, noise = require_probabilities("lemma_bound", code.n, p), require_omega("lemma_bound", code.n, omega)
    if not isinstance(code.decoder, Fixed) or len(np.unique(code.messages.worker)) < len(code.messages):
        raise Invalid(
            f"lemma_bound needs fixed weights and one message per worker, but got {code.name}. Use mean_squared_error."
        )
    sender = code.messages.worker
    weights = np.abs(code.decoder.fixed[0]) * np.asarray(abs(code.messages.coef).sum(axis=1)).ravel()
    price = late + require_gamma("lemma_bound", gamma) * noise
    return float(norm**2 * (((1 - late) * price)[sender] * weights**2).sum())


@door
def least_bound(p: ArrayLike, k: int, omega: ArrayLike = 0.0, gamma: float = 1.0, norm: float = 1.0) -> float:
    """norm^2 k^2 / Delta, the least that `lemma_bound` can be, which `optimally_structured` attains ([C] Theorem 1).

    >>> least_bound([0.5, 0.5, 0.5, 0.5], k=4)
    4.0
    """
    total = delta(p, omega, gamma)
    return float(norm**2 * k**2 / total) if total else float("inf")


def delta(p: ArrayLike, omega: ArrayLike = 0.0, gamma: float = 1.0) -> float:
    """Delta = sum of (1 - p_i) / (p_i + gamma omega_i): p, omega (n,); infinite where a worker never errs ([C] Theorem 1).

    >>> delta([0.5, 0.5, 0.2])
    6.0
    """
    n = np.size(p)
    late = require_probabilities("delta", n, p)
    return float(gains(late, numbers("delta", "omega", omega, n), require_gamma("delta", gamma)).sum())


def _gram(k: int, gradients: Gradients, gram: ArrayLike | None) -> Floats:
    if gram is not None:
        products = np.asarray(gram, dtype=float)
        if products.shape != (k, k) or not np.allclose(products, products.T):
            raise Invalid(f"mean_squared_error needs a symmetric ({k}, {k}) gram matrix, but got shape {products.shape}.")
        return products
    if isinstance(gradients, str):
        if gradients not in ("identical", "orthonormal"):
            raise Invalid(f'mean_squared_error needs "identical", "orthonormal" or (k, dim) gradients, but got {gradients!r}.')
        return np.ones((k, k)) if gradients == "identical" else np.eye(k)
    vectors = np.asarray(gradients, dtype=float)
    if vectors.ndim != 2 or len(vectors) != k:
        raise Invalid(f"mean_squared_error needs gradients of shape ({k}, dim), but got {vectors.shape}.")
    return np.asarray(vectors @ vectors.T)


def _quadratic(rows: NDArray[Any], products: Floats) -> Floats:
    """(r, k) to (r,): row times products times row."""
    return np.asarray(np.einsum("rj,rj->r", rows.conj() @ products, rows).real)


def _pieces(code: Code, p: Floats, products: Floats, noise: Floats, rounds: int, rng: Seed) -> Iterator[Piece]:
    """The moments of independent pieces: parts on disjoint workers, or else the whole code."""
    parts = parts_of(code.decoder)
    senders = [np.unique(code.messages.worker[part.messages]) for part in parts]
    disjoint = sum(map(len, senders)) == len(np.unique(code.messages.worker))
    if all(isinstance(part.decoder, Fixed) for part in parts):
        yield _fixed(code, p)
    elif disjoint and max(map(len, senders)) <= ENUMERATED:
        yield from (_sets(code, workers, *_enumerated(p[workers]), products, noise) for workers in senders)
    else:
        workers = np.unique(code.messages.worker)
        yield _sets(code, workers, *_patterns(p[workers], rounds, rng), products, noise)


def _fixed(code: Code, p: Floats) -> Piece:
    """Closed form for fixed weights: every worker contributes or not, independently."""
    weights = code.decoder.weights(np.ones(len(code.messages), dtype=bool))[0]
    worker = code.messages.worker
    rows = np.zeros((code.n, code.k))
    np.add.at(rows, worker, weights[:, None] * code.messages.coef.toarray())
    mean = (1 - p) @ rows
    second = np.outer(mean, mean) + (rows.T * (p * (1 - p))) @ rows
    return Piece(mean, second, (1 - p[worker]) * weights**2)


def _patterns(p: Floats, rounds: int, rng: Seed) -> tuple[NDArray[np.bool_], Floats, bool]:
    if len(p) <= ENUMERATED:
        return _enumerated(p)
    rounds = require_count("mean_squared_error", "rounds", rounds, 2, 10**9, "It is how many sets of stragglers are drawn.")
    heard = generator(rng).random((rounds, len(p))) >= p
    return heard, np.full(rounds, 1 / rounds), True


def _enumerated(p: Floats) -> tuple[NDArray[np.bool_], Floats, bool]:
    """All (2^n, n) sets of responders with their probabilities."""
    heard = (np.arange(2 ** len(p))[:, None] >> np.arange(len(p))) & 1 == 1
    return heard, np.where(heard, 1 - p, p).prod(axis=1), False


def _sets(
    code: Code, workers: Any, heard: NDArray[np.bool_], chance: Floats, drawn: bool, products: Floats, noise: Floats
) -> Piece:
    """Moments over given sets of responders among `workers`; nothing of the others arrives."""
    mean, second, squares = np.zeros(code.k), np.zeros((code.k, code.k)), np.zeros(len(code.messages))
    place = np.full(code.n, -1)
    place[workers] = np.arange(len(workers))
    mine, column = place[code.messages.worker] >= 0, place[code.messages.worker]
    losses = []
    for first in range(0, len(heard), CHUNK):
        weights = code.decoder.weights(heard[first : first + CHUNK][:, column] & mine)[:, 0]
        share = chance[first : first + CHUNK]
        values = np.asarray((weights @ code.messages.coef).real)
        mean, second = mean + share @ values, second + (values.T * share) @ values
        squares += share @ np.abs(weights) ** 2
        losses.append(_quadratic(values - 1, products) + np.abs(weights) ** 2 @ noise)
    spread = float(np.concatenate(losses).var(ddof=1) / len(heard)) if drawn else 0.0
    return Piece(mean, second, squares, spread)
