"""Linear combinations of long vectors, in one pass over memory, beside which Python may go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FEW = 8
"""Coordinates that are added up sooner than NumPy begins."""

SHORT = 1 << 14
"""Coordinates below which NumPy is as good as a kernel, which takes a second to load, and a few to be compiled once."""

KINDS = "<f4", "<f8"
"""Types of numbers that kernels take."""

ALONE: list[complex] = [1.0]
"""Weights of a sum that is a copy."""


class Sum(NamedTuple):
    """out = sum of weights[i] * vectors[i], and out as it was if not fresh; its real part, added up in float64.

    From coordinate `head` on it is multiplied by a factor; that is divided by the sum at coordinate `under`, unless that is -1.
    """

    out: NDArray[Any]
    weights: Sequence[complex]
    vectors: Sequence[NDArray[Any]]
    fresh: bool = True
    factor: float = 1.0
    head: int = 0
    under: int = -1


class Pass:
    """A pass over memory, which may still go on. rest: does what is left of it, and tells whether its numbers are finite. held:
    what must be there until then."""

    def __init__(self, fine: bool, rest: Callable[[], bool] | None = None, held: Any = None) -> None:
        self._fine, self._rest, self._held = fine, rest, held

    def fine(self) -> bool:
        """Wait until it is done; whether all numbers are finite."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._fine = rest() and self._fine
            self._held = None
        return self._fine

    def __del__(self) -> None:
        """Nobody has asked, but it must be over before its memory goes."""
        self.fine()


class Sums:
    """Sums that are begun together, the long ones in one pass; what is looked up for that serves as often as they are.

    hold: whether their vectors are to be kept; else whoever begins them has to.
    """

    def __init__(self, sums: Sequence[Sum], hold: bool = True) -> None:
        alike = [_alike(one, sums[0].out.dtype) for one in sums]
        long = sum(len(one.out) for one in compress(sums, alike)) >= SHORT
        self.short = [one for one, fits in zip(sums, alike, strict=True) if not fits or not long]
        self._long = _mate().Table(list(compress(sums, alike))) if long else None
        self._held = sums if hold else None

    def begin(self) -> Pass:
        """Vectors, and what is made of them, must stay as they are until the pass is `fine`."""
        rest = None if self._long is None else _mate().begin(self._long)
        at_once = [_at_once(one) for one in self.short]  # all of them
        return Pass(all(at_once), rest, self._held)


def weighted_sum(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool = True
) -> NDArray[Any]:
    """out = sum of weights[i] * vectors[i], its real part, or += if not fresh; added up in float64, whatever the types.

    >>> weighted_sum(np.empty(2), [2.0, -1.0], [np.array([1.0, 2.0]), np.array([0.5, 0.5])])
    array([1.5, 3.5])
    """
    settled_sum(out, weights, vectors, fresh)
    return out


def settled_sum(
    out: NDArray[Any], weights: Sequence[complex], vectors: Sequence[NDArray[Any]], fresh: bool = True, factor: float = 1.0
) -> bool:
    """The same, all of it times a factor, in the same pass. Gives whether every number of it is finite.

    >>> out = np.ones(2)
    >>> settled_sum(out, [2.0], [np.array([1.0, np.inf])], fresh=False, factor=0.5), out
    (False, array([1.5, inf]))
    """
    one = Sum(out, weights, vectors, fresh, factor)
    return _at_once(one) if len(out) < SHORT else Sums([one]).begin().fine()


def copies(vectors: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Sums:
    """Copies of vectors, each a pair (to, from) of one type.

    >>> out = np.zeros(2)
    >>> copies([(out[:1], np.ones(1)), (out[1:], np.array([np.nan]))]).begin().fine(), out
    (False, array([ 1., nan]))
    """
    return Sums([Sum(to, ALONE, [values]) for to, values in vectors])


def address(vector: NDArray[Any]) -> int:
    """Where the numbers of a vector begin."""
    return int(vector.__array_interface__["data"][0])


def finite(values: Any) -> bool:
    """Whether no number is NaN or infinite, of an array or a tensor. The sum alone is quick, and finite as a rule.

    >>> finite(np.ones(2)), finite(np.array([1.0, np.nan])), finite(np.full(2, 1e308))
    (True, False, True)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(values.sum())):
            return True
    return bool(np.isfinite(values).all() if isinstance(values, np.ndarray) else values.isfinite().all())


def _at_once(one: Sum) -> bool:
    """Make a short sum; whether it is finite."""
    if len(one.out) <= FEW and _by_hand(one):
        return True
    _by_numpy(one)
    return finite(one.out)


def _by_hand(one: Sum) -> bool:
    """The same where all is real and finite; else nothing is written, and False."""
    out, factor, limit = one.out, one.factor, float(np.finfo(one.out.dtype).max)
    total = [0.0] * len(out) if one.fresh else out.tolist()
    for weight, vector in zip(one.weights, one.vectors, strict=True):
        total = [so_far + weight * number for so_far, number in zip(total, vector.tolist(), strict=True)]
    if one.under >= 0:
        if not abs(total[one.under]) <= limit or not (below := float(out.dtype.type(total[one.under]))):
            return False
        factor /= below
    settled = [*total[: one.head], *(factor * number for number in total[one.head :])]
    if any(isinstance(number, complex) or not abs(number) <= limit for number in settled):
        return False
    out[:] = settled
    return True


def _by_numpy(one: Sum) -> None:
    out, factor = one.out, one.factor
    if one.fresh and one.weights is ALONE:
        out[:] = one.vectors[0]
        return
    total = np.zeros(len(out)) if one.fresh else out.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for weight, vector in zip(one.weights, one.vectors, strict=True):
            total += (weight * vector.astype(_wide(vector.dtype), copy=False)).real
        total[one.head :] *= factor if one.under < 0 else factor / np.float64(out.dtype.type(total[one.under]))
        out[:] = total


@cache
def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which numbers are added up."""
    return np.result_type(dtype, np.float64)


def _alike(one: Sum, kind: np.dtype[Any]) -> bool:
    """Whether kernels can make a sum: all of one type, of which the real part of a weight is what counts."""
    every = one.out, *one.vectors
    fit = kind.str in KINDS and one.out.flags.aligned and all(v.dtype == kind and v.flags.c_contiguous for v in every)
    return fit and len(every) > 1


@cache
def _mate() -> Any:
    from . import mate

    return mate
