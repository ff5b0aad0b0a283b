"""Two-track decoding: a second set of weights, for the second moment of Adam, from the same messages ([C] section V-E)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..doors import door
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.decoders import Fixed
from .approximate import gains, listed, numbers, require_gamma, require_omega, require_probabilities
from .facts import scheme

Objective = Literal["scalar", "vector"]
Floats = NDArray[np.float64]


@scheme(
    "approximate",
    "two_track(optimally_structured({p}), p={p})",
    sent="as the code",
    decoded="ĝ as the code,  and  ĝ₂ = Σ_{i∈A} w_i m_i  with the weights w that trade bias for variance best",
    papers=("song2025approximate", "song2026communication"),
    tried=(
        "two_track(optimally_structured([0.1, 0.2, 0.3, 0.4]), p=[0.1, 0.2, 0.3, 0.4])",
        "two_track(stochastic(6, p=0.2), p=0.2, omega=0.1, gamma=2.0, pull=3.0, objective='vector')",
    ),
    note="For the second moment of Adam, see [two tracks](two_track.md). The numbers are those of the first track.",
)
def two_track(
    code: Code, p: ArrayLike, omega: ArrayLike = 0.0, *, gamma: float = 1.0, pull: float = 1.0, objective: Objective = "scalar"
) -> Code:
    """The same code with a second row of weights, those of `second_moment_weights`; nothing more is sent.

    Decoding then gives two estimates: the first for the mean of the gradients, the second for that of their squares.

    >>> from unstraggle.codes import optimally_structured
    >>> two_track(optimally_structured([0.5] * 4), p=0.5).decoder.weights(np.ones(4, dtype=bool))
    array([[1. , 1. , 1. , 1. ],
           [0.8, 0.8, 0.8, 0.8]])
    """
    weights = second_moment_weights(code, p, omega, gamma=gamma, pull=pull, objective=objective)
    decoder: Any = code.decoder
    both = np.stack([decoder.fixed[0], weights])
    name = f"two_track({code.name}, p={listed(p)}, omega={listed(omega)}, gamma={gamma}, pull={pull}, objective={objective!r})"
    return replace(code, name=name, decoder=Fixed(decoder.rows, decoder.rule, decoder.target, both))


@door
def second_moment_weights(
    code: Code, p: ArrayLike, omega: ArrayLike = 0.0, *, gamma: float = 1.0, pull: float = 1.0, objective: Objective = "scalar"
) -> Floats:
    """(M,) the weights w that trade bias for variance best ([C] section V-E, closed form).

    objective="scalar" minimises pull (sum of (1 - p_i) A_i w_i - k)^2 + sum of (1 - p_i)(p_i + gamma omega_i) A_i^2 w_i^2, with
    A_i the sum of row i of the coefficients; "vector" takes the bias of every partition, pull |M^T w - 1|^2, M = diag(1 - p) B.
    p, omega: a number or (n,). pull > 0 is the price of bias, lambda in the paper; 1 there.

    For `optimally_structured` with the same omega and gamma the scalar weights are `shrinkage(...)` times its own: then a
    second track only rescales the step, and one track does.

    >>> from unstraggle.codes import optimally_structured
    >>> second_moment_weights(optimally_structured([0.5] * 4), p=0.5)
    array([0.8, 0.8, 0.8, 0.8])
    """
    late, noise = require_probabilities("two_track", code.n, p), require_omega("two_track", code.n, omega)
    _require(code, pull, objective)
    sender, rows = code.messages.worker, code.messages.coef.toarray()
    late, price = late[sender], (late + require_gamma("two_track", gamma) * noise)[sender]
    if objective == "vector":
        return _vector(rows, late, price, pull)
    return _scalar(rows.sum(axis=1), late, price, pull, code.k)


@door
def shrinkage(p: ArrayLike, omega: ArrayLike = 0.0, *, gamma: float = 1.0, pull: float = 1.0) -> float:
    """c = pull Delta / (1 + pull Delta): what remains of the mean in the second track.

    For `optimally_structured` the second weights are c times the first, and Adam's step grows by 1 / c. p: (n,), omega: a
    number or (n,).

    >>> shrinkage([0.5, 0.5, 0.5, 0.5])
    0.8
    """
    n = np.size(p)
    _require_pull(pull)
    late = require_probabilities("shrinkage", n, p)
    total = float(gains(late, numbers("shrinkage", "omega", omega, n), require_gamma("shrinkage", gamma)).sum())
    return 1.0 if np.isinf(total) else pull * total / (1 + pull * total)


def _scalar(sums: Floats, p: Floats, price: Floats, pull: float, k: int) -> Floats:
    """pull k / ((p_i + omega_i) A_i (1 + pull Delta)); where workers never err, these share everything."""
    used = sums != 0
    if (used & (price == 0)).any():
        perfect = used & (price == 0)
        return np.asarray(np.divide(k / perfect.sum(), sums, out=np.zeros(len(sums)), where=perfect))
    total = ((1 - p[used]) / price[used]).sum()
    return np.asarray(np.divide(pull * k, price * sums * (1 + pull * total), out=np.zeros(len(sums)), where=used))


def _vector(rows: Floats, p: Floats, price: Floats, pull: float) -> Floats:
    """The normal equations; of several solutions (workers that are never heard) the shortest."""
    means = (1 - p)[:, None] * rows
    square = pull * means @ means.T + np.diag((1 - p) * price * rows.sum(axis=1) ** 2)
    return np.asarray(np.linalg.lstsq(square, pull * means.sum(axis=1), rcond=None)[0])


def _require(code: Code, pull: float, objective: str) -> None:
    if not isinstance(code.decoder, Fixed) or len(np.unique(code.messages.worker)) < len(code.messages):
        raise Invalid(
            f"two_track needs fixed weights and one message per worker, such as optimally_structured has, but got {code.name}."
        )
    if objective not in ("scalar", "vector"):
        raise Invalid(f'two_track needs objective="scalar" or "vector", but got {objective!r}.')
    _require_pull(pull)


def _require_pull(pull: float) -> None:
    if not (np.isfinite(pull) and pull > 0):
        raise Invalid(f"two_track needs a finite pull > 0, the price of bias, but got pull={pull}. The paper takes 1.")
