"""Vectors to payloads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..errors import Invalid
from . import cpu
from .layout import Format, Kind
from .wire import on_cuda, on_device, steps_of, write_header

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


def as_vector(x: Any) -> Floats:
    """(L,) float32, contiguous; a view where x is that already."""
    array = np.asarray(x)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise Invalid(
            f"A quantizer encodes a vector of real numbers, but got shape {array.shape} of {array.dtype}. "
            "Use x.ravel(), and x.view of the real type for complex numbers."
        )
    with np.errstate(over="ignore"):  # becomes infinite, and is refused as such
        return np.ascontiguousarray(array, np.float32)


def encode(format: Format, x: ArrayLike, seed: int, out: Bytes | None, gain: float, threads: int) -> Bytes:
    """The payload of a vector in a given format; of a CUDA tensor, on its device."""
    seed = require_count("encode", "seed", seed, 0, 2**64 - 1, "Give the number of the round and of the message, mixed.")
    threads = require_count("encode", "threads", threads, 1, 4096, "One thread is enough up to a million coordinates.")
    if not 0 < gain < np.inf:
        raise Invalid(f"encode needs a positive finite gain, but got gain={gain!r}. Use weights in accumulate for the others.")
    if on_device(x):
        there: Bytes = on_cuda().encode(format, x, seed, out, gain)
        return there
    vector = as_vector(x)
    buffer = _room(out, format.size(len(vector)))
    words = buffer[format.start(len(vector)) :]
    if format.kind is Kind.IDENTITY:
        checksum = _copy(format, vector, seed, words, gain, threads)
    else:
        checksum = _quantise(format, vector, seed, buffer, words, gain, threads)
    write_header(buffer, format, len(vector), seed, checksum)
    return buffer


def _room(out: Bytes | None, size: int) -> Bytes:
    if out is None:
        return cpu.aligned(size)
    if out.dtype != np.uint8 or out.ndim != 1 or not (out.flags.c_contiguous and out.flags.writeable) or len(out) < size:
        raise Invalid(f"encode needs out= as {size} writable bytes or more, but got {out.dtype}{out.shape}. Ask size(length).")
    return out[:size]


def _quantise(format: Format, x: Floats, seed: int, buffer: Bytes, words: Bytes, gain: float, threads: int) -> int:
    place = steps_of(buffer, format, len(x))
    steps = place if place.flags.aligned else np.empty(len(place), np.float32)
    steps[:] = 0
    checksum = cpu.quantise(format, x, seed, steps, words, threads) if len(x) else 0
    with np.errstate(over="ignore"):
        steps *= np.float32(gain)
        largest = steps.max(initial=0) * np.float32(format.levels)
    if checksum is None or not np.isfinite(largest):
        _refuse(x, largest)
    if steps is not place:
        place[:] = steps
    return checksum or 0


def _copy(format: Format, x: Floats, seed: int, words: Bytes, gain: float, threads: int) -> int:
    if len(x) and not (np.isfinite(x.min()) and np.isfinite(x.max())):
        _refuse(x, x.max())
    np.multiply(x, np.float32(gain), out=words.view("<f4"))
    return cpu.checksum(words, format.bits, cpu.key_of(seed), threads)


def _refuse(x: Floats, norm: np.float32) -> None:
    broken = np.flatnonzero(~np.isfinite(x))
    if len(broken):
        raise Invalid(f"A quantizer needs finite coordinates, but got x[{broken[0]}]={x[broken[0]]}. Skip the step, or clip x.")
    raise Invalid(f"A quantizer needs norms within float32, but got {norm}. Divide x by a power of two.")
