"""Compiled kernels: recovery times of many rounds at once. `Need.time` and `SpanProgress` are the plain forms they must equal.

Rule: rounds are taken LANES at a time and turned so that a lane is a round. Every gate is then a column-wise minimum, maximum
or selection without branches between rounds, which the compiler turns into vector instructions.
Span: rounds one by one, arrivals in order, a Gram-Schmidt basis that grows until it holds the target.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .code import Code
from .decoders import RANK, TOLERANCE, LeastSquares, is_exact, parts_of
from .recovery import Sending

LANES = 64
SPAN_BYTES = 1 << 22


class Gates(NamedTuple):
    """The rules of all parts of a code as one list of gates; `limit[m]` is the gate that ends the sending of message m."""

    counts: NDArray[np.int64]
    start: NDArray[np.int64]
    children: NDArray[np.int64]
    limit: NDArray[np.int64]


@lru_cache(maxsize=64)
def gates(code: Code, sending: Sending = "all") -> Gates:
    """Flatten the rules of a code. The last gate is the end of the round; before it stand those that let workers go early."""
    size, parts = code.decoder.size, parts_of(code.decoder)
    rules = [part.decoder.rule.renumber(part.messages) for part in parts if part.decoder.rule]
    counts, children = _join([rule.flat(size) for rule in rules], size)
    roots = [size + end - 1 for end in np.cumsum([len(rule.flat(size).counts) for rule in rules]).tolist()]
    limit = np.full(size, size + len(counts))
    if sending == "cluster_stop":
        limit = _releases(code, roots, counts, children)
    counts.append(len(roots))
    children.append(roots)
    start = np.cumsum([0] + [len(c) for c in children])
    return Gates(np.array(counts), start, np.array([c for row in children for c in row]), limit)


def _join(flats: list[Any], size: int) -> tuple[list[int], list[list[int]]]:
    """Put flattened trees one after the other; gates of later trees get higher numbers."""
    counts: list[int] = []
    children: list[list[int]] = []
    for flat in flats:
        moved = np.where(flat.children >= size, flat.children + len(counts), flat.children)
        children += [c.tolist() for c in np.split(moved, flat.start[1:-1])]
        counts += flat.counts.tolist()
    return counts, children


def _releases(code: Code, roots: list[int], counts: list[int], children: list[list[int]]) -> NDArray[np.int64]:
    """Append a gate for every set of parts that some worker serves: when all are recovered, it stops sending."""
    serves = served_parts(code)
    known: dict[tuple[int, ...], int] = {}
    for parts in serves:
        if parts not in known:
            known[parts] = code.decoder.size + len(counts)
            counts.append(len(parts))
            children.append([roots[p] for p in parts])
    return np.array([known[serves[w]] for w in code.messages.worker])


def served_parts(code: Code) -> list[tuple[int, ...]]:
    """For each worker the parts that its messages belong to; all parts for a worker that sends nothing."""
    part = np.empty(code.decoder.size, dtype=np.int64)
    for number, piece in enumerate(parts_of(code.decoder)):
        part[piece.messages] = number
    pairs = np.unique(np.stack([code.messages.worker, part]), axis=1)
    groups = np.split(pairs[1], np.searchsorted(pairs[0], np.arange(1, code.n)))
    return [tuple(group.tolist()) or tuple(range(len(parts_of(code.decoder)))) for group in groups]


def rule_rounds(code: Code, values: NDArray[np.float64], sending: Sending = "all", speeds: bool = False) -> Any:
    """Ends (R,) and messages sent (R,) of rounds by rule.

    values: (R, M) arrival times, or with speeds=True (R, n) seconds per unit of work, message m arriving at ready[m] * speed.
    """
    table, columns = gates(code, sending), values.shape[1]
    message_row = code.messages.worker if speeds else np.arange(len(code.messages))
    row = np.concatenate([message_row, columns + np.arange(len(table.counts))])
    scale = np.concatenate([code.ready() if speeds else np.ones(len(code.messages)), np.ones(len(table.counts))])
    children = row[table.children], scale[table.children]
    messages = message_row, scale[: len(message_row)], row[table.limit]
    times, sent = np.empty(len(values)), np.empty(len(values), dtype=np.int32)
    _rule_rounds(np.ascontiguousarray(values), table.counts, table.start, *children, *messages, times, sent)
    return times, sent


def span_part_times(code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, parts) when each part of the code is recovered by span."""
    return np.stack([span_times(part.decoder, arrivals[:, part.messages]) for part in parts_of(code.decoder)], axis=1)


