"""Triton kernels: a thread is some lanes of one block, and a program takes BLOCKS blocks. The same bits as `cpu_kernels`.

All rows are loaded before anything is stored, since a load does not move above a store. Where WHOLE says that all blocks of the
program lie within the vector, there are no masks, so that a thread may take several lanes in one instruction.
Launch with enable_fp_fusion=False, or sums are rounded differently.
"""
# mypy: ignore-errors
# ruff: noqa: RET505, RUF005, SIM108 (Triton does not compile what these rules ask for)

import inspect

import triton
import triton.language as tl

from . import layout

LANES = tl.constexpr(layout.LANES)
ROWS = tl.constexpr(layout.ROWS)
BLOCK = tl.constexpr(layout.BLOCK)
TINY = tl.constexpr(layout.TINY)
STRIDE = tl.constexpr(layout.BLOCK_STRIDE)
LANE_STRIDE = tl.constexpr(layout.LANE_KEYS[1])
START, FIRST, SECOND = (tl.constexpr(m) for m in layout.MIX64)
ROW_FIRST, ROW_SECOND = (tl.constexpr(m) for m in layout.MIX32)
SIGN = tl.constexpr(0x80000000)
RARE = tl.constexpr(-1.0)


def kernel(function):
    """A kernel that is compiled once for all seeds and lengths, not again for those that are multiples of 16."""
    numbers = {
        "first",
        "length",
        "count",
        "per",
        "key",
        "blocks",
        "buckets",
        "rows",
        "width",
        "parts",
        "spacing",
        "span",
        "slots",
    }
    plain = [name for name in inspect.signature(function).parameters if name in numbers]
    return triton.jit(function, do_not_specialize=plain)


@triton.jit
def place(first, BLOCKS: tl.constexpr):
    """Numbers of the blocks and lanes of this program, whose launch starts at block `first`."""
    block = first + tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)[:, None]
    return block, tl.arange(0, LANES)[None, :]


@triton.jit
def left_of(count, block, SIZE: tl.constexpr):
    """How many of `count` numbers stand in each block and after it, at most SIZE."""
    return tl.minimum(tl.maximum(count - block * SIZE, 0), SIZE).to(tl.int32)


@triton.jit
def bucket_of(block, per, SPREAD: tl.constexpr):
    """The bucket of each block. SPREAD: 0 for one bucket in all, 1 for one per block, 2 for `per` blocks each."""
    if SPREAD == 0:
        return block * 0
    if SPREAD == 1:
        return block
    return block // per


@triton.jit
def load_rows(source, left, lane, COUNT: tl.constexpr, WHOLE: tl.constexpr):
    """COUNT rows of each block; zero where the vector has ended."""
    rows = ()
    for row in tl.static_range(COUNT):
        at = lane + row * LANES
        if WHOLE:
            rows = rows + (tl.load(source + at),)
        else:
            rows = rows + (tl.load(source + at, mask=at < left, other=0),)
    return rows


@triton.jit
def store_rows(target, left, lane, rows, COUNT: tl.constexpr, WHOLE: tl.constexpr):
    for row in tl.static_range(COUNT):
        at = lane + row * LANES
        if WHOLE:
            tl.store(target + at, rows[row])
        else:
            tl.store(target + at, rows[row], mask=at < left)


@triton.jit
def block_keys(key, block):
    z = key + block.to(tl.uint64) * STRIDE + START
    z = (z ^ (z >> 30)) * FIRST
    z = (z ^ (z >> 27)) * SECOND
    z = z ^ (z >> 31)
    return z.to(tl.uint32), (z >> 32).to(tl.uint32)


@triton.jit
def row_key(row):
    """The key of a row, from its number plus one; the compiler knows it."""
    h = row.to(tl.uint32)
    h = (h ^ (h >> 16)) * 0x85EBCA6B
    h = (h ^ (h >> 13)) * 0xC2B2AE35
    return h ^ (h >> 16)


@triton.jit
def lane_keys(lane):
    return lane.to(tl.uint32) * LANE_STRIDE


