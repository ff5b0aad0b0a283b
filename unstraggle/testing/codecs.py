"""The contract of a codec: `check_codec(codec)` says whether one of your own keeps its promises."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count
from ..doors import door
from ..errors import Invalid, UnstraggleError
from ..quantizers import Codec, Unbiased
from ..quantizers.base import Model, sealed
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


class BrokenCodec(UnstraggleError, AssertionError):
    """A codec does not do what it promises."""


@dataclass(frozen=True)
class CodecReport:
    """What `check_codec` saw: vectors tried, payloads refused, the largest deviation of a mean in standard errors, which is
    None for a codec that does not claim to be unbiased."""

    name: str
    vectors: int
    refused: int
    worst_z: float | None

    def __str__(self) -> str:
        worst = "unbiasedness is not claimed" if self.worst_z is None else f"{self.worst_z:.2f} standard errors"
        return (
            f"{self.name}: keeps its promises\n  vectors                  {self.vectors}\n"
            f"  broken payloads refused  {self.refused}\n  worst deviation          {worst}"
        )


@door
def check_codec(codec: Codec, *, draws: int = 600, rng: Seed = 0) -> CodecReport:
    """Check a codec: sizes, the same bytes for the same seed, also when asked again, accumulate as a weighted sum, and that it
    refuses broken payloads; where it claims to be `Unbiased`, its means and variance over `draws` seeds, and its bounds.

    A codec that is `sealed` must find every change of a payload; no codec may accept one of another size, or let a changed one
    write past the sum. Raises `BrokenCodec` with the first promise that is broken.

    >>> from unstraggle.quantizers import QSGD
    >>> check_codec(QSGD(bits=4), draws=200).worst_z < 5.5
    True
    """
    if not isinstance(codec, Codec):
        missing = [name for name in ("bits", "size", "encode", "check", "accumulate") if not hasattr(codec, name)]
        raise BrokenCodec(f"{codec!r} is no codec: it lacks {', '.join(missing)}.")
    draws = require_count("check_codec", "draws", draws, 100, 10**7, "Its tests of means need some.")
    random = generator(rng)
    vectors = list(_vectors(random))
    _check_determinism(codec, vectors[0], vectors[1])
    _check_sizes(codec, random)
    worst = _check_unbiased(codec, vectors, draws) if isinstance(codec, Unbiased) else None
    _check_accumulate(codec, vectors[0], vectors[1])
    return CodecReport(repr(codec), len(vectors), _check_refusals(codec, vectors[0], random), worst)


def _vectors(rng: np.random.Generator) -> Iterator[Floats]:
    """Dense, heavy-tailed, mostly zero, and of one sign; longer than a block of 512 coordinates."""
    yield rng.standard_normal(700).astype(np.float32)
    yield rng.standard_t(2, 700).astype(np.float32)
    yield np.where(rng.random(700) < 0.05, rng.standard_normal(700), 0).astype(np.float32)
    yield (1e-3 + 1e-2 * rng.random(700)).astype(np.float32)


def _encoded(codec: Codec, x: Floats, seed: int) -> bytes:
    """The payload that a codec without memories makes."""
    return bytes(deepcopy(codec).encode(x, seed))


def _decoded(codec: Codec, payload: bytes, length: int) -> Floats:
    """The vector of a payload."""
    return codec.accumulate(np.zeros(length, np.float32), [codec.check(payload, length)], [1.0])


def _require(promise: bool, codec: Codec, broken: str) -> None:
    if not promise:
        raise BrokenCodec(f"{codec!r}: {broken}")


def _check_sizes(codec: Codec, rng: np.random.Generator) -> None:
    _require(codec.bits >= 1, codec, f"bits is {codec.bits}, but a coordinate takes at least 1.")
    for length in LENGTHS:
        x = rng.standard_normal(length).astype(np.float32)
        payload, size = _encoded(codec, x, 0), codec.size(length)
        _require(len(payload) == size, codec, f"size({length}) is {size}, but the payload has {len(payload)} bytes.")
        found = np.full(length + 2, 3, np.float32)
        codec.accumulate(found[1:-1], [codec.check(payload, length)], [1.0])
        _require(bool((found[[0, -1]] == 3).all()), codec, f"accumulate writes past the {length} coordinates of out.")


def _check_determinism(codec: Codec, x: Floats, y: Floats) -> None:
    before, first = x.copy(), _encoded(codec, x, 7)
    _require(np.array_equal(x, before), codec, "encode changes the vector that it is given.")
    _require(_encoded(codec, x, 7) == first, codec, "the same vector and seed give different bytes.")
    _require(_encoded(_sent(codec), x, 7) == first, codec, "a copy by pickle, as a worker gets it, gives different bytes.")
    once, twice = deepcopy(codec), deepcopy(codec)
    asked = [bytes(once.encode(y, 1)), bytes(twice.encode(y, 1)), bytes(twice.encode(y, 1))]
    _require(len(set(asked)) == 1, codec, "a codec that is asked again for the same vector and seed gives different bytes.")
    _require(bytes(once.encode(x, 2)) == bytes(twice.encode(x, 2)), codec, "what it is asked for again, it remembers twice.")


def _sent(codec: Codec) -> Codec:
    """The codec as it comes to a worker."""
    try:
        return pickle.loads(pickle.dumps(codec))  # type: ignore[no-any-return]
    except Exception as error:
        raise BrokenCodec(
            f"{codec!r}: it cannot be pickled: {error}. Define its class in a module, not in a function."
        ) from error


def _check_unbiased(codec: Unbiased, vectors: list[Floats], draws: int) -> float:
    zeros = np.zeros(600, np.float32)
    found = _decoded(codec, _encoded(codec, zeros, 3), 600)
    _require(not found.any() or codec.variance(zeros) > 0, codec, "the zero vector does not decode to zero.")
    return max(_check_moments(codec, x, draws) for x in vectors)


def _check_moments(codec: Unbiased, x: Floats, draws: int) -> float:
    """Unbiased, with the variance of the formula, which is below its bounds; the worst deviation of a mean."""
    decoded = [_decoded(codec, _encoded(codec, x, seed), len(x)) for seed in range(draws)]
    same = all(np.array_equal(each, decoded[0]) for each in decoded)
    _require(not (same and codec.variance(x) > 0), codec, "another seed rounds alike, although the variance is not zero.")
    errors = np.array(decoded, dtype=float) - x
    moved = (errors != errors[0]).sum(axis=0)
    often = np.minimum(moved, draws - moved) >= SEEN
    axes = np.column_stack([np.eye(len(x))[:, often], _directions(x)])
    z = _deviations(errors @ axes, ROUNDING * (np.abs(x) @ np.abs(axes)))
    _require(bool(z.max() <= SIGMAS), codec, f"biased: a mean over {draws} seeds is {z.max():.1f} standard errors off.")
    _check_variance(codec, x, (errors**2).sum(axis=1))
    return float(z.max())


def _directions(x: Floats) -> NDArray[np.float64]:
    """(L, directions) along x, along its signs, all ones, and random signs: sums see what is too rare in one coordinate."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(x), 32))
    return np.column_stack([x.astype(float), np.sign(x), np.ones(len(x)), signs])


