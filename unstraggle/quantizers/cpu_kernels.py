"""Compiled kernels. `reference` is the plain form that they must equal bit for bit.

A lane is an element of a vector of 16: the kernels of a block are written as vector instructions of LLVM, row by row, once for
each number of bits. What LLVM makes of them (AVX-512, AVX2, NEON) does not change the result: additions and multiplications of
floats are neither fused nor reordered. Addresses are plain integers, so that any buffer will do, aligned or not.
"""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,attr-defined,call-arg,import-untyped"
# mypy: disable-error-code="var-annotated,assignment"

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..addresses import bytes_at, load, settle, store
from .layout import BLOCK, BLOCK_STRIDE, FULL, HUGE, LANE_KEYS, LANES, MIX32, MIX64, ROW_KEYS, ROWS, TINY

BYTES = 4 * LANES
GROUP = 8
"""Rows of a block that are summed in registers over all messages."""
ROOM = 4 * BLOCK + 8 * 64
"""Bytes that a kernel needs for a scaled block and for the sums of a tree of blocks."""
SMALL = np.float32(2.0**-96)
"""A factor below this would lose digits when it is divided by 2^(32 - bits)."""

INT, WORD, FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
WORDS, FLOATS = ir.VectorType(WORD, LANES), ir.VectorType(FLOAT, LANES)


def const(value: Any, vector: Any = WORDS) -> Any:
    """A vector with one value in all lanes, or a value for each."""
    values = value if isinstance(value, tuple) else (value,) * LANES
    return ir.Constant(vector, [ir.Constant(vector.element, v) for v in values])


