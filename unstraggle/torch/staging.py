"""Staging: long vectors between memory of the host and a device, through two pieces of pinned memory in turn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

PIECE = 1 << 22
"""Bytes of a piece: it stays in the caches of the host between its two copies."""


class Staging:
    """While the device copies one piece, the host copies the next. On a CPU the same, one after the other."""

    def __init__(self, device: torch.device, kind: torch.dtype) -> None:
        self._device = device
        there = device.type == "cuda"
        self._size = PIECE // kind.itemsize
        self._pieces = [torch.empty(self._size, dtype=kind, pin_memory=there) for _ in range(2)]
        self._done: list[Any] = [None, None]

    def up(self, given: Tensor, to: Tensor) -> None:
        """From the host to the device. What is given may change when this is over; the device may be at it still."""
        for number, where in enumerate(self._cut(len(given))):
            piece = self._free(number)[: where.stop - where.start]
            piece.copy_(given[where])
            to[where].copy_(piece, non_blocking=True)
            self._mark(number)

    def down(self, given: Tensor, to: Tensor) -> None:
        """From the device to the host; all of it is there when this is over."""
        places = self._cut(len(given))
        for number, where in enumerate(places):
            self._free(number)[: where.stop - where.start].copy_(given[where], non_blocking=True)
            self._mark(number)
            if number:
                self._take(number - 1, places[number - 1], to)
        if places:
            self._take(len(places) - 1, places[-1], to)

    def _cut(self, length: int) -> list[slice]:
        return [slice(begin, min(begin + self._size, length)) for begin in range(0, length, self._size)]

    def _free(self, number: int) -> Tensor:
        """A piece, when the device is done with it."""
        if self._done[number % 2] is not None:
            self._done[number % 2].synchronize()
        return self._pieces[number % 2]

    def _take(self, number: int, where: slice, to: Tensor) -> None:
        to[where].copy_(self._free(number)[: where.stop - where.start])

    def _mark(self, number: int) -> None:
        """The device is done with a piece when it has done what it was asked so far."""
        if self._device.type == "cuda":
            self._done[number % 2] = torch.cuda.current_stream(self._device).record_event()
