"""How the local engine starts processes: where their messages go, what they get, and how they end."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from ..problems.base import Problem
from ..runtime.serve import Share, share_of
from ..scheme.code import Code
from . import travel
from .environment import environment, thread_limits
from .local_memory import Memory
from .local_worker import FREE, Channels, main
from .nursery import Nursery, written
from .shared import Fd
from .starter import Starter

FAREWELL = 2.0
"""Seconds that workers have to end when the engine is closed."""


class Free(NamedTuple):
    """A process, and the socket over which it hears of another engine when its orders have ended."""

    process: Any
    link: socket.socket


class Born(NamedTuple):
    """A process that was started, its socket, and the pipe for its orders."""

    process: Any
    link: socket.socket
    orders: int


@dataclass(frozen=True, eq=False)
class Estate:
    """What an engine leaves to the next one: free processes by worker, and the thread and the nursery that start others."""

    free: dict[int, Free]
    starter: Starter[Born]
    nursery: Nursery | None

    def end(self) -> None:
        """Nobody takes it over."""
        self.starter.end()
        for one in self.free.values():
            one.link.close()
        end_all([one.process for one in self.free.values()])
        end_starter(self.starter, self.nursery)


def end_starter(starter: Starter[Born], nursery: Nursery | None) -> None:
    """End the thread, which may wait for a nursery that is stopped, and what it has started meanwhile."""
    if nursery is not None:
        nursery.interrupt()
        nursery.close()  # before the thread that started it ends, and the kernel kills it: it reaps its workers
    late = [born for _, born in starter.join(FAREWELL) if isinstance(born, Born)]
    for born in late:
        os.close(born.orders)
        born.link.close()
    end_all([born.process for born in late])


@dataclass(frozen=True, eq=False)
class Cradle:
    """What it takes to start a worker. notes: the master's inbox. nursery: what forks workers; None: each is an interpreter of
    its own. threads: of numerical libraries. free: processes of the engine before, by worker, which serve this one.
    """

    code: Code
    problem: Problem
    memory: Memory
    notes: int
    nursery: Nursery | None
    threads: int
    free: dict[int, Free] = field(default_factory=dict)

    def birth(self, worker: int) -> Born:
        """Start a process for a worker, in the starter's thread; it reports READY when it has what it needs."""
        share = share_of(self.problem, self.code, worker, checked=False)
        with contextlib.ExitStack() as passed, contextlib.ExitStack() as undo:
            file, modules = _pickled(share)
            passed.callback(os.close, file)
            theirs, orders = os.pipe()
            passed.callback(os.close, theirs)
            undo.callback(os.close, orders)
            os.set_blocking(orders, False)
            memory = self.memory
            slots = tuple(memory.slots[message.index] for message in share.program.messages)
            sizes = self.code.n, len(self.code.messages), self.problem.dim, np.dtype(self.problem.dtype).str
            areas = *memory.areas, memory.letter
            channels = Channels(Fd(file), Fd(theirs), Fd(self.notes), *areas, slots, *sizes, memory.way)
            born = Born(*(self._taken_over(worker, channels) or self._new(channels, modules)), orders)
            undo.pop_all()
        return born

    def _taken_over(self, worker: int, channels: Channels) -> Free | None:
        """The process that had the place in the engine before, where it is still there."""
        if (found := self.free.pop(worker, None)) is None:
            return None
        file, fds = written(channels)
        try:
            socket.send_fds(found.link, [FREE], [file, *fds])
        except OSError:
            found.link.close()
            return None
        finally:
            os.close(file)
        return found

    def _new(self, channels: Channels, modules: set[str]) -> Free:
        """A new process, with its socket. modules: that it is going to import."""
        mine, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(mine.close)
            found = Free(self._started(replace(channels, link=Fd(theirs.fileno())), modules), mine)
            undo.pop_all()
        return found

    def _started(self, channels: Channels, modules: set[str]) -> Any:
        """A process, forked by the nursery or from nothing."""
        if self.nursery is not None:
            return self.nursery.start(channels, installed(modules))
        process = get_context("spawn").Process(target=main, args=(channels, os.getpid()), daemon=True)
        with environment(thread_limits(self.threads)):
            process.start()
        return process


def _pickled(share: Share) -> tuple[int, set[str]]:
    """A nameless file with the pickled share, and the modules that reading it imports. Tensors go by value: multiprocessing's
    own way would share the memory of torch's."""
    file = os.memfd_create("unstraggle", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as out:
            modules = travel.dump(share, out)
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file, modules


def wait_until_free(links: Sequence[socket.socket | None]) -> bool:
    """Whether processes whose orders have ended all say that they are free, within a little while."""
    limit = time.monotonic() + FAREWELL
    return all(link is not None and _says(link, limit) for link in links)


def _says(link: socket.socket, limit: float) -> bool:
    link.settimeout(max(limit - time.monotonic(), 1e-3))
    with contextlib.suppress(OSError):
        return link.recv(len(FREE)) == FREE
    return False


def end_all(processes: list[Any]) -> None:
    """Wait a little until processes have ended, then kill the rest."""
    limit = time.monotonic() + FAREWELL
    for process in processes:
        process.join(max(0.0, limit - time.monotonic()))
        if process.is_alive():
            process.kill()
        process.join()
        forget(process)


def forget(process: Any) -> None:
    """Free what belongs to a process that has ended, or is about to: its files close a little before. Another thread may be
    taking note of its end at the same time."""
    process.join(0.5)
    with contextlib.suppress(ValueError):
        process.close()


def installed(modules: Iterable[str]) -> list[str]:
    """Those of installed packages. Modules beside the script may depend on what it has set before it imported them."""
    places = tuple(os.path.join(path, "") for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in modules}
    return sorted(name for name, file in files.items() if file is not None and file.startswith(places))


def own_modules(problem: Problem) -> list[str]:
    """The module of a problem of this library, with what it imports. Others may start threads, which must not be forked."""
    name = type(problem).__module__
    return [name] if name.startswith("unstraggle.") else []
