"""DeviceGather: messages that lie where a device reads them, to the gradient on the device. `runtime.gather` for those."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import Invalid
from ..runtime import frame
from ..runtime.gather import Scaling
from ..runtime.message import Message
from ..scheme.code import Code
from .cudart import wait_for
from .device_sum import AT_ONCE, device_sum, kernel, nine

Terms = tuple[list[int], Tensor]
"""The messages of a sum, and their weights on the device."""


class DeviceGather:
    """The messages of one round at a time, added in one pass at the end: on a device that takes less than a round trip.

    slots: the numbers of each message. home: where the sum is made, if not where they are; then each is copied as it comes, on
    a stream of its own, while others are awaited.
    """

    def __init__(self, code: Code, dim: int, slots: Sequence[Tensor], home: torch.device | None = None) -> None:
        self._code, self._dim, self._slots, self._home = code, dim, slots, home
        self._senders, self._size = code.messages.worker.tolist(), dim * slots[0].itemsize
        away = home is not None and home.type == "cuda"
        self._stream = torch.cuda.Stream(home) if away else None  # type: ignore[no-untyped-call]
        self._copies: dict[int, Tensor] = {}
        self._hastened: dict[int, int] = {}
        self._coming: Tensor | None = None
        self._report: Tensor | None = None
        self._unread: Scaling | None = None
        self._finite = True
        self._kept: tuple[Any, Any, list[Terms]] | None = None
        self.clear()

    def clear(self) -> None:
        """Forget the messages: a new round starts."""
        self._here: dict[int, Tensor] = {}
        self._hastened = {}

    def hasten(self, index: int, upto: int) -> None:
        """The numbers of a message that is still computed stand in their place up to here: copy them. 0: none do, any more."""
        if self._home is not None and index not in self._here:
            begin = self._hastened.get(index, 0)
            self._copy(index, slice(begin if begin < upto else 0, upto))
            self._hastened[index] = upto

    def check(self, message: Message) -> None:
        """Refuse a message that is not what the code says, or whose envelope was damaged."""
        index, size = message.index, len(message.payload)
        if not 0 <= index < len(self._senders) or self._senders[index] != message.worker:
            raise Invalid(f"{self._code.name} has no message {index} of worker {message.worker}.")
        if size != self._size:
            raise Invalid(f"Message {index} has {self._size} bytes of payload, but {size} came.")
        if message.checksum is not None and frame.checksum(message.payload) != message.checksum:
            raise Invalid(f"The payload of message {index} does not agree with its checksum.")

    def add(self, messages: Sequence[Message]) -> None:
        """Take checked messages, which stay where they are until the round is over."""
        for message in messages:
            self._here[message.index] = self._slots[message.index] if self._home is None else self._copied(message.index)

    def coming(self, tracks: int = 1) -> Tensor:
        """(tracks, dim) where the next result will be; made before it is needed, while workers compute."""
        if self._coming is None or len(self._coming) != tracks:
            device = self._home or self._slots[0].device
            self._coming = torch.empty((tracks, self._dim), dtype=self._slots[0].dtype, device=device)
        return self._coming

    def finish(self, weights: NDArray[Any], scaling: Scaling | None = None) -> Tensor:
        """(tracks, dim) the decoded gradient on the device, which may still be at it: `finite` waits. weights: (tracks, M)."""
        total, used = self.coming(len(weights)), sorted(self._here)
        self._coming = self._unread = None
        scaling = scaling or Scaling(0, lambda head: 1.0)
        if self._stream is not None:
            torch.cuda.current_stream(self._home).wait_stream(self._stream)
        launch = kernel() if total.device.type == "cuda" else None
        terms = self._terms(weights, used, scaling, total.device) if launch is not None else []
        if terms:
            self._at_once(launch, total, terms, scaling)
        else:
            self._in_turn(total, used, np.real(weights), scaling)
        return total

    @property
    def finite(self) -> bool:
        """Whether the last result is. The device says so when it is done, and what the scaling has to know."""
        if self._unread is not None:
            assert self._report is not None
            scaling, self._unread = self._unread, None
            wait_for(self._home or self._slots[0].device)
            found = self._report.numpy()
            self._finite = not found[:, 0].any()
            scaling.of(found[0, 1:])
        return self._finite

    def _terms(self, weights: NDArray[Any], used: list[int], scaling: Scaling, device: torch.device) -> list[Terms]:
        """For each track the messages that it is made of, and their weights on the device, as a rule those of the round before;
        none where one pass does not do."""
        key = used, scaling.known
        if self._kept is None or self._kept[0] is not weights or self._kept[1] != key:
            rows, factor = np.real(weights), scaling.known[0]
            some = [[m for m in used if row[m] != 0] for row in rows]  # what has no weight may be no number
            fits = all(0 < len(these) <= AT_ONCE for these in some)
            pairs = zip(some, rows, strict=True)
            self._kept = weights, key, [(m, nine(tuple(row[m].tolist()), factor, device)) for m, row in pairs] if fits else []
        return self._kept[2]

    def _at_once(self, launch: Any, total: Tensor, terms: list[Terms], scaling: Scaling) -> None:
        """All in one pass. What the device says of it comes with the first coordinates, into memory of the host."""
        looks, below = scaling.head if scaling.looks is None else scaling.looks, scaling.known[1]
        reports = self._blank(len(terms), 1 + looks, total.device)
        for out, report, (some, weights) in zip(total, reports, terms, strict=True):
            launch(out, report, weights, [self._here[m] for m in some], head=scaling.head, looks=looks, below=below)
        self._unread = scaling

    def _blank(self, tracks: int, size: int, device: torch.device) -> Tensor:
        """Zeros for what the device says of each track; nobody reads any more what it said of the round before."""
        if self._report is None or self._report.shape != (tracks, size):
            self._report = torch.empty((tracks, size), dtype=torch.float64, pin_memory=device.type == "cuda")
        return self._report.zero_()

    def _in_turn(self, total: Tensor, used: list[int], rows: NDArray[Any], scaling: Scaling) -> None:
        """First what the factor depends on, then the rest."""
        used = [m for m in used if rows[:, m].any()]
        heads = [self._here[m][: scaling.head] for m in used]
        head = rows[:, used] @ torch.stack(heads).double().cpu().numpy() if used else np.zeros((len(rows), scaling.head))
        factor = scaling.of(head[0])
        fine = [self._sum(total[track], used, row, factor) for track, row in enumerate(rows)]
        total[:, : scaling.head] = torch.from_numpy(head)
        self._finite = bool(np.isfinite(head).all()) and all(bool(one) for one in fine)

    def broken(self, messages: Sequence[Message]) -> list[int]:
        """The workers in whose numbers there is NaN or infinity."""
        return sorted({m.worker for m in messages if not bool(self._slots[m.index].isfinite().all())})

    def _sum(self, out: Tensor, used: list[int], row: NDArray[Any], factor: float) -> Any:
        terms = [m for m in used if row[m] != 0]
        return device_sum(out, [factor * float(row[m]) for m in terms], [self._here[m] for m in terms])

    def _copied(self, index: int) -> Tensor:
        """A message on the way to the device of the sum; the beginning of it may be there."""
        return self._copy(index, slice(self._hastened.pop(index, 0), self._dim))

    def _copy(self, index: int, where: slice) -> Tensor:
        if index not in self._copies:
            self._copies[index] = torch.empty(self._dim, dtype=self._slots[0].dtype, device=self._home)
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            self._copies[index][where].copy_(self._slots[index][where], non_blocking=True)
        return self._copies[index]
