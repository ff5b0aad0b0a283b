"""Pinned: the way of parameters and gradients through memory of the host that devices read and write by themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engines.shared import Area
from ..scheme.code import Code
from .berths import Berths, Say
from .cudart import wait_for
from .device_gather import DeviceGather
from .layout import TYPES, torch_type
from .leaving import Leave
from .pins import Pins

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
        self._pins: Pins | None = None
        self._berths: Berths | None = None
        self._marks: Any = None

    # The master's end

    def open(self, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        marks = self._marked()
        if self._home.type == "cuda":
            self._pins = Pins(self._home, [*sides, *rooms.values(), marks])
            self._rooms = {m: torch.from_numpy(room.view(TYPES[self._type])) for m, room in rooms.items()}
            self._flats = [torch.zeros(self._dim, dtype=self._type, device=self._home)] * 2
            self._stamp = torch.zeros(1, dtype=torch.int64, device=self._home)
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
        if self._pins is not None:
            self._pins.release()
        self._forget()
        self._area.close()

    # A worker's end

    def join(self, worker: int, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        self._device = self._devices[worker % len(self._devices)]
        self._pins, self._hosts = Pins(self._device, sides), [torch.from_numpy(side) for side in sides]
        self._berths = Berths(self._device, self._dim, self._type, rooms)
        self._rooms = self._berths.rooms
        self._marked()
        self._flats = [torch.zeros(self._dim, dtype=self._type, device=self._device) for _ in range(2)]

    def params(self, round: int) -> Tensor:
        side = round % 2
        for number, piece in enumerate(self._pieces):
            while self._marks[side, number] <= round:
                time.sleep(0)
            self._flats[side][piece].copy_(self._hosts[side][piece], non_blocking=True)
        return self._flats[side][:]

    def begin(self, index: int) -> Tensor:
        return self._docked.begin(index)

    def leaving(self, say: Say) -> tuple[Leave, int] | None:
        """The master hears of what has left."""
        self._docked.say = say
        return self.leave, len(self._pieces) - 1

    def leave(self, total: Tensor, upto: int) -> None:
        self._docked.leave(total, upto)

    def deliver(self, index: int, numbers: Any) -> None:
        self._docked.deliver(index, numbers)

    @property
    def _docked(self) -> Berths:
        assert self._berths is not None, "nobody has joined"
        return self._berths

    # Both

    def _marked(self) -> NDArray[Any]:
        """(2, pieces) one more than the round whose parameters stand there."""
        self._marks = self._area.map().view(np.int64).reshape(2, -1)
        return self._marks  # type: ignore[no-any-return]

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
