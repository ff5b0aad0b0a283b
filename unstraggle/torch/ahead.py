"""Ahead: the samples of the next step are read by a thread while this one is computed."""

from __future__ import annotations

import atexit
import contextlib
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .batches import Rows

Key = tuple[int, int, int]
"""Step, partition, and micro-batch of it."""
LAST = 5.0
"""Seconds that a process waits at its end for what is being read."""


class Ahead:
    """Batches that are read before they are asked for, by one thread, in the order of their steps. Nobody else reads, so that
    a dataset need not care about threads. pinned: into memory that a device reads by itself.

    read(partition, places): how. For samples whose reading draws no random numbers: those of a process are one sequence,
    whoever draws.

    >>> ahead = Ahead(lambda part, places: torch.as_tensor(10 * places))
    >>> ahead.ask((1, 0, 0), np.array([3, 4]))
    >>> ahead.take((1, 0, 0), np.array([3, 4])), ahead.take((2, 0, 0), np.array([5]))
    (tensor([30, 40]), tensor([50]))
    """

    def __init__(self, read: Callable[[int, Rows], Any], pinned: bool = False) -> None:
        self._desk = desk = Desk()
        thread = threading.Thread(target=work, args=(desk, read, pinned), name="unstraggle-ahead", daemon=True)
        thread.start()
        weakref.finalize(self, desk.close)
        atexit.register(_end, weakref.ref(desk), weakref.ref(thread))

    def ask(self, key: Key, places: Rows) -> None:
        """Begin to read, unless these were asked for already."""
        desk = self._desk
        with desk.changed:
            known = desk.asked.get(key)
            if known is None or not np.array_equal(known[0], places):
                desk.asked[key] = places, Future()
                desk.changed.notify()

    def done(self) -> list[tuple[Key, Rows]]:
        """What was read, and not yet taken; but for what could not be read."""
        with self._desk.changed:
            return [(key, places) for key, (places, one) in self._desk.asked.items() if one.done() and one.exception() is None]

    def take(self, key: Key, places: Rows) -> Any:
        """The samples; they are read now where nobody asked for these. What was asked for steps other than this and the next is
        forgotten. Errors of reading come here."""
        desk = self._desk
        with desk.changed:
            desk.asked = {other: one for other, one in desk.asked.items() if other[0] - key[0] in (0, 1)}
        self.ask(key, places)
        with desk.changed:
            _, found = desk.asked.pop(key)
            desk.urgent = None if found.running() or found.done() else (key, places, found)
            desk.changed.notify()
        return found.result()


def _end(desk: weakref.ref[Desk], thread: weakref.ref[threading.Thread]) -> None:
    """Before the interpreter ends: a thread that is in torch then would take the process down with an abort."""
    here, running = desk(), thread()
    if here is not None and running is not None:
        here.close()
        running.join(LAST)


class Desk:
    """What is asked for, between the thread that asks and the one that reads. urgent: what the other waits for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.asked: dict[Key, tuple[Rows, Future[Any]]] = {}
        self.urgent: tuple[Key, Rows, Future[Any]] | None = None
        self.closed = False

    def next(self) -> tuple[Key, Rows, Future[Any]] | None:
        """What to read now: what is waited for, else the first that nobody has begun. None where there is nothing."""
        if self.urgent is not None:
            found, self.urgent = self.urgent, None
            return found
        waiting = [key for key, (_, one) in self.asked.items() if not one.running() and not one.done()]
        return (min(waiting), *self.asked[min(waiting)]) if waiting else None

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify()


def work(desk: Desk, read: Callable[[int, Rows], Any], pin: bool) -> None:
    """Read what is asked for, until the desk is closed."""
    while True:
        with desk.changed:
            while (one := desk.next()) is None and not desk.closed:
                desk.changed.wait()
            if one is None or desk.closed:
                return
            (_, part, _), places, found = one
            found.set_running_or_notify_cancel()
        try:
            batch = read(part, places)
            found.set_result(pinned(batch) if pin else batch)
        except BaseException as error:
            found.set_exception(error)
        del one, found


@contextlib.contextmanager
def drawing() -> Iterator[list[bool]]:
    """Says at the end whether something drew random numbers meanwhile, from torch, numpy or random.

    >>> with drawing() as drew:
    ...     _ = torch.randn(1)
    >>> drew
    [True]
    """
    drew: list[bool] = []
    before = _states()
    yield drew
    drew.append(any(not np.array_equal(a, b) for a, b in zip(before, _states(), strict=True)))


def _states() -> list[Any]:
    legacy: Any = np.random.get_state()  # noqa: NPY002
    return [torch.get_rng_state().numpy(), legacy[1], legacy[2:], np.array(random.getstate()[1])]


def pinned(batch: Any) -> Any:
    """A batch of tensors in memory that devices reach."""
    if isinstance(batch, Tensor):
        return batch.pin_memory() if torch.cuda.is_available() else batch
    if isinstance(batch, tuple | list) and not hasattr(batch, "_fields"):
        return type(batch)(pinned(one) for one in batch)
    return batch
