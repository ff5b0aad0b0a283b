"""The process of a nursery, and what its forks do first."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from multiprocessing import process, spawn
from typing import Any

import numpy.random

from .lifeline import end_with
from .local_worker import main
from .shared import Fd

FORK = struct.Struct("<q")
"""What the master says: the number of its request. With it come a file and the descriptors of `Channels`, at most:"""
MOST_FDS = 16
RECORD = struct.Struct("<qqq")
"""What it hears: BORN, process, request (with a descriptor that is readable when the process has ended); ENDED, process, exit
code; or REFUSED, request, error number."""
BORN, ENDED, REFUSED = 1, 2, 3
LOOK = 0.5
"""Seconds between two looks whether the master is still there: other processes may hold its end of the connection."""


def serve(fd: int, master: int, modules: Sequence[str], others: Sequence[str] = ()) -> None:
    """Fork whenever the master asks, until it has closed the connection or is gone.

    others: modules that workers will import, and that are imported here if nothing speaks against it: else all begins again
    without them.
    """
    end_with(master)
    for name in modules:
        importlib.import_module(name)
    if others and not imported_safely(others):
        os.execv(sys.executable, sys.orig_argv[: -len(others)])
    gc.collect()
    gc.freeze()  # so that collections in forks leave pages alone that they share
    me = os.getpid()
    fds = Server(socket.socket(fileno=fd)).run(master)
    if fds:
        live(fds, me)
    gc.unfreeze()  # else libraries that count their objects at the end miss some, and say so


def imported_safely(modules: Sequence[str]) -> bool:
    """Import modules; whether forks may have them: no error, no thread, no process, no file, socket or device that is open."""
    before = _open_files()
    try:
        for name in modules:
            importlib.import_module(name)
    except (Exception, SystemExit):  # a worker says what is wrong
        return False
    return len(os.listdir("/proc/self/task")) == 1 and _open_files() == before and not _has_children()


def _open_files() -> set[tuple[str, str]]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the list itself
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


class Server:
    """The nursery's end of the connection, and its children by their sentinels."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._children = link, dict[int, int]()
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)

    def run(self, master: int) -> list[int]:
        """Until the end, which is also that of all children; in a child it gives the descriptors that came for it."""
        with contextlib.suppress(ConnectionError):
            while os.getppid() == master:
                ready = {fd for fd, _ in self._poll.poll(1e3 * LOOK)}
                for sentinel in ready & self._children.keys():
                    self._report(sentinel)
                if self._link.fileno() in ready:
                    request, fds, flags, _ = socket.recv_fds(self._link, FORK.size, MOST_FDS, socket.MSG_CMSG_CLOEXEC)
                    if not request:
                        break
                    if self._answer(FORK.unpack(request)[0], fds, whole=not flags & socket.MSG_CTRUNC):
                        return fds
        for sentinel in self._children:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(sentinel, signal.SIGKILL)
        for pid in self._children.values():
            os.waitpid(pid, 0)  # else they stay in the process list for as long as the next parent likes
        return []

    def _answer(self, request: int, fds: list[int], *, whole: bool) -> bool:
        """Fork, and say how that went: one that fails is the loss of one worker, not of all. Gives whether this is the child.

        whole: whether all descriptors came; there is a limit to how many a process may have.
        """
        try:
            if not whole:
                raise OSError(errno.EMFILE, "Too many open files")
            if (pid := os.fork()) == 0:
                self._link.close()
                _close(self._children)
                return True
            self._adopt(pid, request)
        except OSError as error:
            self._link.send(RECORD.pack(REFUSED, request, error.errno or 0))
        _close(fds)
        return False

    def _adopt(self, pid: int, request: int) -> None:
        try:
            sentinel = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._children[sentinel] = pid
        self._poll.register(sentinel, select.POLLIN)
        socket.send_fds(self._link, [RECORD.pack(BORN, pid, request)], [sentinel])

    def _report(self, sentinel: int) -> None:
        """A child has ended. A master that has not heard of many others need not hear of this one."""
        pid = self._children.pop(sentinel)
        self._poll.unregister(sentinel)
        os.close(sentinel)
        record = RECORD.pack(ENDED, pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        with contextlib.suppress(BlockingIOError):
            self._link.send(record, socket.MSG_DONTWAIT)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def live(fds: list[int], parent: int) -> None:
    """Be a worker: import the master's script, as a spawned process does, where it has a guard, and go to work."""
    end_with(parent)
    numpy.random.seed()  # noqa: NPY002 - else what a problem draws from it would be the same in all forks
    with open(fds[0], "rb") as file:
        about, channels = Unpickler(file, fds[1:]).load()
    current: Any = process.current_process()
    current._inheriting = True  # a script without guard is told so when it starts processes now
    spawn.prepare(about)
    del current._inheriting
    main(channels, parent)


class Unpickler(pickle.Unpickler):
    """Reads what the master pickled. fds: the descriptors in it, which came beside it."""

    def __init__(self, file: Any, fds: list[int]) -> None:
        super().__init__(file)
        self._fds = fds

    def persistent_load(self, number: int) -> Fd:
        return Fd(self._fds[number])
