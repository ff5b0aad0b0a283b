"""Pinned: the way of parameters and gradients through memory of the host that devices read and write by themselves."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engines.shared import Area
from ..scheme.code import Code
from . import cudart
from .cudart import wait_for
from .device_gather import DeviceGather
from .layout import TYPES, torch_type
from .leaving import Leave

log = logging.getLogger("unstraggle")

Say = Callable[[int, int], None]
"""say(message, upto): its numbers have left up to there."""
PIECE, PIECES = 1 << 24, 8
"""Bytes of a piece, at least, and pieces of a vector, at most: while one is written, the one before is read."""


class Pinned:
    """Memory of the host, registered once by every process; sums on the master's device.

    Parameters go in pieces: the master's device marks each that it has written, and workers copy it then, while the next one is
    on its way. The beginning of a message leaves while the rest of it is computed, and the master's device takes what has left.

    home: where the master's model is; on a CPU, the host adds up, and only workers copy.
    """

    name = "pinned"

    def __init__(self, devices: Sequence[str], home: str, dim: int, dtype: np.dtype[Any]) -> None:
        self._devices = tuple(torch.device(one) for one in devices)
        self._device = self._home = torch.device(home)
        self._dim, self._type = dim, torch_type(dtype)
        self._pieces = pieces(dim, dtype.itemsize)
        self._area = Area(2 * len(self._pieces) * 8)
        self._forget()

    def _forget(self) -> None:
        self._hosts: list[Tensor] = []
        self._rooms: dict[int, Tensor] = {}
        self._flats: list[Tensor] = []
        self._sums: dict[int, Tensor] = {}
        self._gone: dict[int, int] = {}
        self._registered: list[int] = []
        self._marks: Any = None
        self._side: Any = None
        self._leaving: deque[tuple[int, int, Any]] = deque()
        self._say: Say = lambda index, upto: None

    # The master's end

    def open(self, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        marks = self._marked()
        if self._home.type == "cuda":
            self._map(sides, rooms, [marks])
            self._flats = [torch.zeros(self._dim, dtype=self._type, device=self._home)] * 2
            self._stamp = torch.zeros(1, dtype=torch.int64, device=self._home)
        else:
            self._hosts = [torch.from_numpy(side) for side in sides]

    def lend(self, side: int) -> Tensor:
        return self._flats[side] if self._flats else self._hosts[side]

    def write(self, side: int, params: Any) -> None:
        self.lend(side).copy_(torch.as_tensor(params))

    def publish(self, round: int) -> None:
        """Let the device write what workers read, and mark it; nobody waits for that here."""
        side, mark = round % 2, round + 1
        if not self._flats:
            self._marks[side] = mark
            return
        self._stamp.fill_(mark)
        for number, piece in enumerate(self._pieces):
            self._hosts[side][piece].copy_(self._flats[side][piece], non_blocking=True)
            torch.from_numpy(self._marks[side, number : number + 1]).copy_(self._stamp, non_blocking=True)

    def gather(self, code: Code) -> DeviceGather | None:
        """On the device of the master; None: as payloads of the host are added."""
        if self._home.type == "cpu":
            return None
        return DeviceGather(code, self._dim, [self._rooms[m] for m in range(len(code.messages))], self._home)

    def close(self) -> None:
        if self._flats:
            wait_for(self._home)
        for address in self._registered:
            cudart.unpin(address)
        self._forget()
        self._area.close()

    # A worker's end

    def join(self, worker: int, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        self._device = self._devices[worker % len(self._devices)]
        self._map(sides, rooms)
        self._marked()
        self._flats = [torch.zeros(self._dim, dtype=self._type, device=self._device) for _ in range(2)]
        self._side = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def params(self, round: int) -> Tensor:
        side = round % 2
        for number, piece in enumerate(self._pieces):
            while self._marks[side, number] <= round:
                time.sleep(0)
            self._flats[side][piece].copy_(self._hosts[side][piece], non_blocking=True)
        return self._flats[side][:]

    def begin(self, index: int) -> Tensor:
        if index not in self._sums:
            self._sums[index] = torch.empty(self._dim, dtype=self._type, device=self._device)
        if self._side is not None:  # of a task that was left, something may still be leaving
            torch.cuda.current_stream(self._device).wait_stream(self._side)
        self._gone[index] = 0
        return self._sums[index].zero_()

    def leaving(self, say: Say) -> tuple[Leave, int] | None:
        self._say = say
        return self.leave, len(self._pieces) - 1

    def leave(self, total: Tensor, upto: int) -> None:
        """The numbers of a message are known up to a place: they may leave, beside what is computed. 0: none are, any more.
        The master hears of those that have left."""
        index = next((m for m, one in self._sums.items() if one.data_ptr() == total.data_ptr()), None)
        if index is None:
            return
        if upto > self._gone[index]:
            where = slice(self._gone[index], upto)
            with self._aside():
                self._rooms[index][where].copy_(total[where], non_blocking=True)
                self._leaving.append((index, upto, None if self._side is None else self._side.record_event()))
        elif self._gone[index]:
            self._leaving.clear()
            self._say(index, 0)
        self._gone[index] = upto
        while self._leaving and (self._leaving[0][2] is None or self._leaving[0][2].query()):
            self._say(*self._leaving.popleft()[:2])

    def deliver(self, index: int, numbers: Any) -> None:
        given, own = torch.as_tensor(numbers), self._sums.get(index)
        gone = self._gone.pop(index, 0) if own is not None and given.data_ptr() == own.data_ptr() else 0
        self._rooms[index][gone:].copy_(given[gone:], non_blocking=True)
        wait_for(self._device)
        if self._side is not None:
            self._side.synchronize()
        self._leaving.clear()

    def _aside(self) -> Any:
        """On a stream of its own, after all that was asked of the device before."""
        if self._side is None:
            return nullcontext()
        self._side.wait_stream(torch.cuda.current_stream(self._device))
        return torch.cuda.stream(self._side)

    # Both

    def _marked(self) -> NDArray[Any]:
        """(2, pieces) one more than the round whose parameters stand there."""
        self._marks = self._area.map().view(np.int64).reshape(2, -1)
        return self._marks  # type: ignore[no-any-return]

    def _map(self, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]], more: Sequence[NDArray[Any]] = ()) -> None:
        """Register memory of the host. Where the device cannot reach it, copies go by way of the driver, and are slower."""
        if self._device.type == "cuda":
            arrays = [*sides, *rooms.values(), *more]
            for begin, end in merged([(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]):
                self._register(begin, end - begin)
        self._hosts = [torch.from_numpy(side) for side in sides]
        self._rooms = {m: torch.from_numpy(room.view(TYPES[self._type])) for m, room in rooms.items()}

    def _register(self, address: int, size: int) -> None:
        if cudart.pin(address, size, self._device):
            self._registered.append(address)
        else:
            log.warning("%d bytes of shared memory could not be pinned: copies to and from devices are slow.", size)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_devices", "_device", "_home", "_dim", "_type", "_pieces", "_area")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def pieces(dim: int, itemsize: int) -> list[slice]:
    """Equal pieces of a vector.

    >>> pieces(10, 4), len(pieces(10**9, 4))
    ([slice(0, 10, None)], 8)
    """
    count = min(max(dim * itemsize // PIECE, 1), PIECES)
    ends = [dim * number // count for number in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def merged(spans: list[tuple[int, int]], page: int = 4096) -> list[tuple[int, int]]:
    """Spans of addresses, in whole pages, without overlaps: memory is registered by page, and once.

    >>> merged([(100, 200), (4096, 9000), (300, 400), (20480, 20481)])
    [(0, 12288), (20480, 24576)]
    """
    found: list[tuple[int, int]] = []
    for begin, end in sorted((begin // page * page, -(-end // page) * page) for begin, end in spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found
