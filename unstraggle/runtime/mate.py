"""Mate: a second thread of this process for passes over memory, beside which Python goes on.

Before workers have their orders, and after the last message, there are numbers to move and about as much to look up and to
write down; workers are idle then, and so is a processor. A thread of Python's would need Python's lock to begin, which the one
that wakes it has. This one sleeps in a kernel and begins there. Whoever comes first takes the next piece, so that nobody waits
for a thread that has no processor.
"""

from __future__ import annotations

import os
import signal
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import attrgetter

import numpy as np

from ..threads import cores
from . import mate_kernel as kernel
from .sums import Sum, address
from .sums_kernel import PIECE

WORTH = 1 << 18
"""Numbers that a pass reads and writes, from which on it is worth it to wake another thread."""
CACHED = 1 << 21
"""Bytes of new sums that a core keeps for who needs them next. Longer ones are written past the caches: else each line is
fetched before it is written, from whoever has read it, which takes up to three times as long where that was another core."""


class Table:
    """Sums of one type for the kernels, which know vectors by their address.

    at: where stand the addresses of its rows, of the addresses of vectors, and of weights, behind those of each sum its factor;
    how many rows, vectors and pieces there are. numbers: that are made; size: that are read or written.
    """

    def __init__(self, sums: Sequence[Sum]) -> None:
        rows, vectors, weights, pieces = array("q"), array("q"), array("d"), 0
        past = sum(one.out.nbytes for one in sums) > CACHED
        for one in sums:
            rows.extend((address(one.out), len(one.out), len(vectors), len(one.vectors)))
            rows.extend((one.fresh, one.fresh and past, pieces, one.head, one.under))
            vectors.extend((*map(address, one.vectors), 0))
            weights.extend((*map(attrgetter("real"), one.weights), one.factor))
            pieces += -(-len(one.out) // PIECE)
        tables = rows, vectors, weights
        table = array("q", (*(some.buffer_info()[0] for some in tables), len(sums), len(vectors), pieces))
        self._held, self.at = (*tables, table), table.buffer_info()[0]
        self.numbers, self.kind = sum(len(one.out) for one in sums), sums[0].out.dtype.str
        self.size = self.numbers + sum(len(one.out) * len(one.vectors) for one in sums)


class Board:
    """Where a pass over numbers of a type is put, so that threads can share it."""

    def __init__(self, kind: str) -> None:
        self._numbers, self._room, self._like = np.zeros(kernel.BOARD, np.int64), np.empty(PIECE), np.empty(0, kind)
        self._at = address(self._numbers)

    def begin(self, table: Table) -> None:
        """One at a time."""
        kernel.begin(self._at, table.at)

    def end(self) -> bool:
        """Do what nobody has done, and wait for the rest; whether all numbers are finite."""
        return bool(kernel.end(self._at, self._room, self._like))

    def serve(self, bell: int) -> None:
        """Sleep until somebody rings, and lend a hand; again and again, without Python's lock."""
        kernel.serve(self._at, bell, self._like)


class Mate:
    """A thread that sleeps until there is a pass over numbers of its type."""

    def __init__(self, kind: str) -> None:
        self._board, self._bell, self._busy, self._away = Board(kind), os.eventfd(0), threading.Lock(), -1
        self._board.end()  # there is nothing yet: this compiles, which must not be left to a process that ends
        self._board.serve(-1)  # there is no bell either
        self._thread = threading.Thread(target=self._serve, name="unstraggle mate", daemon=True)
        self._thread.start()

    def begin(self, table: Table) -> Callable[[], bool]:
        """Begin a pass; gives what ends it, and tells whether all numbers are finite."""
        if not self._busy.acquire(blocking=False):  # another thread's pass
            return alone(table)
        self._board.begin(table)
        self._keep_away(kernel.here())
        os.eventfd_write(self._bell, 1)
        return partial(self._end, table)

    def _end(self, table: Table) -> bool:
        """table: must be there until then."""
        fine = self._board.end()
        self._busy.release()
        return fine

    def _keep_away(self, here: int) -> None:
        """Linux likes to wake a thread on the processor of who wakes it, where it would wait until that one sleeps again."""
        if here != self._away and (others := os.sched_getaffinity(0) - {here}):
            os.sched_setaffinity(self._thread.native_id or 0, others)
            self._away = here

    def _serve(self) -> None:
        """Signals are for other threads, which may have to wake up for them."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self._board.serve(self._bell)


def begin(table: Table) -> Callable[[], bool]:
    """Begin a pass, with a mate where that is worth it; gives what ends it, and tells whether all numbers are finite."""
    mate = _mate(os.getpid(), table.kind) if table.size >= WORTH else None
    return alone(table) if mate is None else mate.begin(table)


def alone(table: Table) -> Callable[[], bool]:
    """A pass that is done at once."""
    board = Board(table.kind)
    board.begin(table)
    fine = board.end()
    return lambda: fine


@lru_cache(maxsize=4)
def _mate(process: int, kind: str) -> Mate | None:
    """Of this process: a parent's thread does not survive a fork. None where there is no processor for it."""
    return Mate(kind) if cores() > 1 and hasattr(os, "eventfd") else None
