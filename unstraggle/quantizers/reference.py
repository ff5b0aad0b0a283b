"""The quantisers in plain NumPy: slow, short, and bit for bit what the kernels must produce."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .layout import (
    BLOCK,
    BLOCK_STRIDE,
    FULL,
    HUGE,
    LANE_KEYS,
    LANES,
    MIX32,
    MIX64,
    ROW_KEYS,
    ROWS,
    TINY,
    Format,
    Kind,
    blocks_of,
)

Floats = NDArray[np.float32]
Words = NDArray[np.uint32]


class Grid(NamedTuple):
    """The levels of a bucket: their distance, and how coordinates become fixed-point numbers: (x * factor) * scale."""

    step: np.float32
    scale: np.float32
    factor: float


def encode(x: Floats, seed: int, format: Format) -> tuple[Floats, Words]:
    """Steps and words of the payload of x."""
    key, tiles = mix64(np.array(seed, np.uint64)), tiled(x)
    size = format.bucket or max(len(x), 1)
    steps = np.zeros(format.buckets(len(x)), np.float32)
    fixed = np.zeros(tiles.shape, np.int32)
    for bucket in range(len(steps)):
        part = x[bucket * size : (bucket + 1) * size]
        grid = grid_of(part, format)
        steps[bucket] = grid.step
        first = bucket * size // BLOCK
        scaled = (tiled(part).astype(np.float64) * grid.factor).astype(np.float32)
        fixed[first : first + len(scaled)] = (scaled * grid.scale).astype(np.int32)
    fields = round_randomly(fixed, dither(key, 0, len(tiles)), format.bits)
    fields.reshape(-1)[len(x) :] = 0
    return steps, pack(fields, format.bits).reshape(-1)[: format.words(len(x))]


def decode(steps: Floats, words: Words, length: int, format: Format) -> Floats:
    """The vector that steps and words stand for."""
    whole = np.zeros(blocks_of(length) * LANES * format.bits, np.uint32)
    whole[: len(words)] = words
    fields = unpack(whole.reshape(-1, format.bits, LANES), format.bits)
    levels = 1 + 2 * fields if format.kind is Kind.SIGN else fields
    spread = np.repeat(steps, format.bucket or max(length, 1))[:length]
    return levels.reshape(-1)[:length].astype(np.float32) * spread


def tiled(x: Floats) -> Floats:
    """(blocks, rows, lanes), the last block filled with zeros."""
    tiles = np.zeros((blocks_of(len(x)), ROWS, LANES), np.float32)
    tiles.reshape(-1)[: len(x)] = x
    return tiles


def mix64(z: Any) -> Any:
    """The output function of SplitMix64."""
    start, first, second = (np.uint64(m) for m in MIX64)
    z = np.atleast_1d(z) + start
    z = (z ^ z >> np.uint64(30)) * first
    z = (z ^ z >> np.uint64(27)) * second
    return z ^ z >> np.uint64(31)


def block_keys(key: Any, first: int, blocks: int) -> tuple[Words, Words]:
    """Two 32-bit keys for each block."""
    numbers = np.arange(blocks, dtype=np.uint64) + np.uint64(first)
    mixed = mix64(key + numbers * np.uint64(BLOCK_STRIDE))
    return mixed.astype(np.uint32), (mixed >> np.uint64(32)).astype(np.uint32)


def dither(key: Any, first: int, blocks: int) -> Words:
    """(blocks, rows, lanes) random 32-bit words, a function of key and coordinate alone."""
    one, two = (k[:, None, None] for k in block_keys(key, first, blocks))
    rows, lanes = np.array(ROW_KEYS, np.uint32)[:, None], np.array(LANE_KEYS, np.uint32)
    h = (lanes ^ one ^ rows) * np.uint32(MIX32[0])
    h ^= h >> np.uint32(15)
    return (h + two) * np.uint32(MIX32[1])


def round_randomly(fixed: NDArray[np.int32], random: Words, bits: int) -> NDArray[np.int32]:
    """floor(fixed-point number + uniform), and for one bit the sign of fixed-point number + symmetric uniform: -1 or 0."""
    uniform = random.view(np.int32) >> 1 if bits == 1 else (random >> np.uint32(bits)).view(np.int32)
    return (fixed + uniform) >> (32 - bits)


def pack(fields: NDArray[np.int32], bits: int) -> Words:
    """(blocks, bits, lanes) words of (blocks, rows, lanes) fields."""
    digits = np.arange(bits - 1, -1, -1)
    planes = (fields[:, :, None, :] >> digits[:, None]) & 1
    stream = planes.reshape(len(fields), bits, 32, LANES).astype(np.uint32)
    weights = np.uint32(1) << np.arange(31, -1, -1, dtype=np.uint32)
    return np.asarray((stream * weights[:, None]).sum(axis=2, dtype=np.uint32))


def unpack(words: Words, bits: int) -> NDArray[np.int32]:
    """(blocks, rows, lanes) fields of (blocks, bits, lanes) words."""
    stream = (words[:, :, None, :] >> np.arange(31, -1, -1, dtype=np.uint32)[:, None]) & np.uint32(1)
    planes = stream.reshape(len(words), ROWS, bits, LANES).astype(np.int32)
    weights = 1 << np.arange(bits - 1, -1, -1)
    weights[0] *= -1
    return np.asarray((planes * weights[:, None]).sum(axis=2, dtype=np.int32))


def grid_of(x: Floats, format: Format) -> Grid:
    """The grid of one bucket. Raises `Invalid` for coordinates that are not finite and for norms beyond float32."""
    if not np.isfinite(x).all():
        raise Invalid("reference.grid_of needs finite coordinates.")
    values = np.abs(x[x != 0]).astype(np.float64)
    if len(values) == 0:
        return Grid(np.float32(0), np.float32(0), 1.0)
    level = FULL / format.unit
    exact = np.float32(values[0] / level)
    if len(values) == 1 and float(exact) * level == values[0] < HUGE:
        return Grid(exact, np.float32(FULL), 1 / values[0])
    total, (spacing, span, _) = square_sum(x), format.numbers
    if np.float32(TINY) <= total < np.inf:
        return Grid(np.sqrt(total) * spacing, span / np.sqrt(total), 1.0)
    return _rescaled_grid(x, math.frexp(values.max())[1], format)


def _rescaled_grid(x: Floats, exponent: int, format: Format) -> Grid:
    factor, (spacing, _, unit) = 2.0**-exponent, format.numbers
    wide = float(np.sqrt(square_sum((x.astype(np.float64) * factor).astype(np.float32))) * spacing) * 2.0**exponent
    with np.errstate(over="ignore"):
        step = np.float32(wide)
        if float(step) < wide:
            step = np.nextafter(step, np.float32(np.inf))
        norm = step * np.float32(format.levels)
    if not np.isfinite(norm):
        raise Invalid("reference.grid_of needs a norm within float32.")
    return Grid(step, unit / np.float32(float(step) * factor), factor)


def square_sum(x: Floats) -> np.float32:
    """Sum of squares in the order that all implementations keep: rows in four strands, lanes, blocks as a binary tree."""
    with np.errstate(over="ignore", invalid="ignore"):
        strands = np.square(tiled(x)).reshape(-1, ROWS // 4, 4, LANES)
        sums = strands[:, 0]
        for row in range(1, ROWS // 4):
            sums = sums + strands[:, row]
        lanes = (sums[:, 0] + sums[:, 1]) + (sums[:, 2] + sums[:, 3])
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        return np.float32(tree_sum(lanes[:, 0].astype(np.float64)))


def tree_sum(values: NDArray[np.float64]) -> float:
    """Neighbours are added until one number is left; what has no neighbour moves up."""
    while len(values) > 1:
        odd = values[len(values) - len(values) % 2 :]
        values = np.concatenate([values[0 : len(values) - len(odd) : 2] + values[1::2], odd])
    return float(values[0]) if len(values) else 0.0


def checksum(words: Words, bits: int, key: int) -> int:
    """The 64-bit checksum of words, in blocks of 16 * bits."""
    blocks = -(-len(words) // (LANES * bits))
    whole = np.zeros(blocks * LANES * bits, np.uint32)
    whole[: len(words)] = words
    sums = np.cumsum(whole.reshape(blocks, bits, LANES), axis=1, dtype=np.uint32)
    plain, weighted = sums[:, -1], sums.sum(axis=1, dtype=np.uint32)
    one, two = block_keys(np.uint64(key), 0, blocks)
    lanes, odd = np.array(LANE_KEYS, np.uint32), np.uint32(1)
    low = (plain * (one[:, None] ^ lanes | odd)).sum(dtype=np.uint32)
    high = (weighted * (two[:, None] ^ lanes | odd)).sum(dtype=np.uint32)
    return int(high) << 32 | int(low)
