"""Kernels on one thread, on vectors that no cache holds, against numpy.copyto."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from . import Result
from .timing import Timed, best_times

LENGTH, REPEATS = 10**7, 8
"""Coordinates of a float32 vector, and how often everything is timed."""
BITS = (2, 4, 8)
MESSAGES = 8
COPY = "copy the vector"


def quantise(seed: int) -> Iterator[Result]:
    """Norm, stochastic rounding, packing and checksum of a vector, to several numbers of bits."""
    from ...quantizers import QSGD, warmup

    warmup(*BITS)
    x, room = _vector(seed), np.empty(QSGD(8).size(LENGTH), np.uint8)
    runs = {f"encode to {bits} bits": partial(QSGD(bits).encode, x, seed, out=room) for bits in BITS}
    return _against_copy(runs, x)


def accumulate(seed: int) -> Iterator[Result]:
    """Add a quantised message to a sum without decoding it first."""
    from ...quantizers import QSGD, read, warmup

    warmup(*BITS)
    x, total = _vector(seed), np.zeros(LENGTH, np.float32)
    messages = {bits: read(QSGD(bits).encode(x, seed)) for bits in BITS}
    names = {bits: f"add a message of {bits} bits" for bits in BITS}
    return _against_copy({names[b]: partial(QSGD(b).accumulate, total, message, 1e-3) for b, message in messages.items()}, x)


def decode(seed: int) -> Iterator[Result]:
    """The weighted sum of float32 messages."""
    from ...runtime.sums import weighted_sum

    length = LENGTH // MESSAGES
    rng = np.random.default_rng(seed)
    vectors = list(rng.standard_normal((MESSAGES, length), dtype=np.float32))
    out, room, weights = np.empty(length, np.float32), np.empty((MESSAGES, length), np.float32), rng.random(MESSAGES).tolist()

    def copy() -> None:
        for target, vector in zip(room, vectors, strict=True):
            np.copyto(target, vector)

    best = best_times({"copy": copy, "sum": partial(weighted_sum, out, weights, vectors)}, REPEATS)
    yield Result(f"sum {MESSAGES} messages", best["sum"], "copy the messages", best["copy"])


def _vector(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(LENGTH, dtype=np.float32)


def _against_copy(runs: Timed, x: NDArray[np.float32]) -> Iterator[Result]:
    best = best_times({COPY: partial(np.copyto, np.zeros_like(x), x), **runs}, REPEATS)
    for name in runs:
        yield Result(name, best[name], COPY, best[COPY])
