"""The compiled kernels, called on whole vectors by one or several threads.

The kernels know only whole blocks. What is left of a vector goes into a block of its own, which is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..threads import pool
from .layout import BLOCK, LANES, MASK, Format, Kind, blocks_of, mix64
from .reference import tree_sum

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Words = NDArray[np.uint32]
Result = TypeVar("Result")

CHUNK = 1 << 12
"""Blocks that a thread takes at a time. A power of two, so that sums of chunks are subtrees of the sum of all."""


@cache
def kernels() -> Any:
    """The compiled functions, loaded with the first vector: numba is not for those who never quantise."""
    from . import cpu_kernels

    return cpu_kernels


def spread(run: Callable[[int, int], Result], blocks: int, threads: int, unit: int = 1) -> list[Result]:
    """run(first, last) over ranges of blocks, each a multiple of `unit` but the last; results in order."""
    if threads == 1 or blocks <= CHUNK:
        return [run(0, blocks)]
    step = -(-CHUNK // unit) * unit
    starts = range(0, blocks, step)
    return list(pool(threads).map(lambda first: run(first, min(first + step, blocks)), starts))


class Source:
    """A vector as the kernels take it: whole blocks where they stand, and the rest in a block of its own."""

    def __init__(self, x: Floats) -> None:
        self.x, self.whole, self.blocks = x, len(x) // BLOCK, blocks_of(len(x))
        self.rest = np.zeros(BLOCK, np.float32)
        self.rest[: len(x) - self.whole * BLOCK] = x[self.whole * BLOCK :]
        self.place = (x.ctypes.data, self.rest.ctypes.data, self.whole)


def grid(format: Format, source: Source, threads: int = 1) -> tuple[np.float32, np.float32, float]:
    """Step, scale and factor of a vector with one norm."""

    def run(first: int, last: int) -> tuple[float, int]:
        room = np.empty(kernels().ROOM, np.uint8)
        found: tuple[float, int] = kernels().square_sum(*source.place, first, last, 1.0, room.ctypes.data)
        return found

    totals, lanes = zip(*spread(run, source.blocks, threads), strict=True)
    with np.errstate(over="ignore"):  # an infinite sum is computed again on rescaled coordinates
        total, seen = np.float32(tree_sum(np.array(totals))), int(np.bitwise_or.reduce(lanes))
    room = np.empty(kernels().ROOM, np.uint8)
    step, scale, factor = kernels().grid(*source.place, 0, source.blocks, total, seen, *format.numbers, room.ctypes.data)
    return np.float32(step), np.float32(scale), float(factor)


ALIGNED, STREAMED = 64, 1 << 24
"""Bytes of a payload from which on its words go past the caches, which could not hold them anyway, if they are so aligned."""


def quantise(format: Format, x: Floats, seed: int, steps: Floats, words: Bytes, threads: int = 1) -> int | None:
    """Write steps and words of x. Gives the checksum of the words, or None where x or a norm is not finite."""
    source, scale, factor = Source(x), np.float32(0), 1.0
    if not format.bucket:
        steps[0], scale, factor = grid(format, source, threads)
        if not np.isfinite(steps[0]):
            return None
    return pack(format, source, seed, steps, words, scale, factor, threads)


def pack(
    format: Format, source: Source, seed: int, steps: Floats, words: Bytes, scale: np.float32, factor: float, threads: int = 1
) -> int | None:
    """`quantise` with a known grid; with buckets, each gets its grid on the way."""
    key, per = key_of(seed), format.bucket // BLOCK or source.blocks
    stream = len(words) >= STREAMED and words.ctypes.data % ALIGNED == 0
    numbers = *format.numbers, scale, factor, key, steps

    def run(first: int, last: int, to: int = words.ctypes.data, stream: bool = stream) -> Words | None:
        kernel = kernels().quantiser(format.bits, int(format.bucket == BLOCK), int(stream))
        sums, room = np.zeros(2 * LANES, np.uint32), np.empty(kernels().ROOM, np.uint8)
        done = kernel(*source.place, first, last, source.blocks, per, *numbers, to, sums.ctypes.data, room.ctypes.data)
        return sums if done else None

    parts = spread(run, source.whole, threads, per if format.bucket else 1)
    if source.whole < source.blocks:
        rest = np.zeros(LANES * format.bits, np.uint32)
        parts.append(run(source.whole, source.blocks, _as_block(rest, source.whole), stream=False))
        parts[-1] = _send_rest(format, rest, source, key, words) if parts[-1] is not None else None
    whole = [sums for sums in parts if sums is not None]
    return folded(whole) if len(whole) == len(parts) else None


def _send_rest(format: Format, rest: Words, source: Source, key: np.uint64, words: Bytes) -> Words:
    """Of the last block, the words that hold coordinates, with zeros where there are none; gives their sums."""
    left, sums = len(source.x) - source.whole * BLOCK, np.zeros(2 * LANES, np.uint32)
    if format.kind is Kind.SIGN:
        rows = (left - np.arange(LANES) + LANES - 1) // LANES
        rest &= ~((1 << (32 - rows)) - 1).astype(np.uint32)
    kernels().check_words(_as_block(rest, source.whole), format.bits, source.whole, source.blocks, key, sums.ctypes.data)
    place = words[rest.nbytes * source.whole :]
    place[:] = rest.view(np.uint8)[: len(place)]
    return sums


def _as_block(rest: NDArray[np.generic], block: int) -> int:
    """The address at which an array of blocks would start if `rest` were its block of that number."""
    return int(rest.ctypes.data) - rest.nbytes * block


def checksum(words: Bytes, bits: int, key: np.uint64, threads: int = 1) -> int:
    """The checksum of words, taken in blocks of 16 * bits; the last one may be shorter."""
    whole = len(words) // (4 * LANES * bits)

    def run(first: int, last: int, at: int = words.ctypes.data) -> Words:
        sums = np.zeros(2 * LANES, np.uint32)
        kernels().check_words(at, bits, first, last, key, sums.ctypes.data)
        return sums

    parts = spread(run, whole, threads)
    if len(words) > 4 * LANES * bits * whole:
        rest = last_block(words, bits, whole)
        parts.append(run(whole, whole + 1, _as_block(rest, whole)))
    return folded(parts)


def last_block(words: Bytes, bits: int, whole: int) -> Words:
    """The words after the whole blocks, filled up with zeros."""
    rest = np.zeros(LANES * bits, np.uint32)
    left = words[rest.nbytes * whole :]
    rest.view(np.uint8)[: len(left)] = left
    return rest


def joined(*checksums: int) -> int:
    """The checksum of several parts: both halves added by themselves."""
    low, high = sum(c & MASK for c in checksums) & MASK, sum(c >> 32 for c in checksums) & MASK
    return high << 32 | low


def folded(sums: list[Words]) -> int:
    """One number of 64 bits from the sums of all lanes."""
    low, high = (sum(int(part[half].sum()) for part in sums) & MASK for half in (slice(0, LANES), slice(LANES, None)))
    return high << 32 | low


class Messages:
    """Messages of one format as the kernels take them. factors: what their levels are multiplied by, (buckets, messages)."""

    def __init__(self, format: Format, words: list[Bytes], factors: Floats) -> None:
        self.format, self.words, self.factors, self.low = format, words, factors, 0
        if format.kind is Kind.QSGD:
            self.low = int(((factors != 0) & (np.abs(factors) < kernels().SMALL)).any())
            self.factors = factors if self.low else factors * np.float32(1 / format.unit)

    def add(self, out: Floats, fresh: bool, first: int, last: int) -> None:
        """Add blocks first..last to those of out, or write their sum there if fresh."""
        whole, per = len(out) // BLOCK, self.format.bucket // BLOCK or blocks_of(len(out))
        self._run(out.ctypes.data, first, min(last, whole), per, [words.ctypes.data for words in self.words], fresh)
        if last <= whole:
            return
        rests, sums = [last_block(words, self.format.bits, whole) for words in self.words], np.zeros(BLOCK, np.float32)
        left = out[whole * BLOCK :]
        sums[: len(left)] = left
        self._run(_as_block(sums, whole), whole, last, per, [_as_block(rest, whole) for rest in rests], fresh)
        left[:] = sums[: len(left)]

    def _run(self, out: int, first: int, last: int, per: int, words: list[int], fresh: bool) -> None:
        sources = np.array(words, np.int64)
        if self.format.kind is Kind.IDENTITY:
            kernels().add_plain(out, first, last, sources, self.factors, fresh)
            return
        kernel = kernels().accumulator(self.format.bits, self.low)
        kernel(out, first, last, per, sources.ctypes.data, self.factors.ctypes.data, len(sources), fresh)


def key_of(seed: int) -> np.uint64:
    """What seed and block number are mixed from: dither, and the keys of the checksum of the words."""
    return np.uint64(mix64(seed))


def steps_key(seed: int) -> np.uint64:
    """The same for the checksum of the steps."""
    return np.uint64(mix64(mix64(seed)))


def aligned(size: int) -> Bytes:
    """New memory for a payload."""
    room = np.empty(size + ALIGNED, np.uint8)
    begin = -room.ctypes.data % ALIGNED
    return room[begin : begin + size]
