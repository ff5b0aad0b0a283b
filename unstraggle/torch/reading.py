"""Reading: a worker's samples, batch by batch, and those of the next step while this one is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import Invalid
from .ahead import Ahead, Key
from .batches import Dealt, Draws, Placed
from .data import Columns, Items, Reader, moved
from .how import one_line, where
from .samplers import Sampled

Batches = Dealt | Placed | Draws | Sampled


class Reading:
    """The samples of partitions in a step. ahead: read the next step's in a thread, where that is worth it."""

    def __init__(
        self, data: Columns | Items, batches: Batches, worker: int | None, device: torch.device, ahead: bool = False
    ) -> None:
        self.data, self.batches, self.worker, self.device = data, batches, worker, device
        self.ahead = Ahead(data.read, device.type == "cuda") if ahead and self._worth() else None
        self._here: dict[Key, tuple[NDArray[np.int64], Any]] = {}
        self._after: dict[Key, slice] = {}

    def read(self, part: int, step: int, piece: slice = slice(None)) -> Any:
        """The batch of a partition in a step, or a piece of it, on the device."""
        places = self.batches.rows(step, part)[piece]
        with self._said(part, step):
            if self.ahead is None:
                return moved(self.data.read(part, places), self.device)
            begin = piece.start or 0
            batch = self._taken((step, part, begin), places, self.ahead)
            self._after[step + 1, part, begin] = piece
            if isinstance(self.data, Items):
                self.ask_ahead()
            return batch

    def ask_ahead(self) -> None:
        """Begin to read for the next step. Items take long, and are asked for at once; tensors when the device has been asked
        for everything: until then, a second thread would only keep it waiting."""
        asked, self._after = self._after, {}
        for (step, part, begin), piece in asked.items():
            assert self.ahead is not None
            places = self._following(part, step - 1)[piece]
            if len(places):
                self.ahead.ask((step, part, begin), places)

    def prepare(self) -> None:
        """Move what was read for the next step to the device, while nobody waits for it. Errors come when it is asked for."""
        self.ask_ahead()
        for key, places in self.ahead.done() if self.ahead is not None else ():
            assert self.ahead is not None
            self._here[key] = places, moved(self.ahead.take(key, places), self.device)

    def _taken(self, key: Key, places: NDArray[np.int64], ahead: Ahead) -> Any:
        """A batch that is on the device already, or is read and moved now."""
        self._here = {other: one for other, one in self._here.items() if other[0] - key[0] in (0, 1)}
        known, batch = self._here.pop(key, (None, None))
        return batch if known is not None and np.array_equal(known, places) else moved(ahead.take(key, places), self.device)

    def reader(self, part: int, places: NDArray[np.int64]) -> Reader:
        """Samples that are read once, before the start."""
        with self._said(part, 0):
            return self.data.reader(part, places)

    def _worth(self) -> bool:
        """On a worker, where reading draws no random numbers and takes time: from tensors it does for a device only."""
        slow = isinstance(self.data, Items) or self.device.type == "cuda"
        return slow and self.worker is not None and not isinstance(self.batches, Draws)

    def _following(self, part: int, step: int) -> NDArray[np.int64]:
        """The samples of a partition in the step after this one, as far as they are known; none where that is not."""
        return self.batches.following(part) if isinstance(self.batches, Sampled) else self.batches.rows(step + 1, part)

    @contextlib.contextmanager
    def _said(self, part: int, step: int) -> Iterator[None]:
        """An error of the dataset says where it happened."""
        try:
            yield
        except Exception as error:
            raise Invalid(
                f"{where(self.worker, part, step)}: the samples cannot be read: {type(error).__name__}: {one_line(error)}. "
                "Every worker needs the dataset, and its files in the same place."
            ) from error