@triton.jit
def rounded(y, base, two, row, BITS: tl.constexpr):
    """Fixed-point numbers plus dither: the highest BITS bits are the fields."""
    h = (base ^ row_key(tl.full((1, 1), row + 1, tl.int32))) * ROW_FIRST
    h = ((h ^ (h >> 15)) + two) * ROW_SECOND
    uniform = h.to(tl.int32, bitcast=True) >> 1 if BITS == 1 else (h >> BITS).to(tl.int32, bitcast=True)
    return (y.to(tl.int32) + uniform).to(tl.uint32, bitcast=True)


@triton.jit
def pack_rows(rows, inner, scale, one, two, lane, BITS: tl.constexpr, WHOLE: tl.constexpr):
    """BITS words of each lane. A row uses bits row * BITS and following; what a word has no room for starts the next one."""
    base, words = one ^ lane_keys(lane), ()
    word = tl.zeros_like(base)
    for row in tl.static_range(ROWS):
        value = rounded(rows[row] * scale, base, two, row, BITS)
        if BITS == 1 and not WHOLE:
            value = tl.where(lane + row * LANES < inner, value, 0)
        if row * BITS % 32 + BITS > 32:
            words = words + ((word << (32 - row * BITS % 32)) | (value >> (row * BITS % 32)),)
        if row * BITS % 32 == 0 or row * BITS % 32 + BITS > 32:
            word = value >> (32 - BITS)
        else:
            word = (word << BITS) | (value >> (32 - BITS))
        if row * BITS % 32 + BITS == 32:
            words = words + (word,)
    return words


@triton.jit
def add_sums(sums, slots, words, one, two, lane, BITS: tl.constexpr):
    """Add words to the checksums, lane by lane, in one of several slots, since sums of whole numbers know no order."""
    plain = words[0].to(tl.uint32, bitcast=True)
    weighted = plain
    for number in tl.static_range(1, BITS):
        plain += words[number].to(tl.uint32, bitcast=True)
        weighted += plain
    low = tl.sum((plain * ((one ^ lane_keys(lane)) | 1)).to(tl.int32, bitcast=True), axis=0)
    high = tl.sum((weighted * ((two ^ lane_keys(lane)) | 1)).to(tl.int32, bitcast=True), axis=0)
    here = sums + tl.program_id(0) % slots * (2 * LANES) + tl.arange(0, LANES)
    tl.atomic_add(here, low, sem="relaxed")
    tl.atomic_add(here + LANES, high, sem="relaxed")


@triton.jit
def pack_blocks(rows, block, lane, inner, scale, key, words, count, sums, slots, BITS: tl.constexpr, WHOLE: tl.constexpr):
    """Quantise and pack the rows of the blocks of this program. scale: (BLOCKS, 1), or a number."""
    one, two = block_keys(key, block)
    packed = pack_rows(rows, inner, scale, one, two, lane, BITS, WHOLE)
    room = left_of(count, block, LANES * BITS)
    store_rows(words + block * (LANES * BITS), room, lane, packed, BITS, WHOLE)
    add_sums(sums, slots, packed, one, two, lane, BITS)


@triton.jit
def square_rows(rows, BLOCKS: tl.constexpr):
    """(BLOCKS,) sums of squares in the common order, and in how many lanes a coordinate is not zero."""
    top = tl.abs(rows[0])
    a, b, c, d = rows[0] * rows[0], rows[1] * rows[1], rows[2] * rows[2], rows[3] * rows[3]
    for row in tl.static_range(1, ROWS):
        top = tl.maximum(top, tl.abs(rows[row]))
    for row in tl.static_range(4, ROWS, 4):
        a += rows[row] * rows[row]
        b += rows[row + 1] * rows[row + 1]
        c += rows[row + 2] * rows[row + 2]
        d += rows[row + 3] * rows[row + 3]
    total = (a + b) + (c + d)
    total = add_halves(add_halves(add_halves(add_halves(total, 8, BLOCKS), 4, BLOCKS), 2, BLOCKS), 1, BLOCKS)
    return tl.reshape(total, (BLOCKS,)), tl.sum((top > 0.0).to(tl.int32), axis=1)


@triton.jit
def add_halves(values, HALF: tl.constexpr, BLOCKS: tl.constexpr):
    """(BLOCKS, HALF) from (BLOCKS, 2 HALF): the first half of each row plus the second."""
    first, second = tl.split(tl.permute(tl.reshape(values, (BLOCKS, 2, HALF)), (0, 2, 1)))
    return first + second


