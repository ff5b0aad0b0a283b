"""Noise gain: how much a decoder amplifies rounding and quantisation errors of the messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count
from ..doors import door
from ..errors import Invalid, NotRecovered
from ..randomness import Seed, generator
from .code import Code
from .decoders import is_exact, known_weights, tolerance
from .recovery import By, recovery_of


@dataclass(frozen=True)
class NoiseGain:
    """Median and worst over survivor sets of sqrt(sum a_m^2 |row_m|^2 / k); 1 for uncoded training."""

    median: float
    worst: float


@door
def noise_gain(code: Code, sets: int = 40, rng: Seed = 0) -> NoiseGain:
    """Noise gain over `sets` random and as many contiguous survivor sets, each just large enough to decode.

    Messages are taken to have relative errors of equal size, and partial gradients to be orthogonal and of equal length.

    >>> from unstraggle.codes import uncoded
    >>> noise_gain(uncoded(8))
    NoiseGain(median=1.0, worst=1.0)
    """
    sets = require_count("noise_gain", "sets", sets, 1, 10**6, "Give the number of random survivor sets.")
    if code.handing is not None:
        return NoiseGain(1.0, 1.0)  # every partition is in one sum
    gains = [set_noise_gain(code, got) for got in survivor_sets(code, sets, rng)]
    return NoiseGain(float(np.median(gains)), float(np.max(gains)))


def require_digits(code: Code, dtype: np.dtype[Any], sets: int = 10) -> float:
    """The relative error of numbers of a type; refuses codes that decode to noise in it from half of their survivor sets.

    From the sets that are worse than the rest, a round waits for more messages.
    """
    eps = float(np.finfo(dtype).eps)
    if known_weights(code.decoder) is not None or not is_exact(code.decoder, np.ones(len(code.messages), dtype=bool)):
        return eps
    usual = noise_gain(code, sets).median
    if usual * eps > tolerance(eps):
        raise Invalid(
            f"{code.name} amplifies rounding by {usual:.2g} for half of its survivor sets, which leaves too little of {dtype} "
            "numbers. Use a code that keeps its digits, such as fractional_repetition, or cyclic_repetition with "
            "construction='null_space', or float64."
        )
    return eps


def set_noise_gain(code: Code, got: NDArray[np.bool_], errors: float | NDArray[np.float64] = 1.0) -> float:
    """Noise gain of one arrived set: the largest over the blocks, infinite where float64 cannot decode it.

    errors: relative error of each message, (M,); the result is then the relative error of the gradient.
    """
    try:
        weights = code.decoder.weights(got)
    except NotRecovered:
        return float("inf")
    squares = np.abs(weights * _row_lengths(code) * errors) ** 2
    blocks = squares.sum(axis=1)
    if code.messages.mixes == 1:
        blocks = np.bincount(code.messages.block, weights=squares[0], minlength=len(code.blocks))
    return float(np.sqrt(blocks.max() / code.k))


def survivor_sets(code: Code, sets: int, rng: Seed = 0, by: By | None = None) -> Iterator[NDArray[np.bool_]]:
    """(M,) arrived sets that recover and would not without their last message: random and contiguous ones."""
    random = generator(rng)
    how: By = by or ("rule" if code.decoder.rule else "span")
    for _ in range(sets):
        yield recovering_set(code, np.argsort(random.random(code.n)[code.messages.worker] * code.ready(), kind="stable"), how)
    for start in np.unique(np.linspace(0, code.n, min(sets, code.n), endpoint=False).astype(int)):
        place = (code.messages.worker - start) % code.n
        yield recovering_set(code, np.lexsort((code.ready(), place)), how)


def recovering_set(code: Code, order: NDArray[np.int64], by: By) -> NDArray[np.bool_]:
    """The messages that are needed when they arrive in a given order; all of them where even these do not recover."""
    got = np.zeros(len(code.messages), dtype=bool)
    tracker = recovery_of(code, by).begin()
    for message in order.tolist():
        got[message] = True
        tracker.add(message)
        if tracker.met:
            break
    return got


def _row_lengths(code: Code) -> NDArray[np.float64]:
    """(M,) length of each message for orthonormal partial gradients; 1 for encoded data, where it is not known."""
    if code.data is not None:
        return np.ones(len(code.messages))
    return np.sqrt(np.asarray(abs(code.messages.coef).power(2).sum(axis=1)).ravel())
