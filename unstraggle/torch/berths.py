"""Berths: messages leave a device through pinned memory of the host, the beginning while the rest is computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .layout import TYPES
from .pins import Pins

Say = Callable[[int, int], None]
"""say(message, upto): its numbers have left up to there."""


class Lane:
    """Copies beside what a device computes, one after the other. On a CPU each is done at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def copy(self, to: Tensor, given: Tensor) -> Any:
        """After all that this thread has asked of the device before. Gives the event of its end; None: it is done."""
        if self._stream is None:
            to.copy_(given)
            return None
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            to.copy_(given, non_blocking=True)
            return self._stream.record_event()

    def precede(self) -> None:
        """What this thread asks of the device from now on comes after the copies."""
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def wait(self) -> None:
        """Until all copies are done."""
        if self._stream is not None:
            self._stream.synchronize()


class Berths:
    """A place on the device where each message is added up, and a room in memory of the host to which it goes.

    rooms: for all numbers of a message. say: hears how much of a message has left, where somebody wants to know. passes: how
    many have begun to add to each message.
    """

    def __init__(self, device: torch.device, dim: int, kind: torch.dtype, rooms: Mapping[int, NDArray[Any]]) -> None:
        self._device, self._dim, self._type = device, dim, kind
        self._pins = Pins(device, list(rooms.values()))
        self.rooms = {m: torch.from_numpy(room.view(TYPES[kind])) for m, room in rooms.items()}
        self._lane = Lane(device)
        self._sums: dict[int, Tensor] = {}
        self._gone: dict[int, int] = {}
        self._leaving: deque[tuple[int, int, Any]] = deque()
        self.say: Say = lambda index, upto: None
        self.passes: dict[int, int] = {}

    def begin(self, index: int) -> Tensor:
        """Zeros where a message is added up."""
        if index not in self._sums:
            self._sums[index] = torch.empty(self._dim, dtype=self._type, device=self._device)
        self._lane.precede()  # of a task that was left, something may still be leaving, of which nobody should hear now
        self._leaving.clear()
        self._gone[index] = self.passes[index] = 0
        return self._sums[index].zero_()

    def leave(self, total: Tensor, upto: int) -> None:
        """The numbers of a message are known up to a place: they may leave, beside what is computed. 0: none are, any more."""
        index = next((m for m, one in self._sums.items() if one.data_ptr() == total.data_ptr()), None)
        if index is None:
            return
        self.passes[index] = self.passes.get(index, 0) + (upto == 0)
        gone = self._gone.get(index, 0)
        if upto > gone:
            where = slice(gone, upto)
            self._leaving.append((index, upto, self._lane.copy(self.rooms[index][where], total[where])))
        elif gone:
            self._leaving.clear()
            self.say(index, 0)
        self._gone[index] = upto
        while self._leaving and (self._leaving[0][2] is None or self._leaving[0][2].query()):
            self.say(*self._leaving.popleft()[:2])

    def deliver(self, index: int, numbers: Any) -> None:
        """Numbers of a message are in its room when this is over: the rest of what was begun here, or all of others."""
        given, own = torch.as_tensor(numbers), self._sums.get(index)
        gone = self._gone.pop(index, 0) if own is not None and given.data_ptr() == own.data_ptr() else 0
        self._lane.copy(self.rooms[index][gone:], given[gone:])
        self._lane.wait()
        self._leaving.clear()


class Rooms:
    """The same without a device: a message is added up in its room, and need not leave for it."""

    def __init__(self, rooms: Mapping[int, NDArray[Any]], dtype: np.dtype[Any]) -> None:
        self._rooms = {m: room.view(dtype) for m, room in rooms.items()}
        self.say: Say = lambda index, upto: None
        self.passes: dict[int, int] = {}

    def begin(self, index: int) -> NDArray[Any]:
        """Zeros where a message is added up."""
        self.passes[index] = 0
        self._rooms[index].fill(0)
        return self._rooms[index]

    def leave(self, total: Tensor, upto: int) -> None:
        """The numbers of a message are known up to a place. 0: none are, any more."""
        index = next((m for m, room in self._rooms.items() if room.ctypes.data == total.data_ptr()), None)
        if index is not None:
            self.passes[index] = self.passes.get(index, 0) + (upto == 0)
            self.say(index, upto)
