"""Reading: a worker's samples, batch by batch, and those of the next steps while this one is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import Invalid
from .ahead import Ahead, Found, Here, Key, Source
from .batches import Dealt, Draws, Placed
from .data import Columns, Items, Reader, moved
from .how import How, one_line, where
from .reading_process import ReadingProcess
from .samplers import Sampled
from .seeds import restore

Batches = Dealt | Placed | Draws | Sampled


class Reading:
    """The samples of partitions in a step. how: whether those of the next steps are read meanwhile, and by whom."""

    def __init__(self, data: Columns | Items, batches: Batches, worker: int | None, device: torch.device, how: How) -> None:
        self.data, self.batches, self.worker, self.device = data, batches, worker, device
        self.ahead = self._begun(how) if how.ahead and self._worth() else None
        self._here: dict[Key, tuple[NDArray[np.int64], Found]] = {}
        self._after: dict[Key, tuple[slice, int]] = {}
        self._step = 0

    def _begun(self, how: How) -> Ahead:
        def seed(key: Key) -> tuple[int, ...]:
            return how.seed_of(*key)

        here: list[Source] = [Here(self.data.read)]
        processes: list[Source] = [ReadingProcess(self.data.read, seed) for _ in range(how.readers)]
        return Ahead(processes or here, self.device.type == "cuda", how.depth)

    def read(self, part: int, step: int, piece: slice = slice(None)) -> Any:
        """The batch of a partition in a step, or a piece of it, on the device. Random numbers go on from where it left them."""
        places = self.batches.rows(step, part)[piece]
        with self._said(part, step):
            if self.ahead is None:
                return moved(self.data.read(part, places), self.device)
            begin = piece.start or 0
            found = self._taken((step, part, begin), places, self.ahead)
            self._after |= {(step + later, part, begin): (piece, later) for later in range(1, self.ahead.depth + 1)}
            if isinstance(self.data, Items):
                self.ask_ahead()
        if found.drawn is not None:
            restore(found.drawn)
        return found.batch

    def ask_ahead(self) -> None:
        """Begin to read for the next steps. Items take long, and are asked for at once; tensors when the device has been asked
        for everything: until then, a second thread would only keep it waiting."""
        asked, self._after = self._after, {}
        for (step, part, begin), (piece, later) in asked.items():
            assert self.ahead is not None
            places = self._following(part, step, later)[piece]
            if len(places):
                self.ahead.ask((step, part, begin), places)

    def prepare(self) -> None:
        """Move what was read for the next step to the device, while nobody waits for it. Errors come when it is asked for."""
        self.ask_ahead()
        for key, places in self.ahead.done() if self.ahead is not None else ():
            assert self.ahead is not None
            if key[0] <= self._step + 1:
                self._here[key] = places, self._moved(self.ahead.take(key, places))

    def _taken(self, key: Key, places: NDArray[np.int64], ahead: Ahead) -> Found:
        """A batch that is on the device already, or is read and moved now."""
        self._step = key[0]
        self._here = {other: one for other, one in self._here.items() if other[0] - key[0] in (0, 1)}
        known = self._here.pop(key, None)
        if known is not None and np.array_equal(known[0], places):
            return known[1]
        return self._moved(ahead.take(key, places))

    def _moved(self, found: Found) -> Found:
        return found._replace(batch=moved(found.batch, self.device))

    def reader(self, part: int, places: NDArray[np.int64]) -> Reader:
        """Samples that are read once, before the start."""
        with self._said(part, 0):
            return self.data.reader(part, places)

    def _worth(self) -> bool:
        """On a worker, where reading draws no random numbers and takes time: from tensors it does for a device only."""
        slow = isinstance(self.data, Items) or self.device.type == "cuda"
        return slow and self.worker is not None and not isinstance(self.batches, Draws)

    def _following(self, part: int, step: int, later: int) -> NDArray[np.int64]:
        """The samples of a partition in a step, so many after this one, as far as they are known; none where that is not."""
        return self.batches.following(part, later) if isinstance(self.batches, Sampled) else self.batches.rows(step, part)

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