def span_times(part: Any, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R,) when all targets are in the span of the arrived rows of one part; a decoder that is no least squares is asked."""
    if not isinstance(part, LeastSquares):
        return _asked_times(part, arrivals)
    return np.asarray(np.max([_target_times(part, target, arrivals) for target in np.atleast_2d(part.target)], axis=0))


def _target_times(part: LeastSquares, goal: NDArray[Any], arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    times = np.empty(len(arrivals))
    target = goal.astype(part.distinct.dtype)
    step = max(1, SPAN_BYTES // (8 * arrivals.shape[1]))
    for at in range(0, len(arrivals), step):
        chunk = np.ascontiguousarray(arrivals[at : at + step])
        order = np.argsort(chunk, axis=1, kind="stable")
        _span_times(chunk, order, part.ids, part.distinct, target, TOLERANCE, RANK, times[at : at + step])
    return times


def _asked_times(decoder: Any, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R,) the first arrival after which a decoder calls the gradient exact: one message after the other, as it is live."""
    times, order = np.full(len(arrivals), np.inf), np.argsort(arrivals, axis=1, kind="stable")
    got, rounds = np.zeros(arrivals.shape, dtype=bool), np.arange(len(arrivals))
    for messages in order.T:
        at = arrivals[rounds, messages]
        waits = np.isinf(times) & np.isfinite(at)
        got[rounds[waits], messages[waits]] = True
        done = waits.copy()
        done[waits] = is_exact(decoder, got[waits])
        times[done] = at[done]
    return times


@njit(nogil=True, cache=True)
def _rule_rounds(values, counts, start, child, child_scale, message, message_scale, limit, times, sent):  # type: ignore[no-untyped-def]
    """The tile holds LANES rounds: first the columns of values, then one row a gate; everything else points into it."""
    rounds, columns = values.shape
    tile = np.empty((columns + len(counts), LANES))
    scratch = np.empty((4, LANES))
    counted = np.empty((3, LANES), np.int64)
    for first in range(0, rounds, LANES):
        for lane in range(LANES):
            row = min(first + lane, rounds - 1)
            for c in range(columns):
                tile[c, lane] = values[row, c]
        for gate in range(len(counts)):
            own = slice(start[gate], start[gate + 1])
            _gate(tile, counts[gate], child[own], child_scale[own], scratch, counted)
            tile[columns + gate, :] = scratch[0]
        _count(tile, message, message_scale, limit, counted[0])
        for lane in range(min(LANES, rounds - first)):
            times[first + lane] = scratch[0, lane]
            sent[first + lane] = counted[0, lane]


@njit(nogil=True, cache=True)
def _count(tile, message, scale, limit, total):  # type: ignore[no-untyped-def]
    """How many messages arrive, and not later than their limit."""
    total[:] = 0
    for m in range(len(message)):
        row, factor, end = message[m], scale[m], limit[m]
        for lane in range(LANES):
            value = tile[row, lane] * factor
            total[lane] += (value <= tile[end, lane]) & (value < np.inf)


@njit(nogil=True, cache=True)
def _gate(tile, count, rows, scale, scratch, counted):  # type: ignore[no-untyped-def]
    """The count-th smallest of scale[i] * tile[rows[i]] into scratch[0], lane by lane."""
    if 1 < count < len(rows):
        _select(tile, count, rows, scale, scratch, counted)
        return
    best = scratch[0]
    for lane in range(LANES):
        best[lane] = tile[rows[0], lane] * scale[0]
    for i in range(1, len(rows)):
        row, factor = rows[i], scale[i]
        if count == 1:
            for lane in range(LANES):
                best[lane] = min(best[lane], tile[row, lane] * factor)
        else:
            for lane in range(LANES):
                best[lane] = max(best[lane], tile[row, lane] * factor)


