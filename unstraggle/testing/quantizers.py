"""The contract of a quantiser: `check_quantizer(quantizer)` says whether one of your own keeps its promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid, UnstraggleError
from ..quantizers import Quantizer
from ..quantizers.base import Model
from ..randomness import Seed, generator

Floats = NDArray[np.float32]

LENGTHS = (0, 1, 2, 31, 512, 513, 3000)
"""Vectors that are encoded to see whether sizes are as promised."""

SIGMAS = 5.5
"""Standard errors by which means may differ: over thousands of coordinates chance reaches this once in ten thousand checks."""

SEEN = 20
"""Draws in which a coordinate must be rounded up, and down, for its mean to be tested by itself."""

ROUNDING = 1e-5
"""Relative error that float32 may leave."""


class BrokenQuantizer(UnstraggleError, AssertionError):
    """A quantiser does not do what it promises."""


@dataclass(frozen=True)
class QuantizerReport:
    """What `check_quantizer` saw: vectors tried, payloads refused, the largest deviation of a mean in standard errors."""

    name: str
    vectors: int
    refused: int
    worst_z: float

    def __str__(self) -> str:
        return (
            f"{self.name}: keeps its promises\n  vectors                  {self.vectors}\n"
            f"  broken payloads refused  {self.refused}\n  worst deviation          {self.worst_z:.2f} standard errors"
        )


def check_quantizer(quantizer: Quantizer, *, draws: int = 600, rng: Seed = 0) -> QuantizerReport:
    """Check a quantiser without memory: sizes, the same bytes for the same seed, unbiasedness and variance over `draws` seeds,
    its bounds, accumulate against decode, and that it refuses broken payloads and vectors.

    Raises `BrokenQuantizer` with the first promise that is broken. Quantisers with memory, as `ErrorFeedback`, are biased:
    check the one inside.

    >>> from unstraggle.quantizers import QSGD
    >>> check_quantizer(QSGD(bits=4), draws=200).worst_z < 5.5
    True
    """
    if not isinstance(quantizer, Quantizer):
        missing = [
            name
            for name in ("bits", "size", "encode", "decode", "accumulate", "variance", "omega")
            if not hasattr(quantizer, name)
        ]
        raise BrokenQuantizer(f"{quantizer!r} is no quantizer: it lacks {', '.join(missing)}.")
    if draws < 100:
        raise Invalid(f"check_quantizer needs draws >= 100 for its tests of means, but got draws={draws}.")
    random = generator(rng)
    vectors = list(_vectors(random))
    _check_determinism(quantizer, vectors[0])
    _check_sizes(quantizer, random)
    _check_simple_vectors(quantizer, vectors[0])
    worst = max(_check_moments(quantizer, x, draws) for x in vectors)
    _check_accumulate(quantizer, vectors[0], vectors[1])
    return QuantizerReport(repr(quantizer), len(vectors), _check_refusals(quantizer, vectors[0], random), worst)


def _vectors(rng: np.random.Generator) -> Iterator[Floats]:
    """Dense, heavy-tailed, mostly zero, and of one sign; longer than a block of 512 coordinates."""
    yield rng.standard_normal(700).astype(np.float32)
    yield rng.standard_t(2, 700).astype(np.float32)
    yield np.where(rng.random(700) < 0.05, rng.standard_normal(700), 0).astype(np.float32)
    yield (1e-3 + 1e-2 * rng.random(700)).astype(np.float32)


def _require(promise: bool, quantizer: Quantizer, broken: str) -> None:
    if not promise:
        raise BrokenQuantizer(f"{quantizer!r}: {broken}")


def _check_sizes(quantizer: Quantizer, rng: np.random.Generator) -> None:
    for length in LENGTHS:
        x = rng.standard_normal(length).astype(np.float32)
        payload, size = quantizer.encode(x, 0), quantizer.size(length)
        _require(len(payload) == size, quantizer, f"size({length}) is {size}, but the payload has {len(payload)} bytes.")
        decoded = quantizer.decode(payload)
        fits = decoded.shape == (length,) and decoded.dtype == np.float32
        _require(fits, quantizer, f"a vector of {length} coordinates decodes to {decoded.dtype}{decoded.shape}.")
    growth = 8 * (quantizer.size(1 << 20) - quantizer.size(0)) / (1 << 20)
    _require(growth >= quantizer.bits, quantizer, f"bits is {quantizer.bits}, but a coordinate takes {growth:.3g} on the wire.")


def _check_determinism(quantizer: Quantizer, x: Floats) -> None:
    before, first = x.copy(), bytes(quantizer.encode(x, 7))
    _require(np.array_equal(x, before), quantizer, "encode changes the vector that it is given.")
    _require(bytes(quantizer.encode(x, 7)) == first, quantizer, "the same vector and seed give different bytes.")
    room = np.full(quantizer.size(len(x)) + 64, 255, np.uint8)
    _require(bytes(quantizer.encode(x, 7, out=room)) == first, quantizer, "memory that was used before changes the bytes.")
    _require(bytes(quantizer.encode(x, 7, threads=2)) == first, quantizer, "two threads give other bytes than one.")
    decoded, target = quantizer.decode(first), np.full(len(x), 9, np.float32)
    _require(np.array_equal(quantizer.decode(first, out=target), decoded), quantizer, "decode depends on what out held.")
    noisy = quantizer.variance(x) > 0
    same = np.array_equal(quantizer.decode(quantizer.encode(x, 8)), decoded)
    _require(not (noisy and same), quantizer, "another seed rounds alike, although the variance is not zero.")


def _check_simple_vectors(quantizer: Quantizer, x: Floats) -> None:
    zero = quantizer.decode(quantizer.encode(np.zeros(600), 3))
    _require(not zero.any() or quantizer.variance(np.zeros(600)) > 0, quantizer, "the zero vector does not decode to zero.")
    double = quantizer.decode(quantizer.encode(x, 5, gain=2.0))
    same = np.allclose(double, 2 * quantizer.decode(quantizer.encode(x, 5)), rtol=ROUNDING)
    _require(same, quantizer, "gain=2 does not double the decoded vector.")


def _check_moments(quantizer: Quantizer, x: Floats, draws: int) -> float:
    """Unbiased, with the variance of the formula, which is below its bounds; the worst deviation of a mean."""
    errors = np.array([quantizer.decode(quantizer.encode(x, seed)) for seed in range(draws)], dtype=float) - x
    moved = (errors != errors[0]).sum(axis=0)
    often = np.minimum(moved, draws - moved) >= SEEN
    axes = np.column_stack([np.eye(len(x))[:, often], _directions(x)])
    z = _deviations(errors @ axes, ROUNDING * (np.abs(x) @ np.abs(axes)))
    _require(bool(z.max() <= SIGMAS), quantizer, f"biased: a mean over {draws} seeds is {z.max():.1f} standard errors off.")
    _check_variance(quantizer, x, (errors**2).sum(axis=1))
    return float(z.max())


def _directions(x: Floats) -> NDArray[np.float64]:
    """(L, directions) along x, along its signs, all ones, and random signs: sums see what is too rare in one coordinate."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(x), 32))
    return np.column_stack([x.astype(float), np.sign(x), np.ones(len(x)), signs])


