"""How the local engine starts processes: where their messages go, what they get, and how they end."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from ..problems.base import Problem
from ..runtime import frame
from ..runtime.payload import payload_sizes
from ..runtime.serve import Share, share_of
from ..scheme.code import Code
from . import travel
from .environment import environment, thread_limits
from .local_worker import Channels, main
from .nursery import Nursery
from .shared import Area, Fd, Letter

PAGE = 4096
FAREWELL = 2.0
"""Seconds that workers have to end when the engine is closed."""


class Born(NamedTuple):
    """A process that was started, and the pipe for its orders."""

    process: Any
    orders: int


@dataclass(frozen=True, eq=False)
class Cradle:
    """What it takes to start a worker. areas: board, parameters, payloads. letter: what comes with
    orders. slots: of all messages. notes: the master's inbox.

    nursery: what forks workers; None: each is an interpreter of its own. threads: of numerical libraries. way: where parameters
    and payloads stand, if not in the areas.
    """

    code: Code
    problem: Problem
    areas: tuple[Area, Area, Area]
    letter: Letter
    slots: Sequence[tuple[int, int, int]]
    notes: int
    nursery: Nursery | None
    threads: int
    way: Any = None

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
            slots = tuple(self.slots[message.index] for message in share.program.messages)
            sizes = self.code.n, len(self.code.messages), self.problem.dim, np.dtype(self.problem.dtype).str
            board, params, payloads = self.areas
            areas = board, params, payloads, self.letter
            channels = Channels(Fd(file), Fd(theirs), Fd(self.notes), *areas, slots, *sizes, self.way)
            born = Born(self._started(channels, modules), orders)
            undo.pop_all()
        return born

    def _started(self, channels: Channels, modules: set[str]) -> Any:
        """A process, forked by the nursery or from nothing. modules: that it is going to import."""
        if self.nursery is not None:
            return self.nursery.start(channels, installed(modules))
        process = get_context("spawn").Process(target=main, args=(channels, os.getpid()), daemon=True)
        with environment(thread_limits(self.threads)):
            process.start()
        return process


def places(code: Code, problem: Problem) -> tuple[list[tuple[int, int, int]], int]:
    """A place in shared memory for every message of a round, header and payload: where it begins, its size, and where in it the
    payload begins; and the size of all."""
    sizes = payload_sizes(code, problem.dim, np.dtype(problem.dtype))
    tasks = np.bincount(code.tasks.worker, minlength=code.n)[code.messages.worker]
    heads = np.array([frame.head_size(int(count)) for count in tasks])
    rooms = heads + sizes
    whole = -(-rooms // PAGE) * PAGE
    ends = np.cumsum(whole)
    return list(zip((ends - whole).tolist(), rooms.tolist(), heads.tolist(), strict=True)), int(ends[-1])


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
