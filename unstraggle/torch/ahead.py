"""Ahead: the samples of the next step are read by a thread while the device computes this one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

Key = tuple[int, int]
"""Step and partition."""


class Ahead:
    """Batches that are read before they are asked for. pinned: into memory that a device reads by itself.

    For samples whose reading draws no random numbers: those of a process are one sequence, whoever draws.

    >>> ahead = Ahead(pinned=False)
    >>> ahead.ask((1, 0), lambda: torch.arange(3))
    >>> ahead.take((1, 0)), ahead.take((1, 0))
    (tensor([0, 1, 2]), None)
    """

    def __init__(self, pinned: bool = True) -> None:
        self._pinned = pinned
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="unstraggle-ahead")
        self._asked: dict[Key, Future[Any]] = {}

    def ask(self, key: Key, read: Callable[[], Any]) -> None:
        """Begin to read; what was asked for other steps and not taken is forgotten."""
        self._asked = {other: one for other, one in self._asked.items() if abs(other[0] - key[0]) <= 1}
        if key not in self._asked:
            self._asked[key] = self._pool.submit(lambda: pinned(read()) if self._pinned else read())

    def take(self, key: Key) -> Any:
        """What was read, or None where nobody asked. Errors of reading come here."""
        found = self._asked.pop(key, None)
        return None if found is None else found.result()


def pinned(batch: Any) -> Any:
    """A batch of tensors in memory that devices reach."""
    if isinstance(batch, Tensor):
        return batch.pin_memory() if torch.cuda.is_available() else batch
    return type(batch)(pinned(one) for one in batch)