@njit(nogil=True, cache=True)
def _select(tile, count, rows, scale, scratch, counted):  # type: ignore[no-untyped-def]
    """Selection by bisection on the value: low < answer <= high throughout.

    It ends as soon as exactly count - 1 values are <= low, or exactly count are <= high, or no number lies between.
    """
    low, high, middle = scratch[1], scratch[2], scratch[3]
    below, upto, here = counted[0], counted[1], counted[2]
    _bounds(tile, rows, scale, low, high, below, upto)
    busy = True
    while busy:
        busy = False
        here[:] = 0
        for lane in range(LANES):
            middle[lane] = 0.5 * (low[lane] + high[lane])
        for i in range(len(rows)):
            row, factor = rows[i], scale[i]
            for lane in range(LANES):
                here[lane] += tile[row, lane] * factor <= middle[lane]
        for lane in range(LANES):
            if upto[lane] <= count or below[lane] == count - 1 or not low[lane] < middle[lane] < high[lane]:
                continue
            busy = True
            if here[lane] >= count:
                high[lane], upto[lane] = middle[lane], here[lane]
            else:
                low[lane], below[lane] = middle[lane], here[lane]
    _finish(tile, count, rows, scale, scratch, upto)


@njit(nogil=True, cache=True)
def _bounds(tile, rows, scale, low, high, below, upto):  # type: ignore[no-untyped-def]
    """low under every value, high the largest finite one, and how many values lie up to each."""
    low[:] = -1.0
    high[:] = -1.0
    below[:] = 0
    upto[:] = 0
    for i in range(len(rows)):
        row, factor = rows[i], scale[i]
        for lane in range(LANES):
            value = tile[row, lane] * factor
            finite = value < np.inf
            upto[lane] += finite
            high[lane] = max(high[lane], value if finite else -1.0)


@njit(nogil=True, cache=True)
def _finish(tile, count, rows, scale, scratch, upto):  # type: ignore[no-untyped-def]
    """The largest value <= high where exactly count are, else the smallest > low; infinite where too few are finite."""
    best, low, high, under = scratch[0], scratch[1], scratch[2], scratch[3]
    under[:] = -1.0
    best[:] = np.inf
    for i in range(len(rows)):
        row, factor = rows[i], scale[i]
        for lane in range(LANES):
            value = tile[row, lane] * factor
            under[lane] = max(under[lane], value if value <= high[lane] else -1.0)
            best[lane] = min(best[lane], value if value > low[lane] else np.inf)
    for lane in range(LANES):
        if upto[lane] == count:
            best[lane] = under[lane]
        elif upto[lane] < count:
            best[lane] = np.inf


@njit(nogil=True, cache=True)
def _span_times(arrivals, order, ids, rows, target, tolerance, dependent, times):  # type: ignore[no-untyped-def]
    width = rows.shape[1]
    basis = np.empty((min(rows.shape), width), rows.dtype)
    vector, rest = np.empty(width, rows.dtype), np.empty(width, rows.dtype)
    seen = np.empty(rows.shape[0], np.bool_)
    goal = tolerance * tolerance * _square(target)
    for r in range(len(arrivals)):
        seen[:] = False
        rest[:] = target
        rank = 0
        times[r] = np.inf
        for m in order[r]:
            if seen[ids[m]] or rank == len(basis):
                continue
            seen[ids[m]] = True
            vector[:] = rows[ids[m]]
            if arrivals[r, m] == np.inf or not _extend(basis, rank, vector, dependent):
                continue
            _remove(rest, basis[rank])
            rank += 1
            if _square(rest) <= goal:
                times[r] = arrivals[r, m]
                break


@njit(nogil=True, cache=True)
def _extend(basis, rank, vector, dependent):  # type: ignore[no-untyped-def]
    """Add the direction of vector to the basis, unless it lies in its span already."""
    for _ in range(2):
        for q in range(rank):
            _remove(vector, basis[q])
    length = np.sqrt(_square(vector))
    if length <= dependent:
        return False
    basis[rank] = vector / length
    return True


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _remove(vector, direction):  # type: ignore[no-untyped-def]
    """Take the component along a unit vector out of vector."""
    share = direction[0] * 0
    for i in range(len(vector)):
        share += np.conj(direction[i]) * vector[i]
    for i in range(len(vector)):
        vector[i] -= share * direction[i]


@njit(nogil=True, cache=True)
def _square(vector):  # type: ignore[no-untyped-def]
    total = 0.0
    for value in vector:
        total += value.real * value.real + value.imag * value.imag
    return total
