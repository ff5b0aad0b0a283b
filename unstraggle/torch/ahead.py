"""Ahead: the samples of the next steps are read while this one is computed, by threads or by processes of theirs."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from .batches import Rows
from .seeds import States, alike, states

Key = tuple[int, int, int]
"""Step, partition, and micro-batch of it."""
LAST = 5.0
"""Seconds that a process waits at its end for what is being read."""


class Found(NamedTuple):
    """A batch that was read. drawn: where that left the generators of random numbers, if it was done elsewhere and drew any."""

    batch: Any
    drawn: States | None = None


Asked = tuple[Rows, Future[Found]]
Job = tuple[Key, Rows, Future[Found]]


class Source(Protocol):
    """Reads batches, one after the other, for one thread. start: get ready. close: nothing more is read."""

    def start(self) -> None: ...
    def read(self, key: Key, places: Rows) -> Found: ...
    def close(self) -> None: ...


class Here:
    """Reads in the thread itself. read(partition, places): how. For samples whose reading draws no random numbers: those of a
    process are one sequence, whoever draws."""

    def __init__(self, read: Callable[[int, Rows], Any]) -> None:
        self._read = read

    def start(self) -> None:
        """Nothing to do."""

    def read(self, key: Key, places: Rows) -> Found:
        return Found(self._read(key[1], places))

    def close(self) -> None:
        """Nothing to do."""


class Ahead:
    """Batches that are read before they are asked for, in the order of their steps, by a thread for each source. Nobody else
    reads, so that with one source a dataset need not care about threads. pinned: into memory that a device reads by itself.
    depth: how many steps after the one that is computed are read.

    >>> ahead = Ahead([Here(lambda part, places: torch.as_tensor(10 * places))])
    >>> ahead.ask((1, 0, 0), np.array([3, 4]))
    >>> ahead.take((1, 0, 0), np.array([3, 4])).batch, ahead.take((2, 0, 0), np.array([5])).batch
    (tensor([30, 40]), tensor([50]))
    """

    def __init__(self, sources: Sequence[Source], pinned: bool = False, depth: int = 1) -> None:
        self._desk = desk = Desk()
        self.depth = depth
        ready = threading.Barrier(len(sources) + 1)
        jobs = [(desk, source, pinned, ready) for source in sources]
        threads = [threading.Thread(target=work, args=job, name="unstraggle-ahead", daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        ready.wait()
        weakref.finalize(self, desk.close)
        atexit.register(_end, weakref.ref(desk), [weakref.ref(thread) for thread in threads])

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

    def take(self, key: Key, places: Rows) -> Found:
        """The samples; they are read now where nobody asked for these. What was asked for steps before this one, or long after,
        is forgotten. Errors of reading come here."""
        desk = self._desk
        with desk.changed:
            desk.asked = {other: one for other, one in desk.asked.items() if 0 <= other[0] - key[0] <= self.depth}
        self.ask(key, places)
        with desk.changed:
            _, found = desk.asked.pop(key)
            desk.urgent = None if found.running() or found.done() else (key, places, found)
            desk.changed.notify()
        return found.result()


def _end(desk: weakref.ref[Desk], threads: list[weakref.ref[threading.Thread]]) -> None:
    """Before the interpreter ends: a thread that is in torch then would take the process down with an abort."""
    here, until = desk(), time.monotonic() + LAST
    if here is None:
        return
    here.close()
    for thread in (one() for one in threads):
        if thread is not None:
            thread.join(max(0.0, until - time.monotonic()))


class Desk:
    """What is asked for, between the thread that asks and the one that reads. urgent: what the other waits for."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.asked: dict[Key, Asked] = {}
        self.urgent: Job | None = None
        self.closed = False

    def next(self) -> Job | None:
        """What to read now: what is waited for, else the first that nobody has begun. None where there is nothing."""
        if self.urgent is not None:
            found, self.urgent = self.urgent, None
            return found
        waiting = [key for key, (_, one) in self.asked.items() if not one.running() and not one.done()]
        return (min(waiting), *self.asked[min(waiting)]) if waiting else None

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()


def work(desk: Desk, source: Source, pin: bool, ready: threading.Barrier) -> None:
    """Read what is asked for, until the desk is closed."""
    with contextlib.suppress(Exception):  # reading tries again, and its errors are heard
        source.start()
    ready.wait()
    with contextlib.closing(source):
        while (one := _taken(desk)) is not None:
            key, places, future = one
            try:
                found = source.read(key, places)
                future.set_result(found._replace(batch=pinned(found.batch)) if pin else found)
                del found
            except BaseException as error:
                future.set_exception(error)
            del one, future


def _taken(desk: Desk) -> Job | None:
    """What to read next, which nobody else takes then; None when the desk is closed."""
    with desk.changed:
        while (one := desk.next()) is None and not desk.closed:
            desk.changed.wait()
        if one is None or desk.closed:
            return None
        one[2].set_running_or_notify_cancel()
        return one


@contextlib.contextmanager
def drawing() -> Iterator[list[bool]]:
    """Says at the end whether something drew random numbers meanwhile, from torch, numpy or random.

    >>> with drawing() as drew:
    ...     _ = torch.randn(1)
    >>> drew
    [True]
    """
    drew: list[bool] = []
    before = states()
    yield drew
    drew.append(not alike(before, states()))


def pinned(batch: Any) -> Any:
    """A batch of tensors in memory that devices reach."""
    if isinstance(batch, Tensor):
        return batch.pin_memory() if torch.cuda.is_available() else batch
    if isinstance(batch, tuple | list) and not hasattr(batch, "_fields"):
        return type(batch)(pinned(one) for one in batch)
    return batch
