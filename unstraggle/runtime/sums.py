"""Linear combinations of long vectors, in one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..threads import cores, pool

FEW = 8
"""Coordinates that are added up sooner than NumPy begins."""

SHORT = 1 << 14
"""Coordinates below which NumPy is as good as a kernel, which takes a second to load."""

PIECE = 1 << 17
"""Coordinates that are summed at a time."""

LONG = 1 << 20
"""Coordinates from which on two threads share the work: while the last messages are added, workers are idle."""


def weighted_sum(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool = True
) -> NDArray[Any]:
    """out = sum of weights[i] * vectors[i], its real part, or += if not fresh; added up in float64, whatever the types.

    >>> weighted_sum(np.empty(2), [2.0, -1.0], [np.array([1.0, 2.0]), np.array([0.5, 0.5])])
    array([1.5, 3.5])
    """
    if _by_kernels(out, vectors):
        _by_threads(out, weights, vectors, fresh, 1.0)
    else:
        _by_numpy(out, weights, vectors, fresh, 1.0)
    return out


def settled_sum(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool = True, factor: float = 1.0
) -> bool:
    """The same, all of it times a factor, in the same pass. Gives whether every number of it is finite.

    >>> out = np.ones(2)
    >>> settled_sum(out, [2.0], [np.array([1.0, np.inf])], fresh=False, factor=0.5), out
    (False, array([1.5, inf]))
    """
    if len(out) <= FEW and _by_hand(out, weights, vectors, fresh, factor):
        return True
    if _by_kernels(out, vectors):
        return _by_threads(out, weights, vectors, fresh, factor)
    _by_numpy(out, weights, vectors, fresh, factor)
    return finite(out)


def copied(vectors: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> bool:
    """Copy vectors, each a pair (to, from) of one type, in one pass. Gives whether every number is finite.

    >>> out = np.zeros(2)
    >>> copied([(out[:1], np.ones(1)), (out[1:], np.array([np.nan]))]), out
    (False, array([ 1., nan]))
    """
    if sum(len(out) for out, _ in vectors) >= SHORT:
        fine = [_by_threads(out, [1.0], [values], True, 1.0) for out, values in vectors]
        return all(fine)
    for out, values in vectors:
        np.copyto(out, values)
    return all(finite(values) for _, values in vectors)


def finite(values: Any) -> bool:
    """Whether no number is NaN or infinite, of an array or a tensor. The sum alone is quick, and finite as a rule.

    >>> finite(np.ones(2)), finite(np.array([1.0, np.nan])), finite(np.full(2, 1e308))
    (True, False, True)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(values.sum())):
            return True
    return bool(np.isfinite(values).all() if isinstance(values, np.ndarray) else values.isfinite().all())


def _by_hand(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool, factor: float
) -> bool:
    """The same where all is real and finite; else nothing is written, and False."""
    total = [0.0] * len(out) if fresh else out.tolist()
    for weight, vector in zip(weights, vectors, strict=True):
        total = [so_far + weight * number for so_far, number in zip(total, vector.tolist(), strict=True)]
    settled, limit = [factor * number for number in total], float(np.finfo(out.dtype).max)
    if any(isinstance(number, complex) or not abs(number) <= limit for number in settled):
        return False
    out[:] = settled
    return True


def _by_numpy(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool, factor: float
) -> None:
    total = np.zeros(len(out)) if fresh else out.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for weight, vector in zip(weights, vectors, strict=True):
            total += (weight * vector.astype(_wide(vector.dtype), copy=False)).real
        out[:] = total if factor == 1 else factor * total


@cache
def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which numbers are added up."""
    return np.result_type(dtype, np.float64)


def _by_kernels(out: NDArray[Any], vectors: Sequence[NDArray[Any]]) -> bool:
    """Whether kernels can do it: of real vectors, which are all they take, the real part of a weight is what counts."""
    return len(out) >= SHORT and _alike(vectors)


def _by_threads(
    out: NDArray[Any], numbers: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool, factor: float
) -> bool:
    """One pass, by two threads where it is long. Up to four vectors at once, else piece by piece of the sum."""
    weights = [float(number.real) for number in numbers]
    run: Callable[..., bool] = _blended if len(vectors) <= 4 else _in_pieces
    if len(out) < LONG or cores() == 1:
        return run(out, weights, vectors, fresh, factor)
    halves = slice(0, len(out) // 2), slice(len(out) // 2, len(out))
    cut = [(out[half], weights, [vector[half] for vector in vectors], fresh, factor) for half in halves]
    return all(list(pool(2).map(lambda these: run(*these), cut)))


def _blended(out: NDArray[Any], weights: list[float], vectors: Sequence[NDArray[Any]], fresh: bool, factor: float) -> bool:
    kernel = _kernels().BLENDS[len(vectors) - 1]
    return not kernel(out, fresh, np.finfo(out.dtype).max, factor, *vectors, *weights)


def _in_pieces(out: NDArray[Any], weights: list[float], vectors: Sequence[NDArray[Any]], fresh: bool, factor: float) -> bool:
    """Each piece of the sum stays in cache while vectors are added to it."""
    kernels, limit, fine = _kernels(), np.finfo(out.dtype).max, True
    room = np.empty(PIECE)
    for start in range(0, len(out), PIECE):
        target = out[start : start + PIECE]
        total, parts = room[: len(target)], [vector[start : start + PIECE] for vector in vectors]
        total[:] = 0.0 if fresh else target
        for at in range(0, len(parts) - 3, 4):
            kernels.add_four(total, *parts[at : at + 4], *weights[at : at + 4])
        for at in range(len(parts) // 4 * 4, len(parts)):
            kernels.add_one(total, parts[at], weights[at])
        fine &= not kernels.settle_room(target, limit, factor, total)
    return fine


def _alike(vectors: Sequence[NDArray[Any]]) -> bool:
    """Whether there are vectors, all of one type that the kernel takes."""
    types = {vector.dtype for vector in vectors}
    return len(types) == 1 and types <= {np.dtype("f4"), np.dtype("f8")} and all(v.flags.c_contiguous for v in vectors)


@cache
def _kernels() -> Any:
    from . import sums_kernel

    return sums_kernel
