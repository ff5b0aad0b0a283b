"""Pins: memory of the host that devices read and write by themselves."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from . import cudart

log = logging.getLogger("unstraggle")


class Pins:
    """Arrays of the host, registered once with a device, until nobody holds this any more: who gives memory back that is still
    registered finds that what comes to stand there cannot be.

    Where the device cannot reach them, copies go by way of the driver, and are slower.
    """

    def __init__(self, device: torch.device, arrays: Sequence[NDArray[Any]]) -> None:
        found: list[int] = []
        if device.type == "cuda":
            spans = [(array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays]
            found = [begin for begin, end in merged(spans) if _pinned(begin, end - begin, device)]
        self._release = weakref.finalize(self, _unpin, device, found, list(arrays))
        self._release.atexit = False  # the driver ends with the process

    def release(self) -> None:
        """Let the memory go. What was asked of the device before is done then."""
        self._release()


def _pinned(address: int, size: int, device: torch.device) -> bool:
    done = cudart.pin(address, size, device)
    if not done:
        log.warning("%d bytes of shared memory could not be pinned: copies to and from devices are slow.", size)
    return done


def _unpin(device: torch.device, addresses: list[int], arrays: list[Any]) -> None:
    """arrays: held until now, for their memory must not go before."""
    if addresses:
        torch.cuda.synchronize(device)
    for address in addresses:
        cudart.unpin(address)


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
