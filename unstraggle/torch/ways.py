"""Ways: where parameters and gradients of a round stand when workers compute on accelerators, and how they get there.

A way is made by the master and goes to every worker. `Ipc`: all of it stays on the device, in memory of the master that workers
open. `Pinned`: it passes through memory of the host that the device reads and writes by itself. Both have two sides for
parameters, in turn: a late worker reads those of its own round until the one after the next begins.

Nothing tells a device of one process when that of another is done: whoever says that something is there has waited for it.
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
from .device_gather import DeviceGather
from .layout import TYPES

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

    def publish(self, side: int) -> None:
        """What was written is there, and workers may be told."""
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

    def params(self, side: int) -> Tensor:
        """(dim,) the parameters of a round, as an object of its own."""
        return self._numbers[side][:]

    def begin(self, index: int) -> Tensor:
        """Zeros where a message will stand."""
        return self._numbers[2 + index].zero_()

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


class Pinned:
    """Memory of the host that devices reach by themselves, registered once by every process; sums on the master's device.

    home: where the master's model is; on a CPU, the host adds up, and only workers copy.
    """

    name = "pinned"

    def __init__(self, devices: Sequence[str], home: str, dim: int, dtype: np.dtype[Any]) -> None:
        self._devices = tuple(torch.device(one) for one in devices)
        self._device = self._home = torch.device(home)
        self._dim, self._type = dim, torch_type(dtype)
        self._forget()

    def _forget(self) -> None:
        self._hosts: list[Tensor] = []
        self._rooms: dict[int, Tensor] = {}
        self._flats: list[Tensor] = []
        self._sums: dict[int, Tensor] = {}
        self._registered: list[int] = []

    def open(self, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        if self._home.type == "cuda":
            self._map(sides, rooms)
            self._flats = [torch.zeros(self._dim, dtype=self._type, device=self._home)] * 2
        else:
            self._hosts = [torch.from_numpy(side) for side in sides]

    def lend(self, side: int) -> Tensor:
        return self._flats[side] if self._flats else self._hosts[side]

    def write(self, side: int, params: Any) -> None:
        self.lend(side).copy_(torch.as_tensor(params))

    def publish(self, side: int) -> None:
        if self._flats:
            self._hosts[side].copy_(self._flats[side], non_blocking=True)
            wait_for(self._home)

    def gather(self, code: Code) -> DeviceGather | None:
        """On the device of the master; None: as payloads of the host are added."""
        if self._home.type == "cpu":
            return None
        return DeviceGather(code, self._dim, [self._rooms[m] for m in range(len(code.messages))], self._home)

    def close(self) -> None:
        for address in self._registered:
            cudart.unpin(address)
        self._forget()

    def join(self, worker: int, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        self._device = self._devices[worker % len(self._devices)]
        self._map(sides, rooms)
        self._flats = [torch.zeros(self._dim, dtype=self._type, device=self._device) for _ in range(2)]

    def params(self, side: int) -> Tensor:
        return self._flats[side].copy_(self._hosts[side], non_blocking=True)[:]

    def begin(self, index: int) -> Tensor:
        if index not in self._sums:
            self._sums[index] = torch.empty(self._dim, dtype=self._type, device=self._device)
        return self._sums[index].zero_()

    def deliver(self, index: int, numbers: Any) -> None:
        self._rooms[index].copy_(torch.as_tensor(numbers), non_blocking=True)
        wait_for(self._device)

    def _map(self, sides: Sequence[NDArray[Any]], rooms: Mapping[int, NDArray[Any]]) -> None:
        """Register memory of the host. Where the device cannot reach it, copies go by way of the driver, and are slower."""
        if self._device.type == "cuda":
            arrays = [*sides, *rooms.values()]
            for begin, end in merged([(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]):
                self._register(begin, end - begin)
        self._hosts = [torch.from_numpy(side) for side in sides]
        self._rooms = {m: torch.from_numpy(room.view(numpy_type(self._type))) for m, room in rooms.items()}

    def _register(self, address: int, size: int) -> None:
        if cudart.pin(address, size, self._device):
            self._registered.append(address)
        else:
            log.warning("%d bytes of shared memory could not be pinned: copies to and from devices are slow.", size)

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {"_hosts": [], "_rooms": {}, "_flats": [], "_sums": {}, "_registered": []}
        return {**self.__dict__, **fresh}


def way_of(devices: Sequence[str], home: str, code: Code, dim: int, dtype: np.dtype[Any], kind: str) -> Ipc | Pinned | None:
    """The way for a code on these devices, and say it in the log; None: through memory of the host, as bytes.

    kind: "auto", the best that there is, "ipc", "pinned" or "host".
    """
    why = _unfit(code, dtype)
    if kind == "host" or (kind == "auto" and (why or all(torch.device(one).type == "cpu" for one in devices))):
        return None
    if why:
        raise Invalid(f'way="{kind}" {why}. Leave it out.')
    if kind in ("auto", "ipc") and _shared(devices, home, required=kind == "ipc"):
        log.info("Parameters and gradients stay on %s: processes share its memory.", devices[0])
        return Ipc(devices[0], dim, dtype, len(code.messages))
    log.info("Parameters and gradients pass through pinned memory between %s and the master on %s.", ", ".join(devices), home)
    return Pinned(devices, home, dim, dtype)


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


def wait_for(device: torch.device) -> None:
    """Until what this thread has asked of a device is done."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    return next(mine for mine, other in TYPES.items() if other == dtype)


def numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return TYPES[dtype]
