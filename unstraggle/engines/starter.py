"""Starter: a thread that starts workers, so that no round waits for pickling, forking, or a process that is stopped."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Starter(Generic[T]):
    """Calls start(worker) for those that are asked for, one after the other. fd: readable when there are results to take,
    on Linux; -1 elsewhere.

    The thread lives until `join`: the kernel ends processes with the thread that started them (see `lifeline`).
    """

    def __init__(self, start: Callable[[int], T]) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) if hasattr(os, "eventfd") else -1
        self._start, self._ended = start, False
        self._asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="unstraggle starter", daemon=True)
        self._thread.start()

    def use(self, start: Callable[[int], T]) -> None:
        """Start by another function from now on; nobody is asked for who is not there yet."""
        self._start = start

    def ask(self, worker: int) -> None:
        self._asked.put(worker)

    def take(self) -> list[tuple[int, T | BaseException]]:
        """What has become of those that were asked for: what `start` gave, or the error that it raised."""
        if self._done.empty():
            return []
        if self.fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
        return [self._done.get() for _ in range(self._done.qsize())]

    def end(self) -> None:
        """Start nobody any more; what was started lives on until `join`."""
        self._ended = True

    def join(self, timeout: float) -> list[tuple[int, T | BaseException]]:
        """Wait for the end of the thread; gives what was still started. May be called once, after `end`."""
        self._asked.put(None)
        self._thread.join(timeout)
        rest = [self._done.get() for _ in range(self._done.qsize())]
        if not self._thread.is_alive() and self.fd >= 0:
            os.close(self.fd)
        return rest

    def _run(self) -> None:
        while (worker := self._asked.get()) is not None:
            if self._ended:
                continue
            try:
                result: T | BaseException = self._start(worker)
            except BaseException as error:  # it belongs to the master's thread
                result = error
            self._done.put((worker, result))
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)
