"""Memory of a run of the local engine: where parameters, payloads and what both ends tell each other stand."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..problems.base import Problem, Travels
from ..runtime import frame
from ..runtime.message import Message, Order
from ..runtime.payload import payload_sizes
from ..scheme.code import Code
from ..scheme.program import packed
from .shared import PROGRAM, Area, Board, Letter

PAGE = 4096
Slot = tuple[int, int, int]
"""Where the place of a message begins, its size, and where in it the payload begins."""


class Memory:
    """The master's end. Where workers compute on a device, parameters and payloads may stand on its way instead.

    areas: board, parameters, payloads. letter: what comes with orders. slots: of all messages. frames: of each message, its
    header and its payload. way: that of the device; None: there is none, and all is in the areas. gather: what adds up
    messages on the device, where it does.
    """

    def __init__(self, code: Code, problem: Problem, sides: int, kind: str) -> None:
        dtype = np.dtype(problem.dtype)
        self.slots, room = places(code, problem)
        board = Area(Board.size(code.n, len(code.messages)))
        params = Area(sides * problem.dim * dtype.itemsize)
        self.areas, self.letter = (board, params, Area(room)), Letter()
        self.board = Board(board.map(), code.n, len(code.messages))
        self.board.round[0], self.board.cancelled[:], self.board.whole[:] = -1, -1, -1
        self._sides: list[Any] = list(params.map().view(dtype).reshape(sides, -1))
        payloads = self.areas[2].map()
        self._rooms = {m: payloads[start + head : start + room] for m, (start, room, head) in enumerate(self.slots)}
        payloads.flags.writeable = False
        self.frames = [(payloads[at : at + head].data, payloads[at + head : at + room]) for at, room, head in self.slots]
        self.way: Any = None
        self.gather: Any = None
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._open_way(code, problem, kind)
            undo.pop_all()

    def _open_way(self, code: Code, problem: Problem, kind: str) -> None:
        """Where workers compute on a device: let parameters and messages stand where both ends reach them."""
        if isinstance(problem, Travels):
            self.way = problem.way(code, kind)
        elif kind not in ("auto", "host"):
            raise Invalid(f'way="{kind}" is for problems on devices, but got {type(problem).__name__}. Leave it out.')
        if self.way is None:
            return
        if len(self._sides) == 1:
            raise Invalid("Parameters on a device stand on two sides in turn, but got sides=1 (shared=True). Leave it out.")
        self.way.open(self._sides, self._rooms)
        self._sides = [self.way.lend(side) for side in (0, 1)]

    def gather_of(self, code: Code) -> Any:
        """What adds up the messages of a code on the device; None: nothing does."""
        self.gather = None if self.way is None else self.way.gather(code)
        return self.gather

    def lend(self, round: int) -> Any:
        """The side of the round. Who still reads it is late, by two rounds where there are two sides, and knows that."""
        self.board.round[0] = round
        return self._sides[round % len(self._sides)]

    def write(self, order: Order) -> None:
        """What goes with an order to all workers."""
        side = self.lend(order.round)  # said before anything is written there: who reads that knows when it is overwritten
        if order.params is not side:
            np.copyto(side, order.params) if self.way is None else self.way.write(order.round % 2, order.params)
        if self.way is not None:
            self.way.publish(order.round)
        self.letter.write(order.round, order.context)

    def write_program(self, order: Order, worker: int) -> int:
        """The program of a worker in a round where that changes, onto the board. Its size."""
        assert order.code is not None
        data = packed(order.code.program(worker))
        if len(data) > PROGRAM:
            raise Invalid(f"A program that changes has at most {PROGRAM} bytes, but that of worker {worker} has {len(data)}.")
        self.board.programs[order.round % 2, worker, : len(data)] = np.frombuffer(data, np.uint8)
        return len(data)

    def message(self, index: int, clock: float) -> Message:
        return frame.read_slot(*self.frames[index], clock)

    def close(self) -> None:
        """Workers have ended. Mappings go, too, whoever still has this object: the starter does, and errors that it raised."""
        if self.way is not None:
            self.way.close()
        self.letter.close()
        for area in self.areas:
            area.close()
        del self.board, self.frames, self._sides, self._rooms
        self.way = self.gather = None


def places(code: Code, problem: Problem) -> tuple[Sequence[Slot], int]:
    """A place in shared memory for every message of a round, header and payload, and the size of all."""
    sizes = payload_sizes(code, problem.dim, np.dtype(problem.dtype))
    tasks = np.bincount(code.tasks.worker, minlength=code.n)[code.messages.worker]
    heads: NDArray[np.int64] = np.array([frame.head_size(int(count)) for count in tasks])
    rooms = heads + sizes
    whole = -(-rooms // PAGE) * PAGE
    ends = np.cumsum(whole)
    return list(zip((ends - whole).tolist(), rooms.tolist(), heads.tolist(), strict=True)), int(ends[-1])
