"""Payloads to vectors, and to sums of vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..doors import door
from ..errors import Invalid
from . import cpu
from .layout import Kind, blocks_of
from .wire import Payload, on_cuda, on_device, read

Floats = NDArray[np.float32]

MIXED_CHUNK = 1 << 7
"""Blocks of the sum that stay in cache while messages of several formats are added to them."""


@door
def decode(payload: Any, *, out: Floats | None = None, threads: int = 1) -> Floats:
    """The vector of any payload, whichever quantiser made it.

    >>> from unstraggle.quantizers import QSGD
    >>> decode(QSGD(bits=8).encode([0.0, 2.0, 0.0], seed=1))
    array([0., 2., 0.], dtype=float32)
    """
    found = read(payload, threads)
    if on_device(out) or on_device(found.buffer):
        there: Floats = on_cuda().decode(found, out)
        return there
    target = np.empty(found.length, np.float32) if out is None else _target(out, found.length)
    _add([found], np.ones(1), target, True, threads)
    return target


@door
def accumulate(out: Floats, payloads: Any, weights: ArrayLike, *, threads: int = 1) -> Floats:
    """out += weight * decode(payload); with lists, the sum of that in one pass over out. Payloads may differ in kind and bits.

    All payloads are checked before out is touched. Messages are added in the given order, in float32.

    >>> from unstraggle.quantizers import Identity
    >>> accumulate(np.ones(2, np.float32), Identity().encode([1.0, -2.0], seed=0), 0.5)
    array([1.5, 0. ], dtype=float32)
    """
    found = [read(payload, threads) for payload in as_list(payloads, weights)]
    factors = np.atleast_1d(weights)
    if factors.shape != (len(found),) or factors.dtype.kind not in "fiu" or not np.isfinite(factors).all():
        raise Invalid(
            f"accumulate needs a finite real weight for each of the {len(found)} payloads, but got {weights!r}. "
            "Encode real and imaginary parts as one vector for complex weights."
        )
    if on_device(out) or any(on_device(payload.buffer) for payload in found):
        there: Floats = on_cuda().accumulate(out, found, factors.astype(np.float64))
        return there
    for payload in found:
        _target(out, payload.length)
    _add(found, factors.astype(np.float64), out, False, threads)
    return out


def as_list(payloads: Any, weights: ArrayLike) -> list[Any]:
    """The payloads; one, where there is one number for it."""
    if np.ndim(weights) == 0:
        return [payloads]
    if isinstance(payloads, type) or not isinstance(payloads, Iterable):
        raise Invalid(f"accumulate needs a list of payloads for a list of weights, but got {type(payloads).__name__}.")
    return list(payloads)


def _target(out: Floats, length: int) -> Floats:
    if out.dtype != np.float32 or out.shape != (length,) or not (out.flags.c_contiguous and out.flags.writeable):
        raise Invalid(
            f"A payload of {length} coordinates needs out= as a writable contiguous float32 vector of this length, "
            f"but got {out.dtype}{out.shape}. Use numpy.empty({length}, numpy.float32)."
        )
    return out


def _add(found: list[Payload], weights: NDArray[np.float64], out: Floats, fresh: bool, threads: int) -> None:
    """Messages of one format go through one kernel; where there are several formats, in pieces of out that stay in cache."""
    if not found or not len(out):
        return
    groups = list(_runs(found))
    ends = np.cumsum([len(group) for group in groups])
    runs = [_messages(group, part) for group, part in zip(groups, np.split(weights, ends[:-1]), strict=True)]
    step = blocks_of(len(out)) if len(runs) == 1 else MIXED_CHUNK

    def work(first: int, last: int) -> None:
        for at in range(first, last, step):
            for run in runs:
                run.add(out, fresh, at, min(at + step, last))

    cpu.spread(work, blocks_of(len(out)), threads)


def _runs(found: list[Payload]) -> Iterator[list[Payload]]:
    """Neighbours of one format, in order."""
    start = 0
    for at in range(1, len(found) + 1):
        if at == len(found) or found[at].format != found[start].format:
            yield found[start:at]
            start = at


def _messages(found: list[Payload], weights: NDArray[np.float64]) -> cpu.Messages:
    """Payloads of one format, ready to be added."""
    format, one = found[0].format, np.ones(1, np.float32)
    steps = np.stack([one if format.kind is Kind.IDENTITY else payload.steps for payload in found], axis=1)
    with np.errstate(over="ignore"):
        factors = (steps * weights).astype(np.float32)
    if not np.isfinite(factors).all():
        raise Invalid(f"accumulate needs weights times norms within float32, but got {weights.tolist()}. Scale them down.")
    return cpu.Messages(format, [payload.words for payload in found], factors)
