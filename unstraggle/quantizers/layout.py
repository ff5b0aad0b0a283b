"""Where things stand in a payload, and the constants that every implementation shares.

Coordinates go in blocks of 512 = 32 rows x 16 lanes: coordinate = 512 block + 16 row + lane. A lane packs the fields of its 32
rows from the highest bit of its first 32-bit word downwards, `bits` bits each, so that a block takes 16 * bits words, word k of
all lanes side by side. A field is a level in two's complement (for signs: 1 means negative).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

LANES, ROWS = 16, 32
BLOCK = LANES * ROWS

HEADER = 48
"""Bytes before the steps."""
ALIGN = 64
"""The words start at a multiple of this many bytes."""

GUARD = 1 + 2.0**-21
"""The norm is widened by this much, so that float32 rounding never lifts a coordinate above the highest level."""
TINY = 2.0**-80
"""A sum of squares below this is computed again on rescaled coordinates, as is one that overflows."""
HUGE = 2.0**127
"""Twice this is more than float32 holds."""
FULL = 2.0**30
"""The fixed-point value of the one coordinate of a one-sparse bucket."""

MASK, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
BLOCK_STRIDE = 0xD1342543DE82EF95
MIX64 = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
MIX32 = (0x7FEB352D, 0x846CA68B)


def _finalizer(h: int) -> int:
    """The 32-bit finalizer of MurmurHash3."""
    h = ((h ^ h >> 16) * 0x85EBCA6B) & MASK
    h = ((h ^ h >> 13) * 0xC2B2AE35) & MASK
    return h ^ h >> 16


ROW_KEYS = tuple(_finalizer(row + 1) for row in range(ROWS))
LANE_KEYS = tuple(lane * 0x9E3779B1 & MASK for lane in range(LANES))


class Kind(IntEnum):
    """What the words of a payload are."""

    IDENTITY = 0
    QSGD = 1
    SIGN = 2


@dataclass(frozen=True)
class Format:
    """How a vector is laid out: kind, bits per coordinate, and coordinates that share a norm (0: all of them).

    >>> Format(Kind.QSGD, 4).size(1_000_000)
    500096
    """

    kind: Kind
    bits: int
    bucket: int = 0

    @property
    def levels(self) -> int:
        """Levels on each side of zero that the norm spans."""
        return 2 ** (self.bits - 1) - 1 if self.kind is Kind.QSGD else 1

    @property
    def unit(self) -> float:
        """The fixed-point value of one level."""
        return 2.0 ** (32 - self.bits) if self.kind is Kind.QSGD else FULL

    @property
    def numbers(self) -> tuple[np.float32, np.float32, np.float32]:
        """What makes a grid of a norm: step = norm * spacing; fixed-point number = x * (span / norm); unit."""
        spacing, span = GUARD / self.levels, self.unit * self.levels / GUARD
        return np.float32(spacing), np.float32(span), np.float32(self.unit)

    def buckets(self, length: int) -> int:
        """How many norms a vector has."""
        if self.kind is Kind.IDENTITY or length == 0:
            return 0
        return -(-length // self.bucket) if self.bucket else 1

    def start(self, length: int) -> int:
        """The byte at which the words start."""
        return -(-(HEADER + 4 * self.buckets(length)) // ALIGN) * ALIGN

    def words(self, length: int) -> int:
        """32-bit words after the steps: of the last block only those that hold coordinates."""
        if self.kind is Kind.IDENTITY:
            return length
        blocks, rest = divmod(length, BLOCK)
        rows = -(-rest // LANES)
        return LANES * (blocks * self.bits + -(-rows * self.bits // 32))

    def size(self, length: int) -> int:
        """Bytes of the payload of a vector of this length."""
        return self.start(length) + 4 * self.words(length)


def mix64(z: int) -> int:
    """The output function of SplitMix64."""
    start, first, second = MIX64
    z = (z + start) & MASK64
    z = ((z ^ z >> 30) * first) & MASK64
    z = ((z ^ z >> 27) * second) & MASK64
    return z ^ z >> 31


def blocks_of(length: int) -> int:
    """Blocks that a vector takes, the last one perhaps in part."""
    return -(-length // BLOCK)