def _deviations(values: NDArray[np.float64], rounding: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over rows, in standard errors; an error as large as that of float32 counts as one of these."""
    spread = values.std(axis=0) / np.sqrt(len(values))
    return np.asarray(np.abs(values.mean(axis=0)) / np.maximum(spread, np.maximum(rounding, 1e-30)))


def _check_variance(quantizer: Quantizer, x: Floats, squares: NDArray[np.float64]) -> None:
    stated, length = quantizer.variance(x), float(x.astype(float) @ x)
    allowed = SIGMAS * squares.std() / np.sqrt(len(squares)) + ROUNDING * (stated + length * ROUNDING)
    _require(
        abs(squares.mean() - stated) <= allowed,
        quantizer,
        f"variance(x) is {stated:.6g}, but the mean square error over {len(squares)} seeds is {squares.mean():.6g}.",
    )
    relative = quantizer.variance(x, relative=True)
    _require(
        bool(np.isclose(relative * length, stated, rtol=1e-3)), quantizer, "variance(relative=True) is not variance / |x|^2."
    )
    models: tuple[Model, ...] = ("paper", "qsgd")
    for model in models:
        bound = quantizer.omega(len(x), model)
        ok = relative <= bound * (1 + 1e-4) + 1e-12
        _require(
            ok, quantizer, f"omega({len(x)}, {model!r}) is {bound:.6g}, but a vector has relative variance {relative:.6g}."
        )


def _check_accumulate(quantizer: Quantizer, x: Floats, y: Floats) -> None:
    payloads, start = [quantizer.encode(v, seed) for seed, v in enumerate((x, y))], np.linspace(-1, 1, len(x), dtype=np.float32)
    decoded = [quantizer.decode(payload) for payload in payloads]
    size = float(max(np.abs(vector).max() for vector in [start, *decoded]))
    one = quantizer.accumulate(start.copy(), payloads[0], -0.5)
    _require(np.allclose(one, start - 0.5 * decoded[0], atol=ROUNDING * size), quantizer, "accumulate is not weight * decode.")
    both = quantizer.accumulate(start.copy(), payloads, [2.0, -0.25])
    expected = start + 2.0 * decoded[0] - 0.25 * decoded[1]
    _require(np.allclose(both, expected, atol=4 * ROUNDING * size), quantizer, "accumulate of a list is not the weighted sum.")
    room = start.copy()
    _require(quantizer.accumulate(room, payloads[0], 1.0) is room, quantizer, "accumulate does not return out.")


def _check_refusals(quantizer: Quantizer, x: Floats, rng: np.random.Generator) -> int:
    """Payloads that were cut off or changed anywhere, and vectors that are not finite; how many there were."""
    payload = np.frombuffer(bytes(quantizer.encode(x, 1)), np.uint8)
    broken = {f"cut to {size} bytes": payload[:size] for size in (0, 1, len(payload) // 2, len(payload) - 1)}
    broken["twice over"] = np.concatenate([payload, payload])
    for place in {*range(min(64, len(payload))), *rng.integers(len(payload), size=64).tolist(), len(payload) - 1}:
        broken[f"changed in byte {place}"] = payload.copy()
        broken[f"changed in byte {place}"][place] ^= 1 << int(rng.integers(8))
    for name, changed in broken.items():
        _refuses(quantizer, lambda c=changed: quantizer.decode(c), f"a payload {name} is decoded")  # type: ignore[misc]
    total = np.zeros(len(x), np.float32)
    changed = broken[f"changed in byte {len(payload) - 1}"]
    _refuses(quantizer, lambda: quantizer.accumulate(total, [payload, changed], [1.0, 1.0]), "a broken payload is added")
    _require(not total.any(), quantizer, "a broken payload leaves a part of the sum behind.")
    for value in (np.nan, np.inf, -np.inf):
        wrong = x.copy()
        wrong[len(x) // 2] = value
        _refuses(quantizer, lambda w=wrong: quantizer.encode(w, 0), f"a vector with {value} is encoded")  # type: ignore[misc]
    return len(broken)


def _refuses(quantizer: Quantizer, call: Callable[[], Any], broken: str) -> None:
    try:
        call()
    except Invalid:
        return
    except Exception as error:
        raise BrokenQuantizer(f"{quantizer!r}: {broken}: it must raise Invalid, but raises {error!r}.") from error
    raise BrokenQuantizer(f"{quantizer!r}: {broken}, but must be refused with Invalid.")
