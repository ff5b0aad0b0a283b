"""What two threads do who share the pieces of one pass, without Python's lock, see `mate`.

The board is an array of 64-bit numbers, written and read at once (atomically). Pieces have numbers that go on from pass to
pass: who takes one raises NEXT, and only while it is below END, so that whoever comes late finds nothing to take. What stands
on the board of a pass is written before END is, and again only when all its pieces are DONE.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,call-arg,import-untyped"
# mypy: disable-error-code="call-overload,var-annotated"

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ..addresses import bytes_at
from .sums_kernel import COLUMNS, PIECE, blend_piece, numbers_at

LINE = 8
"""Numbers of a cache line: what one thread writes often is not on the line of what the other one does."""
NEXT, END, DONE, BAD, BELL, TABLE = (LINE * place for place in range(6))
SUMS, VECTORS, WEIGHTS, ROWS, TERMS, PIECES, START = (TABLE + place for place in range(7))
"""Of a pass: what its table says, see `mate.Table`, and the number of its first piece."""
BOARD = TABLE + LINE
PATIENCE = 1 << 12
"""Looks for the other thread's last piece before this one lets others have the processor: that one may have none."""

sleep = types.ExternalFunction("read", types.int64(types.int32, types.CPointer(types.uint8), types.uint64))
let_others = types.ExternalFunction("sched_yield", types.int32())
processor = types.ExternalFunction("sched_getcpu", types.int32())
NUMBER = ir.IntType(64)
WHOLE = np.empty(0, np.int64)
"""For what is made of whole numbers."""


def place(b, base, index):
    """Where a number of the board stands."""
    return b.inttoptr(b.add(base, b.mul(index, NUMBER(8))), NUMBER.as_pointer())


@intrinsic
def load(context, board, index):
    def generate(context, b, signature, args):
        return b.load_atomic(place(b, *args), "seq_cst", 8)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def store(context, board, index, value):
    def generate(context, b, signature, args):
        b.store_atomic(args[2], place(b, *args[:2]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def add(context, board, index, value):
    """Add to a number."""

    def generate(context, b, signature, args):
        b.atomic_rmw("add", place(b, *args[:2]), args[2], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def swap(context, board, index, old, new):
    """Write a number if it is still the old one; whether it was."""

    def generate(context, b, signature, args):
        found = b.cmpxchg(place(b, *args[:2]), args[2], args[3], "seq_cst", "seq_cst")
        return b.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64, types.int64), generate


@njit(cache=True, nogil=True)
def drain(board, room, like):
    """Do pieces that nobody has taken, until there are none. like: an empty array of the type of their numbers."""
    while True:
        number = load(board, NEXT)
        if number >= load(board, END):
            return
        if not swap(board, NEXT, number, number + 1):
            continue
        rows, terms = load(board, ROWS), load(board, TERMS)
        sums = numbers_at(load(board, SUMS), rows * COLUMNS, WHOLE).reshape((rows, COLUMNS))
        vectors = numbers_at(load(board, VECTORS), terms, WHOLE)
        weights = numbers_at(load(board, WEIGHTS), terms, room)
        if not blend_piece(number - load(board, START), sums, vectors, weights, room, like):
            store(board, BAD, 1)
        add(board, DONE, 1)


@njit(cache=True, nogil=True)
def serve(board, bell, like):
    """Sleep until somebody rings, and lend a hand; again and again, while there is a bell."""
    room = np.empty(PIECE)
    while sleep(bell, bytes_at(board + 8 * BELL), 8) == 8:
        drain(board, room, like)


@njit(cache=True, nogil=True)
def begin(board, table):
    """Put a pass on the board: its table, which must stay where it is until it is done."""
    for place in range(START - TABLE):
        store(board, TABLE + place, load(table, place))
    store(board, BAD, 0)
    store(board, START, load(board, END))
    store(board, END, load(board, END) + load(board, PIECES))


@njit(cache=True, nogil=True)
def end(board, room, like):
    """Do what is left of a pass, wait for what the other thread has taken, and tell whether all numbers are finite."""
    drain(board, room, like)
    looks = 0
    while load(board, DONE) < load(board, END):
        looks += 1
        if looks > PATIENCE:
            let_others()
    return load(board, BAD) == 0


@njit(cache=True, nogil=True)
def here():
    """The processor of this thread."""
    return processor()
