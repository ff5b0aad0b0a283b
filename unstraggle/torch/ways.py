"""Ways: where parameters and gradients of a round stand when workers compute on accelerators, and how they get there.

A way is made by the master and goes to every worker. `Ipc`: all of it stays on the device, in memory of the master that workers
open. `Pinned`: it passes through memory of the host that the device reads and writes by itself. Both have two sides for
parameters, in turn: a late worker reads those of its own round until the one after the next begins.

Nothing tells a device of one process when that of another is done: whoever sends a note has waited for what it says. But
parameters in memory of the host may follow the order: their device marks each piece that has come.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engines.shared import Area
from ..errors import Invalid
from ..runtime.payload import number_type
from ..scheme.code import Code
from . import cudart
from .berths import Say
from .cudart import wait_for
from .device_gather import DeviceGather
from .layout import torch_type
from .leaving import Leave
from .pinned import Pinned

log = logging.getLogger("unstraggle")

ROW = 256
"""Bytes at multiples of which rows of shared memory begin: what kernels like best."""


class Ipc:
    """One block of memory on a device: a row for each side of the parameters, then one for each message.

    On a CPU the same in memory that processes share, so that all but CUDA itself can be tried without a device.
    """

    name = "ipc"

    def __init__(self, device: str, dim: int, dtype: np.dtype[Any], messages: int) -> None:
        self._device, self._dim, self._type = torch.device(device), dim, torch_type(dtype)
        self._row = -(-dim * dtype.itemsize // ROW) * ROW
        self._rows = 2 + messages
        self._area = Area(self._row * self._rows) if self._device.type == "cpu" else None
        self._handle, self._address = b"", 0
        self._numbers: list[Tensor] = []

    # The master's end

    def open(self, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        """Allocate. sides, rooms: of the host, for ways that need them."""
        if self._area is not None:
            self._take(torch.from_numpy(self._area.map()))
            return
        self._address = cudart.allocate(self._row * self._rows, self._device)
        self._handle = cudart.handle_of(self._address)
        self._take(cudart.bytes_at(self._address, self._row * self._rows, self._device))

    def lend(self, side: int) -> Tensor:
        """Where the parameters of a round are written."""
        return self._numbers[side]

    def write(self, side: int, params: Any) -> None:
        """Parameters that were not written there."""
        self.lend(side).copy_(torch.as_tensor(params))

    def publish(self, round: int) -> None:
        """What was written for a round is there, and workers may be told."""
        wait_for(self._device)

    def gather(self, code: Code) -> DeviceGather:
        return DeviceGather(code, self._dim, self._numbers[2:])

    def close(self) -> None:
        """Give the memory back. Workers have ended."""
        self._numbers = []
        if self._address:
            cudart.free(self._address, self._device)
            self._address = 0
        if self._area is not None:
            self._area.close()

    # A worker's end

    def join(self, worker: int, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        """Open what the master has allocated."""
        size = self._row * self._rows
        if self._area is not None:
            self._take(torch.from_numpy(self._area.map()))
        else:
            self._take(cudart.bytes_at(cudart.opened(self._handle, self._device), size, self._device))

    def params(self, round: int) -> Tensor:
        """(dim,) the parameters of a round, as an object of its own."""
        return self._numbers[round % 2][:]

    def begin(self, index: int) -> Tensor:
        """Zeros where a message will stand."""
        return self._numbers[2 + index].zero_()

    def leaving(self, say: Say) -> tuple[Leave, int] | None:
        """How messages leave bit by bit, and how many times; None: they need not leave at all. say: tells the master."""
        return None

    def deliver(self, index: int, numbers: Any) -> None:
        """Numbers of a message are in their place when this is over."""
        slot, given = self._numbers[2 + index], torch.as_tensor(numbers)
        if given.data_ptr() != slot.data_ptr():
            slot.copy_(given)
        wait_for(self._device)

    def _take(self, memory: Tensor) -> None:
        rows = memory.view(self._type).view(self._rows, -1)
        self._numbers = [row[: self._dim] for row in rows]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_numbers": [], "_address": 0}


def way_of(devices: Sequence[str], home: str, code: Code, dim: int, dtype: np.dtype[Any], kind: str) -> Ipc | Pinned | None:
    """The way for a code on these devices, and say it in the log; None: through memory of the host, as bytes.

    kind: "auto", the best that there is, "ipc", "pinned" or "host".
    """
    if not fits(devices, code, dtype, kind):
        return None
    if kind in ("auto", "ipc") and _shared(devices, home, required=kind == "ipc"):
        log.info("Parameters and gradients stay on %s: processes share its memory.", devices[0])
        return Ipc(devices[0], dim, dtype, len(code.messages))
    log.info("Parameters and gradients pass through pinned memory between %s and the master on %s.", ", ".join(devices), home)
    return Pinned(devices, home, dim, dtype)


def fits(devices: Sequence[str], code: Code, dtype: np.dtype[Any], kind: str) -> bool:
    """Whether there is a way for a code on these devices; `Invalid` where it is asked for, and cannot be."""
    why = _unfit(code, dtype)
    if kind == "host" or (kind == "auto" and (why or all(torch.device(one).type == "cpu" for one in devices))):
        return False
    if why:
        raise Invalid(f'way="{kind}" {why}. Leave it out.')
    return True


def _unfit(code: Code, dtype: np.dtype[Any]) -> str:
    """Why messages of a code cannot be left where they are; empty where they can."""
    if not code.messages.plain.all():
        return f"is for plain numbers, but {code.name} quantises them"
    if len(code.blocks) > 1 or code.messages.mixes > 1:
        return f"is for whole gradients, but {code.name} has blocks"
    if number_type(code, dtype) != dtype:
        return f"is for real numbers, but {code.name} sends complex ones"
    return ""


def _shared(devices: Sequence[str], home: str, required: bool) -> bool:
    """Whether all workers and the master are on one device whose memory processes can share."""
    every = {_full(one) for one in (*devices, home)}
    if len(every) > 1:
        if required:
            raise Invalid(
                f'way="ipc" needs the model and all workers on one device, but they are on {sorted(every)}. Move the model '
                f'there (model.to("{devices[0]}")), or use way="pinned".'
            )
        return False
    device = torch.device(devices[0])
    if device.type == "cpu":
        return required
    fine = device.type == "cuda" and cudart.can_share(device)
    if required and not fine:
        raise Invalid(f'way="ipc": processes cannot share memory of {device} here. Use way="pinned".')
    return fine


def _full(device: str) -> str:
    """A device with its number."""
    found = torch.device(device)
    if found.type == "cuda" and found.index is None and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return str(found)