@triton.jit
def grid_of(total, lanes, spacing, span):
    """Steps and scales. RARE as step, and zero as scale, where the grid takes more care: one lane alone, or extreme squares."""
    usual = (total >= TINY) & (total < float("inf")) & (lanes > 1)
    norm = tl.sqrt_rn(tl.where(usual, total, 1.0))
    scale = tl.where(usual, tl.div_rn(span + tl.zeros_like(norm), norm), 0.0)
    empty = (total == 0.0) & (lanes == 0)
    return tl.where(usual, norm * spacing, tl.where(empty, 0.0, RARE)), scale


@kernel
def square_kernel(x, first, length, totals, lanes, blocks, BLOCKS: tl.constexpr, WHOLE: tl.constexpr):
    """Sums of squares of blocks, and in how many of their lanes a coordinate is not zero."""
    block, lane = place(first, BLOCKS)
    rows = load_rows(x + block * BLOCK, left_of(length, block, BLOCK), lane, ROWS, WHOLE)
    total, count = square_rows(rows, BLOCKS)
    at = tl.reshape(block, (BLOCKS,))
    tl.store(totals + at, total, mask=at < blocks)
    tl.store(lanes + at, count, mask=at < blocks)


@triton.jit
def pairs(values, COUNT: tl.constexpr):
    """Sums of neighbours."""
    sums = ()
    for at in tl.static_range(0, COUNT, 2):
        sums = sums + (values[at] + values[at + 1],)
    return sums


@kernel
def tree_kernel(
    values, lanes, rows, width, parts, sums, counts, LEAVES: tl.constexpr, LEVELS: tl.constexpr, THREADS: tl.constexpr
):
    """Sums of LEAVES neighbours as a binary tree, a thread each; of lanes, too. values: (rows, width), sums: (rows, parts)."""
    place = tl.program_id(0).to(tl.int64) * THREADS + tl.arange(0, THREADS)
    inside, start = place < rows * parts, place % parts * LEAVES
    here, leaves, count = place // parts * width + start, (), tl.zeros((THREADS,), tl.int32)
    for leaf in tl.static_range(LEAVES):
        known = inside & (start + leaf < width)
        leaves = leaves + (tl.load(values + here + leaf, mask=known, other=0.0).to(tl.float64),)
        count += tl.load(lanes + here + leaf, mask=known, other=0)
    for level in tl.static_range(LEVELS):
        leaves = pairs(leaves, LEAVES >> level)
    tl.store(sums + place, leaves[0], mask=inside)
    tl.store(counts + place, count, mask=inside)


@kernel
def grid_kernel(totals, lanes, buckets, spacing, span, steps, scales, THREADS: tl.constexpr):
    """Steps and scales of buckets from their sums of squares."""
    at = tl.program_id(0).to(tl.int64) * THREADS + tl.arange(0, THREADS)
    total = tl.load(totals + at, mask=at < buckets, other=0.0).to(tl.float32)
    step, scale = grid_of(total, tl.load(lanes + at, mask=at < buckets, other=0), spacing, span)
    tl.store(steps + at, step, mask=at < buckets)
    tl.store(scales + at, scale, mask=at < buckets)