def splat(b: Any, value: Any) -> Any:
    """A scalar in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    return b.shuffle_vector(b.insert_element(nothing, value, WORD(0)), nothing, const(0))


def join(b: Any, high: Any, low: Any, shift: int) -> Any:
    """The upper words of (high, low) << shift: one instruction where the processor has it."""
    function = ir.FunctionType(WORDS, [WORDS] * 3)
    return b.call(cgutils.get_or_insert_function(b.module, function, "llvm.fshl.v16i32"), [high, low, const(shift)])


def rounded(b: Any, bits: int, x: Any, scale: Any, base: Any, key: Any, row: int) -> Any:
    """Fixed-point numbers of a row plus dither: the highest `bits` bits are the fields."""
    fixed = b.fptosi(b.fmul(load(b, FLOATS, x, BYTES * row), scale), WORDS)
    h = b.mul(b.xor(base, const(ROW_KEYS[row])), const(MIX32[0]))
    h = b.mul(b.add(b.xor(h, b.lshr(h, const(15))), key), const(MIX32[1]))
    return b.add(fixed, b.ashr(h, const(1)) if bits == 1 else b.lshr(h, const(bits)))


class Sums:
    """The two checksums of the words of a block: sums, and sums of the sums so far."""

    def __init__(self) -> None:
        self.plain, self.weighted = const(0), const(0)

    def add(self, b: Any, words: Any) -> None:
        self.plain = b.add(self.plain, words)
        self.weighted = b.add(self.weighted, self.plain)

    def save(self, b: Any, one: Any, two: Any, address: Any) -> None:
        """Add to the sums of all blocks, times keys of block and lane."""
        for place, (value, key) in enumerate(((self.plain, one), (self.weighted, two))):
            keyed = b.mul(value, b.or_(b.xor(splat(b, key), const(LANE_KEYS)), const(1)))
            store(b, b.add(load(b, WORDS, address, BYTES * place), keyed), address, BYTES * place)


class Squares:
    """The sum of squares of a block, row by row, in four strands."""

    def __init__(self) -> None:
        self.strands: list[Any] = []

    def add(self, b: Any, x: Any, row: int) -> None:
        value = load(b, FLOATS, x, BYTES * row)
        square = b.fmul(value, value)
        if row < 4:
            self.strands.append(square)
        else:
            self.strands[row % 4] = b.fadd(self.strands[row % 4], square)

    def total(self, b: Any) -> list[Any]:
        """The sum, and the lanes in which it is not zero as bits."""
        strands = self.strands
        total = b.fadd(b.fadd(strands[0], strands[1]), b.fadd(strands[2], strands[3]))
        lanes = b.bitcast(b.fcmp_unordered("!=", total, const(0.0, FLOATS)), ir.IntType(LANES))
        for half in (8, 4, 2, 1):
            total = b.fadd(total, b.shuffle_vector(total, total, const(tuple((lane + half) % LANES for lane in range(LANES)))))
        return [b.extract_element(total, WORD(0)), b.zext(lanes, INT)]


def packed(b: Any, bits: Any, stream: Any, arguments: Any, also: Any = lambda row: None) -> None:
    """Quantise a block row by row and add to the checksums. also: what else to do in each row."""
    x, scale, one, two, words, sums = arguments
    n, past, scale, key = bits.literal_value, stream.literal_value, splat(b, scale), splat(b, two)
    base, checks, word = b.xor(splat(b, one), const(LANE_KEYS)), Sums(), None

    def finish(number, value):
        store(b, value, words, BYTES * number, align=BYTES if past else 1, stream=bool(past))
        checks.add(b, value)

    for row in range(ROWS):
        also(row)
        value = rounded(b, n, x, scale, base, key, row)
        number, used = divmod(row * n, 32)
        if used + n > 32:
            finish(number, join(b, word, value, 32 - used))
        # What stands above the field in a new word is pushed out by the fields that follow.
        word = b.lshr(value, const(32 - n)) if used == 0 or used + n > 32 else join(b, word, value, n)
        if used + n == 32:
            finish(number, word)
    checks.save(b, one, two, sums)


@intrinsic(prefer_literal=True)
def pack_block(context, bits, stream, x, scale, one, two, words, sums):
    """Quantise the 512 floats at x into 16 * bits words, and add to the checksums. stream: past the caches; needs alignment."""
    signature = types.void(bits, stream, types.int64, types.float32, types.uint32, types.uint32, types.int64, types.int64)

    def generate(context, b, signature, arguments):
        packed(b, bits, stream, arguments[2:])
        return context.get_dummy_value()

    return signature, generate


@intrinsic(prefer_literal=True)
def pack_and_look_ahead(context, bits, stream, x, scale, one, two, words, sums, ahead):
    """`pack_block`, and meanwhile `square_block` of another block: alone, each leaves units of the processor idle."""
    addresses = [types.int64] * 3
    result = types.Tuple((types.float32, types.int64))
    signature = result(bits, stream, types.int64, types.float32, types.uint32, types.uint32, *addresses)

    def generate(context, b, signature, arguments):
        squares = Squares()
        packed(b, bits, stream, arguments[2:-1], lambda row: squares.add(b, arguments[-1], row))
        return context.make_tuple(b, result, squares.total(b))

    return signature, generate


@intrinsic
def check_block(context, words, bits, one, two, sums):
    """Add 16 * bits words to the checksums."""
    signature = types.void(types.int64, types.int64, types.uint32, types.uint32, types.int64)

    def generate(context, b, signature, arguments):
        words, bits, one, two, sums = arguments
        plain, weighted, checks = (*(cgutils.alloca_once_value(b, const(0)) for _ in range(2)), Sums())
        with cgutils.for_range(b, bits, intp=INT) as loop:
            checks.plain, checks.weighted = b.load(plain), b.load(weighted)
            checks.add(b, load(b, WORDS, b.add(words, b.mul(loop.index, INT(BYTES))), align=1))
            b.store(checks.plain, plain)
            b.store(checks.weighted, weighted)
        checks.plain, checks.weighted = b.load(plain), b.load(weighted)
        checks.save(b, one, two, sums)
        return context.get_dummy_value()

    return signature, generate


def field(b: Any, bits: int, words: dict[int, Any], row: int, low: int) -> Any:
    """The fields of a row, in the highest bits, what stands below them cleared; or if low, in the lowest bits."""
    number, used = divmod(row * bits, 32)
    value = words[number]
    if used + bits > 32:
        value = join(b, value, words[number + 1], used)
    elif used:
        value = b.shl(value, const(used))
    return b.ashr(value, const(32 - bits)) if low else b.and_(value, const(-1 << (32 - bits) & 0xFFFFFFFF))


def times(b: Any, bits: int, value: Any, factor: Any) -> Any:
    """A field times a factor; of one bit, the factor with its sign turned where the bit is set."""
    if bits > 1:
        return b.fmul(b.sitofp(value, FLOATS), factor)
    return b.bitcast(b.xor(value, b.bitcast(factor, WORDS)), FLOATS)


@intrinsic(prefer_literal=True)
def add_block(context, bits, low, out, sources, offset, factors, count, fresh):
    """Add the blocks of `count` messages to the 512 floats at out, or to zero if fresh.

    factors: of levels if low, else of fields in the highest bits.
    """
    n, lowest = bits.literal_value, low.literal_value
    signature = types.void(bits, low, *[types.int64] * 5, types.boolean)

    def generate(context, b, signature, arguments):
        _, _, out, sources, offset, factors, count, fresh = arguments
        for first in range(0, ROWS, GROUP):
            rows = range(first, first + GROUP)
            sums = {row: cgutils.alloca_once_value(b, const(0.0, FLOATS)) for row in rows}
            with b.if_then(b.not_(fresh)):
                for row in rows:
                    b.store(load(b, FLOATS, out, BYTES * row), sums[row])
            with cgutils.for_range(b, count, intp=INT) as loop:
                source = b.add(load(b, INT, b.add(sources, b.mul(loop.index, INT(8)))), offset)
                factor = splat(b, load(b, FLOAT, b.add(factors, b.mul(loop.index, INT(4)))))
                numbers = range(first * n // 32, -(-(first + GROUP) * n // 32))
                words = {number: load(b, WORDS, source, BYTES * number, align=1) for number in numbers}
                for row in rows:
                    product = times(b, n, field(b, n, words, row, lowest), factor)
                    b.store(b.fadd(b.load(sums[row]), product), sums[row])
            for row in rows:
                store(b, b.load(sums[row]), out, BYTES * row)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def square_block(context, x):
    """Sum of squares of 512 floats, and the lanes in which it is not zero as bits."""
    signature = types.Tuple((types.float32, types.int64))(types.int64)

    def generate(context, b, signature, arguments):
        squares = Squares()
        for row in range(ROWS):
            squares.add(b, arguments[0], row)
        return context.make_tuple(b, signature.return_type, squares.total(b))

    return signature, generate


@njit(nogil=True, cache=True)
def floats(address, count):
    return carray(bytes_at(address), (4 * count,)).view(np.float32)


@njit(nogil=True, cache=True)
def mix64(z):
    z = z + np.uint64(MIX64[0])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX64[1])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX64[2])
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, cache=True)
def block_keys(key, block):
    mixed = mix64(key + np.uint64(block) * np.uint64(BLOCK_STRIDE))
    return np.uint32(mixed & np.uint64(0xFFFFFFFF)), np.uint32(mixed >> np.uint64(32))


@njit(nogil=True, cache=True)
def scaled(block, factor, room):
    """A block times a factor, at another address."""
    values, products = floats(block, BLOCK), floats(room, BLOCK)
    for i in range(BLOCK):
        products[i] = np.float32(np.float64(values[i]) * factor)
    return room


@njit(nogil=True, cache=True)
def block_at(x, rest, whole, block, factor, room):
    """The address of a block, scaled if need be: x holds the whole blocks, and `rest` what is left, filled up with zeros."""
    here = x + 4 * BLOCK * block if block < whole else rest
    return here if factor == 1.0 else scaled(here, factor, room)


@njit(nogil=True, cache=True)
def square_sum(x, rest, whole, first, last, factor, room):
    """Sum of squares of blocks first..last as a binary tree over the blocks, and the lanes that are not zero as bits."""
    lanes, tree = np.int64(0), carray(bytes_at(room + 4 * BLOCK), (ROOM - 4 * BLOCK,)).view(np.float64)
    for block in range(first, last):
        value, seen = square_block(block_at(x, rest, whole, block, factor, room))
        lanes |= seen
        total, place, level = np.float64(value), block - first, 0
        while place & 1:
            total = tree[level] + total
            place >>= 1
            level += 1
        tree[level] = total
    total = 0.0
    for level in range(64):
        if (last - first) >> level & 1:
            total = tree[level] + total
    return total, lanes


@njit(nogil=True, cache=True)
def usual(total, lanes):
    """Whether a sum of squares needs no special care: neither tiny nor huge nor of one lane only."""
    return np.float32(TINY) <= total < np.inf and lanes & (lanes - 1) != 0


@njit(nogil=True, cache=True)
def grid(x, rest, whole, first, last, total, lanes, spacing, span, unit, room):
    """Step, scale and factor of blocks first..last. The step is not finite where coordinates or norm are not."""
    if not usual(total, lanes):
        return rare_grid(x, rest, whole, first, last, total, spacing, span, unit, room)
    norm = np.sqrt(total)
    return norm * spacing, span / norm, 1.0


@njit(nogil=True, cache=True)
def rare_grid(x, rest, whole, first, last, total, spacing, span, unit, room):
    """The grid of a bucket that is empty, one-sparse, tiny, huge or not finite."""
    top, count = largest(x, rest, whole, first, last)
    if count == 0 or not top < np.inf:
        return np.float32(top), np.float32(0), 1.0
    level = FULL / np.float64(unit)
    exact = np.float32(top / level)
    if count == 1 and exact * level == top < HUGE:
        return exact, np.float32(FULL), 1 / top
    if np.float32(TINY) <= total < np.inf:
        return np.sqrt(total) * spacing, span / np.sqrt(total), 1.0
    exponent = math.frexp(top)[1]
    factor = math.ldexp(1.0, -exponent)
    norm = np.sqrt(np.float32(square_sum(x, rest, whole, first, last, factor, room)[0]))
    wide = np.float64(norm * spacing) * math.ldexp(1.0, exponent)
    step = np.float32(wide)
    if step < wide:
        step = np.nextafter(step, np.float32(np.inf))
    return step, unit / np.float32(step * factor), factor


@njit(nogil=True, cache=True)
def largest(x, rest, whole, first, last):
    """The largest absolute value, nan if there is one, and how many are not zero."""
    top, count = 0.0, 0
    for block in range(first, last):
        values = floats(x + 4 * BLOCK * block if block < whole else rest, BLOCK)
        for i in range(BLOCK):
            value = np.abs(np.float64(values[i]))
            count += value != 0
            top = value if value > top or np.isnan(value) else top
    return top, count


@njit(nogil=True, cache=True)
def check_words(words, bits, first, last, key, sums):
    """Add blocks first..last to the checksums."""
    for block in range(first, last):
        one, two = block_keys(key, block)
        check_block(words + BYTES * bits * block, bits, one, two, sums)


@njit(nogil=True, cache=True)
def add_plain(out, first, last, sources, factors, fresh):
    """Add blocks first..last of messages of plain float32 to out."""
    for block in range(first, last):
        offset = 4 * BLOCK * block
        sums = floats(out + offset, BLOCK)
        for message in range(len(sources)):
            values, factor = floats(sources[message] + offset, BLOCK), factors[0, message]
            for i in range(BLOCK):
                sums[i] = (np.float32(0) if fresh and message == 0 else sums[i]) + values[i] * factor


@lru_cache(maxsize=64)
def quantiser(bits: int, small: int = 0, stream: int = 0) -> Any:
    """The kernel that quantises and packs blocks first..last, in buckets of `per` blocks of which there are `end` in all.

    Each bucket gets its own grid, unless scale > 0 says that the grid is known. small: for buckets that are one block, where
    the norm of the next one is computed while one is packed. stream: words go past the caches.
    """

    @njit(nogil=True, cache=True)
    def quantise(x, rest, whole, first, last, end, per, spacing, span, unit, scale, factor, key, steps, words, sums, room):
        known, block, fresh = scale > 0, first, True
        while block < last:
            if small:
                here = x + 4 * BLOCK * block if block < whole else rest
                if fresh:
                    total, lanes = square_block(here)
                fresh = block >= whole or not usual(total, lanes)
                if not fresh:
                    norm, ahead = np.sqrt(total), here + 4 * BLOCK if block + 1 < whole else rest
                    steps[block] = norm * spacing
                    one, two = block_keys(key, block)
                    there = words + BYTES * bits * block
                    total, lanes = pack_and_look_ahead(bits, stream, here, span / norm, one, two, there, sums, ahead)
                    block += 1
                    continue
            bucket = block // per
            start, stop = bucket * per, min(bucket * per + per, end)
            if not known:
                if not small:
                    wide, lanes = square_sum(x, rest, whole, start, stop, 1.0, room)
                    total = np.float32(wide)
                step, scale, factor = grid(x, rest, whole, start, stop, total, lanes, spacing, span, unit, room)
                steps[bucket] = step
                if not step < np.inf:
                    return False
            stop = min(stop, last)
            while block < stop:
                plain = factor == 1.0 and block < whole
                count = min(stop, whole) - block if plain else 1
                here = x + 4 * BLOCK * block if plain else block_at(x, rest, whole, block, factor, room)
                for i in range(block, block + count):
                    one, two = block_keys(key, i)
                    pack_block(bits, stream, here, scale, one, two, words + BYTES * bits * i, sums)
                    here += 4 * BLOCK
                block += count
        if stream:
            settle()
        return True

    return quantise


@lru_cache(maxsize=64)
def accumulator(bits: int, low: int) -> Any:
    """The kernel that adds blocks first..last of several messages to out, or writes their sum.

    factors: (buckets, messages), of levels if low, else of levels times 2^(32 - bits), which is faster.
    """

    @njit(nogil=True, cache=True)
    def accumulate(out, first, last, per, sources, factors, count, fresh):
        for block in range(first, last):
            here, row = out + 4 * BLOCK * block, factors + 4 * count * (block // per)
            add_block(bits, low, here, sources, BYTES * bits * block, row, count, fresh)

    return accumulate
