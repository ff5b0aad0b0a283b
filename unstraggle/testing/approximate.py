"""The contract of an approximate code: its decoder says how wrong it is, and bias and error are what theory says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..codes.approximate import require_probabilities
from ..latency import ShiftedExponential
from ..plan.error import Error, mean_squared_error
from ..scheme.code import Code, combine
from ..scheme.decoders import decode
from ..scheme.stop import Count, Deadline, Stop
from ..study.replaying import replay
from ..study.simulation import simulate
from .shared import Recorded, check_programs, example_grads, require

SIGMAS = 5.0
"""How far a mean of draws may lie from what theory says, in standard errors."""


@dataclass(frozen=True)
class ApproximateReport:
    """What `check_code` saw of an approximate code at straggle probabilities p: its bias and its error, both relative."""

    name: str
    sets: int
    unbiased: bool
    bias: float
    mean_squared_error: float

    def __str__(self) -> str:
        kind = "unbiased" if self.unbiased else f"biased by {self.bias:.3g} of the gradient"
        return (
            f"{self.name}: keeps its promises\n  survivor sets decoded    {self.sets}\n"
            f"  mean                     {kind}\n"
            f"  mean squared error       {self.mean_squared_error:.3g} of the gradient's square"
        )


def check_approximate(
    code: Code, p: ArrayLike, unbiased: bool, sets: int, rounds: int, rng: np.random.Generator
) -> ApproximateReport:
    """Check a code that is not exact. p: straggle probabilities, at which it must be unbiased if `unbiased`."""
    late = require_probabilities("check_code", code.n, p)
    check_programs(code)
    got = (rng.random((sets, code.n)) >= late)[:, code.messages.worker]
    _check_residuals(code, got)
    _check_decoding(code, got[:20], rng)
    for stop in (Deadline(1.5), Count(max(1, len(np.unique(code.messages.worker)) // 2))):
        _check_twins(code, stop, rounds, rng)
    found = mean_squared_error(code, late)
    _check_moments(code, got, found)
    require(not unbiased or found.unbiased, code, f"the mean coefficients at p={p!r} are {found.mean}, not 1: it is biased.")
    bias = float(np.sqrt(found.bias / found.squared_norm))
    return ApproximateReport(code.name, sets, found.unbiased, bias, found.relative)


def _check_residuals(code: Code, got: NDArray[np.bool_]) -> None:
    """The decoder's word on its error is true: that of the coefficients that its weights give."""
    said = code.decoder.residual(got)
    for one, residual in zip(got, said, strict=True):
        weights = decode(code.decoder, one).weights
        require(not weights[:, ~one].any(), code, "the decoder uses messages that did not arrive.")
        error = float(np.linalg.norm(weights[0] @ code.messages.coef - 1) / np.sqrt(code.k))
        right = abs(error - residual) <= 1e-9 * max(1.0, error)
        require(right, code, f"the decoder claims an error of {residual:.3g} where it has {error:.3g}.")


def _check_decoding(code: Code, got: NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Real payloads, decoded, are the gradients of the partitions times the coefficients that the weights give."""
    payloads, grads = example_grads(code, rng)
    for one in got:
        weights = decode(code.decoder, one).weights[0]
        decoded = combine(code, weights, {m: payloads[m] for m in np.flatnonzero(one).tolist()}, grads.shape[1])
        expected = (weights @ code.messages.coef) @ grads
        wrong = float(np.abs(decoded - expected).max() / max(np.abs(grads).max(), 1e-300))
        require(wrong <= 1e-9, code, f"encoding and decoding differ from the coefficients by {wrong:.2g}.")


def _check_twins(code: Code, stop: Stop, rounds: int, rng: np.random.Generator) -> None:
    arrivals = ShiftedExponential(rate=1.0, shift=0.1).sample(code, rounds, rng)
    fast, slow = simulate(code, Recorded(arrivals), stop, rounds=rounds), replay(code, arrivals, stop)
    for name in ("time", "messages", "exact", "residual"):
        same = np.allclose(getattr(fast, name).values, getattr(slow, name).values, rtol=1e-12, atol=1e-9, equal_nan=True)
        require(same, code, f"simulated and replayed {name} differ under {stop}.")


def _check_moments(code: Code, got: NDArray[np.bool_], theory: Error) -> None:
    """The mean squared error of drawn sets is that of theory, for orthonormal partial gradients."""
    squares = code.decoder.residual(got) ** 2 * code.k
    spread = float(squares.std(ddof=1) / np.sqrt(len(squares)))
    away = abs(float(squares.mean()) - theory.mean_squared_error)
    limit = SIGMAS * spread + (theory.ci95[1] - theory.ci95[0]) + 1e-9
    said = f"plan.mean_squared_error says {theory.mean_squared_error:.3g}"
    require(away <= limit, code, f"drawn sets have a mean squared error of {squares.mean():.3g}, {said}.")