def _deviations(values: NDArray[np.float64], rounding: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over rows, in standard errors; an error as large as that of float32 counts as one of these."""
    spread = values.std(axis=0) / np.sqrt(len(values))
    return np.asarray(np.abs(values.mean(axis=0)) / np.maximum(spread, np.maximum(rounding, 1e-30)))


def _check_variance(codec: Unbiased, x: Floats, squares: NDArray[np.float64]) -> None:
    stated, length = codec.variance(x), float(x.astype(float) @ x)
    allowed = SIGMAS * squares.std() / np.sqrt(len(squares)) + ROUNDING * (stated + length * ROUNDING)
    _require(
        abs(squares.mean() - stated) <= allowed,
        codec,
        f"variance(x) is {stated:.6g}, but the mean square error over {len(squares)} seeds is {squares.mean():.6g}.",
    )
    relative = codec.variance(x, relative=True)
    _require(bool(np.isclose(relative * length, stated, rtol=1e-3)), codec, "variance(relative=True) is not variance / |x|^2.")
    models: tuple[Model, ...] = ("paper", "qsgd")
    for model in models:
        bound = codec.omega(len(x), model)
        ok = relative <= bound * (1 + 1e-4) + 1e-12
        _require(ok, codec, f"omega({len(x)}, {model!r}) is {bound:.6g}, but a vector has relative variance {relative:.6g}.")


def _check_accumulate(codec: Codec, x: Floats, y: Floats) -> None:
    payloads, start = [_encoded(codec, v, seed) for seed, v in enumerate((x, y))], np.linspace(-1, 1, len(x), dtype=np.float32)
    decoded = [_decoded(codec, payload, len(x)) for payload in payloads]
    found = [codec.check(payload, len(x)) for payload in payloads]
    size = float(max(np.abs(vector).max() for vector in [start, *decoded]))
    both = codec.accumulate(start.copy(), found, [2.0, -0.25])
    expected = start + 2.0 * decoded[0] - 0.25 * decoded[1]
    _require(np.allclose(both, expected, atol=4 * ROUNDING * size), codec, "accumulate is not the weighted sum.")
    again = codec.accumulate(start.copy(), found, [2.0, -0.25])
    _require(both.tobytes() == again.tobytes(), codec, "the same payloads and weights add up to different bits.")
    room = start.copy()
    _require(codec.accumulate(room, found[:1], [1.0]) is room, codec, "accumulate does not return out.")


def _check_refusals(codec: Codec, x: Floats, rng: np.random.Generator) -> int:
    """Payloads of another length, cut off, rotated or changed, and vectors that are not finite; how many were refused."""
    payload = np.frombuffer(_encoded(codec, x, 1), np.uint8)
    broken = dict([*_resized(codec, payload, x), *_changed(payload, rng)])
    must = {name for name, each in broken.items() if sealed(codec) or len(each) != len(payload)}
    for name, each in broken.items():
        if name in must:
            _refuses(codec, lambda each=each: codec.check(each, len(x)), f"a payload {name} is accepted")  # type: ignore[misc]
        else:
            _survives(codec, each, len(x), name)
    for value in (np.nan, np.inf, -np.inf) if sealed(codec) else ():
        wild = x.copy()
        wild[len(x) // 2] = value
        _refuses(codec, lambda w=wild: _encoded(codec, w, 0), f"a vector with {value} is encoded")  # type: ignore[misc]
    return len(must)


def _resized(codec: Codec, payload: NDArray[np.uint8], x: Floats) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    for size in (0, 1, len(payload) // 2, len(payload) - 1):
        yield f"cut to {size} bytes", payload[:size]
    yield "twice over", np.concatenate([payload, payload])
    for length in (0, 1, len(x) // 2, 2 * len(x)):
        yield f"of {length} coordinates", np.frombuffer(_encoded(codec, np.resize(x, length), 1), np.uint8)


def _changed(payload: NDArray[np.uint8], rng: np.random.Generator) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    for by in (1, 4, 64):
        if not np.array_equal(payload, rotated := np.roll(payload, by)):
            yield f"rotated by {by} bytes", rotated
    for place in {*range(min(64, len(payload))), *rng.integers(len(payload), size=64).tolist(), len(payload) - 1}:
        other = payload.copy()
        other[place] ^= 1 << int(rng.integers(8))
        yield f"changed in byte {place}", other


def _survives(codec: Codec, payload: NDArray[np.uint8], length: int, name: str) -> None:
    """A codec without a seal may take a changed payload, which a frame would have refused, but stays within the sum."""
    room = np.full(length + 2, 3, np.float32)
    try:
        with np.errstate(all="ignore"):
            codec.accumulate(room[1:-1], [codec.check(payload, length)], [1.0])
    except Invalid:
        return
    except Exception as error:
        raise BrokenCodec(
            f"{codec!r}: a payload {name} must be refused with Invalid or added, but raises {error!r}."
        ) from error
    _require(bool((room[[0, -1]] == 3).all()), codec, f"a payload {name} is written past out.")


def _refuses(codec: Codec, call: Callable[[], Any], broken: str) -> None:
    try:
        call()
    except Invalid:
        return
    except Exception as error:
        raise BrokenCodec(f"{codec!r}: {broken}: it must raise Invalid, but raises {error!r}.") from error
    raise BrokenCodec(f"{codec!r}: {broken}, but must be refused with Invalid.")