@kernel
def pack_kernel(
    x,
    first,
    length,
    scales,
    per,
    key,
    words,
    count,
    sums,
    slots,
    SPREAD: tl.constexpr,
    BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Quantise and pack with known scales, one for `per` blocks."""
    block, lane = place(first, BLOCKS)
    inner = left_of(length, block, BLOCK)
    rows = load_rows(x + block * BLOCK, inner, lane, ROWS, WHOLE)
    scale = tl.load(scales + bucket_of(block, per, SPREAD), mask=block * BLOCK < length, other=0.0)
    pack_blocks(rows, block, lane, inner, scale, key, words, count, sums, slots, BITS, WHOLE)


@kernel
def block_kernel(
    x,
    first,
    length,
    spacing,
    span,
    key,
    steps,
    words,
    count,
    sums,
    slots,
    blocks,
    BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Norm, quantise and pack in one pass, a bucket being a block."""
    block, lane = place(first, BLOCKS)
    inner = left_of(length, block, BLOCK)
    rows = load_rows(x + block * BLOCK, inner, lane, ROWS, WHOLE)
    total, lanes = square_rows(rows, BLOCKS)
    step, scale = grid_of(total, lanes, spacing, span)
    at = tl.reshape(block, (BLOCKS,))
    tl.store(steps + at, step, mask=at < blocks)
    pack_blocks(rows, block, lane, inner, scale[:, None], key, words, count, sums, slots, BITS, WHOLE)


@kernel
def mend_kernel(x, numbers, scales, per, length, key, words, count, blocks, BITS: tl.constexpr, BLOCKS: tl.constexpr):
    """Quantise and pack some buckets of `per` blocks each, which stand one after the other in x. numbers: which they are."""
    here, lane = place(0, BLOCKS)
    inside = here < blocks
    bucket = tl.load(numbers + here // per, mask=inside, other=0)
    scale = tl.load(scales + here // per, mask=inside, other=0.0)
    block = tl.where(inside, bucket * per + here % per, count)
    one, two = block_keys(key, block)
    rows = load_rows(x + here * BLOCK, tl.where(inside, BLOCK, 0), lane, ROWS, False)
    packed = pack_rows(rows, left_of(length, block, BLOCK), scale, one, two, lane, BITS, False)
    store_rows(words + block * (LANES * BITS), left_of(count, block, LANES * BITS), lane, packed, BITS, False)


@kernel
def check_kernel(words, first, count, key, sums, slots, BITS: tl.constexpr, BLOCKS: tl.constexpr, WHOLE: tl.constexpr):
    """The checksums of words."""
    block, lane = place(first, BLOCKS)
    one, two = block_keys(key, block)
    room = left_of(count, block, LANES * BITS)
    add_sums(sums, slots, load_rows(words + block * (LANES * BITS), room, lane, BITS, WHOLE), one, two, lane, BITS)


@triton.jit
def product(words, at, last, used, mask, factor, BITS: tl.constexpr, WHOLE: tl.constexpr):
    """Fields times their factors; of one bit, the factor with its sign turned where the bit is set."""
    value = word_at(words + at, mask, WHOLE) << used
    if 32 % BITS != 0:  # a field may end in the next word; if not, what is added stands below it
        value = value | ((word_at(words + last, mask, WHOLE) >> 1) >> (31 - used))
    if BITS == 1:
        return ((value & SIGN) ^ factor.to(tl.uint32, bitcast=True)).to(tl.float32, bitcast=True)
    else:
        return (value.to(tl.int32, bitcast=True) >> (32 - BITS)).to(tl.float32) * factor


@triton.jit
def word_at(place, mask, WHOLE: tl.constexpr):
    word = tl.load(place) if WHOLE else tl.load(place, mask=mask, other=0)
    return word.to(tl.uint32, bitcast=True)


@kernel
def add_kernel(
    out,
    first,
    length,
    per,
    words,
    factors,
    SPREAD: tl.constexpr,
    FRESH: tl.constexpr,
    MESSAGES: tl.constexpr,
    BITS: tl.constexpr,
    BLOCKS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Add messages to out, or write their sum there. words: a pointer each; factors: (buckets, MESSAGES).

    Threads follow the coordinates here, so that a warp reads and writes out without gaps; words come from the cache.
    """
    block = first + tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)[:, None, None]
    row, lane = tl.arange(0, ROWS)[None, :, None], tl.arange(0, LANES)[None, None, :]
    at = block * BLOCK + (row * LANES + lane)
    mask, here = at < length, block * (LANES * BITS) + lane
    word, last = here + row * BITS // 32 * LANES, here + (row * BITS + BITS - 1) // 32 * LANES
    used = (row * BITS % 32).to(tl.uint32)
    bucket = factors + bucket_of(block, per, SPREAD) * MESSAGES
    if FRESH:
        total = tl.zeros((BLOCKS, ROWS, LANES), tl.float32)
    elif WHOLE:
        total = tl.load(out + at)
    else:
        total = tl.load(out + at, mask=mask, other=0.0)
    for message in tl.static_range(MESSAGES):
        factor = tl.load(bucket + message, mask=block * BLOCK < length, other=0.0)
        total += product(words[message], word, last, used, mask, factor, BITS, WHOLE)
    if WHOLE:
        tl.store(out + at, total)
    else:
        tl.store(out + at, total, mask=mask)
