"""Which messages to fetch: of those that could be had, the ones that the decoder will use, and as few copies as possible."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .code import Code
from .decoders import TOLERANCE, Approximates, Decoder, LeastSquares, Part, decode, known_weights, parts_of

NEGLIGIBLE = 1e-12
"""A weight that is smaller than this fraction of the largest one is zero but for rounding."""

Flags = NDArray[np.bool_]


def to_fetch(code: Code, could: Flags, when: NDArray[np.float64], eps: float = 0.0, apart: bool = False) -> Flags:
    """(R, M) of the messages that could be had, those to ask for; when: (R, M) since when, of copies the first is taken.

    Where weights are known in advance, or the gradient will be exact: one copy of each message, and only those to which the
    decoder gives a weight. Else all: each brings an approximation closer. eps: relative error of the numbers in messages.
    apart: the parts of the code one by one, whatever there is of the others.

    >>> from unstraggle.codes import fractional_repetition
    >>> could, when = np.array([[True, True, False, True]]), np.array([[2.0, 1.0, np.inf, 3.0]])
    >>> to_fetch(fractional_repetition(4, s=1), could, when).tolist()
    [[False, True, False, True]]
    """
    some, sure = first_copies(code, could, when), sure_of(code)
    if sure is not None or not len(some):
        return some if sure is None else some & (sure >= 0)
    chosen = np.zeros(could.shape, dtype=bool)
    for own, decoder in parts_of(code.decoder) if apart else (Part(np.arange(could.shape[1]), code.decoder),):
        chosen[:, own] = _chosen(decoder, some[:, own], could[:, own], eps)
    return chosen


def _chosen(decoder: Decoder, some: Flags, could: Flags, eps: float) -> Flags:
    """(R, M) of the messages of a decoder those to ask for; some: without copies. It is asked once for sets that are equal."""
    _, first, place = np.unique(np.packbits(some, axis=1), axis=0, return_index=True, return_inverse=True)
    found = [_used(decoder, row, eps) for row in some[first]]
    chosen = np.array([could[at] if row is None else row for row, at in zip(found, first, strict=True)])[place.ravel()]
    enough = np.array([row is not None for row in found])[place.ravel()]
    return np.where(enough[:, None], chosen, could)


@lru_cache(maxsize=64)
def sure_of(code: Code) -> NDArray[np.int64] | None:
    """(M,) where weights are known in advance, so that the first copy of each message is sure to be used: equal for copies, -1
    for messages without a weight. None where what is used depends on what else arrives."""
    known = known_weights(code.decoder)
    return None if known is None else np.where((known[0] != 0).any(axis=0), known[1], -1)


def _used(decoder: Decoder, row: Flags, eps: float) -> Flags | None:
    """(M,) those with a weight; None where the gradient is not exact."""
    if not isinstance(decoder, Approximates) and float(decoder.residual(row)) > TOLERANCE:
        return None
    found = decode(decoder, row)
    if not found.exact(eps):
        return None
    sizes = np.abs(found.weights).max(axis=0)
    used = row & (sizes > NEGLIGIBLE * sizes.max(initial=0.0))
    return used if (used == row).all() or decode(decoder, used).exact(eps) else row


def first_copies(code: Code, could: Flags, when: NDArray[np.float64]) -> Flags:
    """(R, M) of equal messages that could be had only the first, of those that came together the one with the least number."""
    table = _copies(code)
    if table.shape[1] == 1:
        return could
    times = np.full((len(could), could.shape[1] + 1), np.inf)
    times[:, :-1] = np.where(could, when, np.inf)
    first = np.take_along_axis(table[None], times[:, table].argmin(axis=2)[:, :, None], axis=2)[:, :, 0]
    some = np.zeros(times.shape, dtype=bool)
    np.put_along_axis(some, first, True, axis=1)
    return some[:, :-1] & could


@lru_cache(maxsize=64)
def _copies(code: Code) -> NDArray[np.int64]:
    """(ids, most copies) the messages with equal coefficients, padded with M; a decoder of one's own may tell them apart."""
    groups: list[NDArray[np.int64]] = []
    for messages, part in parts_of(code.decoder):
        ids = part.ids if isinstance(part, LeastSquares) else np.arange(len(messages))
        groups += [messages[ids == each] for each in np.unique(ids)]
    table = np.full((len(groups), max(map(len, groups), default=1)), code.decoder.size)
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    return table
