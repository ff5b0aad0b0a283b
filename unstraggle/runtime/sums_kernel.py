"""The kernel of `sums`: loaded only for long vectors.

Any number of vectors, added in one pass: weights, the sum so far, a factor for all, and whether every number that comes out is
finite. It goes by whole cache lines, as compilers do not by themselves, so that they can be written past the caches.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,attr-defined,call-arg,import-untyped"
# mypy: disable-error-code="var-annotated"

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..addresses import bytes_at, load, settle, store

PIECE = 1 << 15
"""Coordinates that are summed at a time."""
OUT, LENGTH, FIRST, COUNT, FRESH, PAST, BEFORE, HEAD, UNDER = range(9)
"""Columns of a table of sums: the address of one, how long it is, which vectors go into it, whether it is new, whether it is
written past the caches, the pieces of those before it, and from where on it has what factor, see `sums.Sum`."""
COLUMNS = 9
LINE, TURN = 64, 2
"""Bytes of a cache line, and how many lines are made in a turn: there are registers for that."""
FEW = 8
"""Vectors that are added at once: of more, memory would be read in too many places."""
WORD, DOUBLE = ir.IntType(64), ir.DoubleType()


class Line(NamedTuple):
    """The numbers of a line of a sum: as they are written, as those of a vector stand, and as they are added up."""

    out: ir.VectorType
    given: ir.VectorType
    wide: ir.VectorType


def size_of(number):
    """Bytes of a number."""
    return 8 if number == DOUBLE else 4


def at(b, base, index, number):
    """Where a number stands."""
    return b.add(base, b.mul(index, WORD(size_of(number))))


def converted(b, value, kind):
    """Numbers in another precision."""
    if value.type == kind:
        return value
    return b.fpext(value, kind) if kind.element == DOUBLE else b.fptrunc(value, kind)


def spread(b, value, kind):
    """One number in all places of a line."""
    one = b.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
    return b.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None))


def begin_line(b, total, written, fresh, line):
    """The sum so far. A new one begins with the zero to which any number can be added without a change, -0.0, too."""
    b.store(ir.Constant(line.wide, [-0.0] * line.wide.count), total)
    with b.if_then(b.not_(fresh)):
        b.store(converted(b, load(b, line.out, written, align=LINE), line.wide), total)


def add_line(b, total, given, weight, line):
    """Add a line of a vector, which may begin anywhere."""
    value = converted(b, load(b, line.given, given, align=1), line.wide)
    more = b.fmul(spread(b, weight, line.wide), value, flags=("contract",))
    b.store(b.fadd(b.load(total), more, flags=("contract",)), total)


def write_line(b, total, written, factor, check, line, past):
    """A sum that is complete. check: stays zero while all numbers are finite; what is not, less itself, is none."""
    found = converted(b, b.fmul(spread(b, factor, line.wide), b.load(total)), line.out)
    b.store(b.fadd(b.load(check), b.fsub(found, found)), check)
    store(b, found, written, align=LINE, stream=past)


def is_zero(b, check, line):
    """Whether all places of a line are; what is no number is none."""
    bad, places = b.fcmp_unordered("une", b.load(check), ir.Constant(line.out, None)), ir.IntType(line.out.count)
    return b.icmp_unsigned("==", b.bitcast(bad, places), places(0))


def loop_over_lines(b, args, line, past):
    """All lines of a sum, TURN at a time, and for each turn all vectors; whether all numbers are finite."""
    out, vectors, weights, count, fresh, factor, begin, turns = args
    sums = [cgutils.alloca_once(b, line.wide) for _ in range(TURN)]
    check = cgutils.alloca_once_value(b, ir.Constant(line.out, None))
    with cgutils.for_range(b, turns) as turn:
        first = b.add(begin, b.mul(turn.index, WORD(TURN * line.out.count)))
        starts = [b.add(first, WORD(i * line.out.count)) for i in range(TURN)]
        lines = [at(b, out, start, line.out.element) for start in starts]
        for total, written in zip(sums, lines, strict=True):
            begin_line(b, total, written, fresh, line)
        for term in terms_of(b, count):
            vector, weight = load(b, WORD, at(b, vectors, term, DOUBLE)), load(b, DOUBLE, at(b, weights, term, DOUBLE))
            for total, start in zip(sums, starts, strict=True):
                add_line(b, total, at(b, vector, start, line.given.element), weight, line)
        for total, written in zip(sums, lines, strict=True):
            write_line(b, total, written, factor, check, line, past)
    return is_zero(b, check, line)


def terms_of(b, count):
    """A loop over vectors that takes two at a time, and the last one of an odd number: as a rule there are two."""
    with cgutils.for_range(b, b.lshr(count, WORD(1))) as pair:
        term = b.shl(pair.index, WORD(1))
        yield term
        yield b.add(term, WORD(1))
    with b.if_then(b.trunc(count, ir.IntType(1))):
        yield b.sub(count, WORD(1))


def by_lines(past):
    """A function that makes `turns` times TURN lines of a sum, from coordinate `begin` on, where a cache line begins; whether
    all are finite. out: an address. vectors, weights: where addresses of vectors and their weights stand. to, of: empty arrays
    of the types of the sum and of vectors. past: whether it writes past the caches."""

    @intrinsic
    def blend_lines(context, out, vectors, weights, count, fresh, factor, begin, turns, to, of):
        def generate(context, b, signature, args):
            number, given = context.get_data_type(to.dtype), context.get_data_type(of.dtype)
            kinds = [ir.VectorType(kind, LINE // size_of(number)) for kind in (number, given, DOUBLE)]
            return loop_over_lines(b, args[:-2], Line(*kinds), past)

        whole = types.int64
        return types.boolean(whole, whole, whole, whole, types.boolean, types.float64, whole, whole, to, of), generate

    return blend_lines


blend_lines, blend_past = by_lines(False), by_lines(True)


@njit(cache=True, nogil=True)
def numbers_at(address, length, like):
    """A vector that stands at an address."""
    return carray(bytes_at(address), (length * like.itemsize,)).view(like.dtype)


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")
def blend_rest(out, begin, head, rest, end, at, weights, fresh, factor, to, of):
    """Number by number what stands before `head` and from `rest` on; whether all are finite."""
    written, fine = numbers_at(out, end, to), True
    for i in range(begin, end - (rest - head)):
        i = i if i < head else i + (rest - head)
        total = -0.0 if fresh else np.float64(written[i])
        for j in range(len(at)):
            total += weights[j] * numbers_at(at[j], end, of)[i]
        written[i] = factor * total
        fine &= written[i] - written[i] == 0
    return fine


@njit(cache=True, nogil=True)
def blend_few(out, begin, end, at, weights, fresh, factor, past, to, of):
    """A sum of few vectors, from one coordinate to another; whether it is finite. at: their addresses."""
    whole = LINE // to.itemsize
    head = min(end, begin + -(out // to.itemsize + begin) % whole)
    turns = (end - head) // (TURN * whole)
    fine = blend_rest(out, begin, head, head + turns * TURN * whole, end, at, weights, fresh, factor, to, of)
    lists = at.ctypes.data, weights.ctypes.data, len(at)
    if past:
        fine &= blend_past(out, *lists, fresh, factor, head, turns, to, of)
        settle()
        return fine
    return blend_lines(out, *lists, fresh, factor, head, turns, to, of) and fine


@njit(cache=True, nogil=True)
def blend_many(out, begin, end, at, weights, fresh, factor, past, room, like):
    """The same of many: a few at a time are added to a sum that stays in the cache."""
    base, one, written = np.empty(1, np.int64), np.ones(1), numbers_at(out, end, like)
    base[0] = room.ctypes.data - begin * room.itemsize
    for i in range(begin, end):
        room[i - begin] = -0.0 if fresh else np.float64(written[i])
    for few in range(0, len(at), FEW):
        blend_few(base[0], begin, end, at[few : few + FEW], weights[few : few + FEW], False, 1.0, False, room, like)
    return blend_few(out, begin, end, base, one, True, factor, past, like, room)


@njit(cache=True, nogil=True)
def blend(row, begin, end, at, weights, factor, room, like):
    """A part of a sum that has one factor; whether it is finite."""
    fresh, past = row[FRESH] != 0, row[PAST] != 0
    if len(at) <= FEW:
        return blend_few(row[OUT], begin, end, at, weights, fresh, factor, past, like, like)
    return blend_many(row[OUT], begin, end, at, weights, fresh, factor, past, room, like)


@njit(cache=True, nogil=True, error_model="numpy")
def factor_of(row, at, weights, factor, like):
    """By what a sum is multiplied: where that is so, divided by its number at some coordinate, as it will be written."""
    under, one = row[UNDER], np.empty(1, like.dtype)
    if under < 0:
        return factor
    blend_rest(one.ctypes.data - under * like.itemsize, under, under, under, under + 1, at, weights, True, 1.0, like, like)
    return factor / np.float64(one[0])


@njit(cache=True, nogil=True)
def blend_piece(number, sums, vectors, weights, room, like):
    """The piece of a table that has this number; whether it is finite. A factor stands behind the weights of a sum. room: for
    PIECE numbers. like: an empty array of the type of all."""
    row = sums[np.searchsorted(sums[:, BEFORE], number, side="right") - 1]
    begin = (number - row[BEFORE]) * PIECE
    end, first, last = min(begin + PIECE, row[LENGTH]), row[FIRST], row[FIRST] + row[COUNT]
    at, w, head, fine = vectors[first:last], weights[first:last], min(max(begin, row[HEAD]), end), True
    if begin < head:
        fine &= blend(row, begin, head, at, w, 1.0, room, like)
    if head < end:
        fine &= blend(row, head, end, at, w, factor_of(row, at, w, weights[last], like), room, like)
    return fine
