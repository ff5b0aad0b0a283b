"""Depot: what a master shares with the workers of its host. Long parameters and messages stand there, and only notes travel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..runtime import frame
from ..runtime.message import Bytes, Message, Order
from ..runtime.payload import payload_sizes
from ..scheme.code import Code
from .commons import LONG, PLACE, Commons

SIDE_HEAD = 64
"""Bytes before parameters: the round that they are of, as an int64."""
NONE = -1
"""In place of a round: what stands there is of none."""
ROW = 4
"""Numbers of a row of a table of slots: message, where its frame begins, its bytes, and where in it the payload begins."""
ALIGN = 64


def side_size(size: int) -> int:
    """Bytes for parameters of `size` bytes and what stands before them."""
    return SIDE_HEAD + -(-size // ALIGN) * ALIGN


class Depot:
    """Two sides for the parameters of rounds in turn, and for each worker's process memory with a slot for each message.

    long: whether parameters are long enough to stand here; else they go along with orders.
    """

    def __init__(self, code: Code, dim: int, dtype: np.dtype[Any]) -> None:
        self._dtype, self._bytes = dtype, dim * dtype.itemsize
        self.long = self._bytes >= LONG
        self._sides = Commons(2 * side_size(self._bytes), read_only=True) if self.long else None
        for side in (0, 1) if self.long else ():
            self._side(side)[:8].view(np.int64)[0] = NONE
        tasks = np.bincount(code.tasks.worker, minlength=code.n)[code.messages.worker]
        heads = [frame.head_size(int(count)) for count in tasks]
        sizes = payload_sizes(code, dim, dtype)
        self._tables = [_table(np.flatnonzero(code.messages.worker == worker), heads, sizes) for worker in range(code.n)]
        self._slots: dict[int, tuple[Commons, dict[int, tuple[Bytes, Bytes]]]] = {}
        self._copy: tuple[int, Bytes] = -1, np.empty(0, np.uint8)

    # Parameters

    def lend(self, round: int) -> Any:
        """The side of a round, which is overwritten from now on. Who still reads it is two rounds late."""
        if self._sides is None:
            return None
        side = self._side(round)
        side[:8].view(np.int64)[0] = NONE
        return side[SIDE_HEAD : SIDE_HEAD + self._bytes].view(self._dtype)

    def write(self, order: Order) -> bytes:
        """Put the parameters of a round on its side, unless they stand there; gives the place."""
        assert self._sides is not None
        side = self._side(order.round)
        number = side[:8].view(np.int64)
        if number[0] != order.round:
            where, params = side[SIDE_HEAD : SIDE_HEAD + self._bytes].view(self._dtype), np.asarray(order.params)
            if params.ctypes.data != where.ctypes.data:
                number[0] = NONE
                np.copyto(where, params)
            number[0] = order.round
        return self._sides.place(order.round % 2 * side_size(self._bytes))

    def parcel(self, round: int) -> Bytes:
        """A copy of a side, to be sent: the next rounds may begin while it is on its way."""
        if self._copy[0] != round:
            self._copy = round, self._side(round)[: SIDE_HEAD + self._bytes].copy()
        return self._copy[1]

    def _side(self, round: int) -> Bytes:
        assert self._sides is not None
        size = side_size(self._bytes)
        return self._sides.memory[round % 2 * size :][:size]

    # Messages

    def shares(self, worker: int) -> bool:
        """Whether a worker's messages are long enough to stand here."""
        return bool(self._tables[worker][:, 2].max(initial=0) >= LONG)

    def offer(self, worker: int) -> bytes:
        """Fresh memory for the messages of a new process, so that the one before it cannot write there: its place and table."""
        table = self._tables[worker]
        self.forget(worker)
        if not self.shares(worker):
            return b""
        commons = Commons(memory_of(table))
        memory = commons.memory.view()
        memory.flags.writeable = False
        slots = {m: (memory[at : at + begin], memory[at + begin : at + room]) for m, at, room, begin in table.tolist()}
        self._slots[worker] = commons, slots
        return commons.place() + table.tobytes()

    def hide(self, worker: int) -> None:
        """A worker has found its memory, or never will."""
        if worker in self._slots:
            self._slots[worker][0].hide()

    def forget(self, worker: int) -> None:
        self.hide(worker)
        self._slots.pop(worker, None)

    def message(self, worker: int, index: int, round: int, ticket: int, clock: float) -> Message:
        """A message that a worker has put into its slot. Raises `Invalid` for what is none."""
        if worker not in self._slots or index not in self._slots[worker][1]:
            raise Invalid(f"Worker {worker} has no place for message {index}.")
        message = frame.read_slot(*self._slots[worker][1][index], clock)
        if (message.worker, message.index, message.round) != (worker, index, round):
            raise Invalid(f"Message {message.index} of worker {message.worker} stands where {index} of {worker} should.")
        message.ticket = ticket
        return message

    def close(self) -> None:
        for worker in list(self._slots):
            self.forget(worker)
        if self._sides is not None:
            self._sides.hide()


def _table(messages: NDArray[np.int64], heads: list[int], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows as in `ROW`, for a worker's messages."""
    rows, at = [], 0
    for m in messages.tolist():
        room = heads[m] + int(sizes[m])
        rows.append((m, at, room, heads[m]))
        at += -(-room // ALIGN) * ALIGN
    return np.array(rows, np.int64).reshape(-1, ROW)


def memory_of(table: NDArray[np.int64]) -> int:
    """Bytes for all slots of a table."""
    return int((table[:, 1] + table[:, 2]).max())


def read_offer(data: bytes) -> tuple[bytes, NDArray[np.int64]]:
    """The place and the table of an offer."""
    return data[: PLACE.size], np.frombuffer(data, np.int64, offset=PLACE.size).reshape(-1, ROW)
