"""Nursery: a process without threads that has imported what workers need, and forks them.

A fork takes milliseconds where a new interpreter takes a tenth of a second, and one with PyTorch seconds. Forks share memory;
and as their code lies at the same addresses, a processor that goes from one to the next predicts its branches better. The
master itself is never forked, nor is anything that a user's script has begun: each fork runs the script's imports by itself,
where the script has a guard. Installed packages that workers need are imported before the forks, where that leaves nothing
open or running.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing import spawn
from typing import Any

from ..errors import UnstraggleError
from . import travel
from .local_worker import Channels
from .nursery_server import BORN, ENDED, FORK, RECORD, REFUSED
from .shared import Fd

PATIENCE = 5.0
"""Seconds for what takes milliseconds."""
CODE = """import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = {path}
from unstraggle.engines.nursery_server import serve
serve({fd}, {master}, {modules}, sys.argv[1:])"""
"""The program of the nursery. Ctrl+C is the master's to handle."""


class Nursery:
    """The master's end. environment: variables that the workers have besides those of now. modules: to import before forks.

    Used by the thread that starts workers, except for `interrupt` and `close`. If the nursery was killed, another one begins.
    within: seconds for an answer.
    """

    def __init__(self, environment: dict[str, str], modules: Sequence[str] = (), within: float = 300.0) -> None:
        self._environment, self._modules, self._within = environment, list(modules), within
        self._others: list[str] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._busy, self._interrupted, self._number = threading.Lock(), False, 0

    def start(self, channels: Channels, others: Sequence[str] = ()) -> Child:
        """Fork a worker; see `local_worker.main`. Raises OSError where this one cannot be started.

        others: modules that it will import, for a nursery that begins now.
        """
        with self._busy:
            if self._server is None:
                self._others = list(others) if os.path.isdir("/proc/self/task") else []
                self._begin()
            try:
                return self._ask(channels)
            except Gone:
                self._begin()
            try:
                return self._ask(channels)
            except Gone:
                raise UnstraggleError(
                    f"The process that forks workers ended (exit code {self._end()}); its error stands above. "
                    'Local(problem, start_method="spawn") does without it.'
                ) from None

    def code_of(self, pid: int) -> int | None:
        """The exit code of a worker that has ended; None where its nursery is gone, or busy, and nobody knows it."""
        if not self._busy.acquire(timeout=PATIENCE):
            return None
        try:
            self._link.settimeout(PATIENCE)
            while pid in self._alive:
                self._hear()
        except OSError:
            pass
        finally:
            self._busy.release()
        return self._codes.pop(pid, None)

    def interrupt(self) -> None:
        """Let a `start` that is under way fail, and all later ones."""
        self._interrupted = True
        if self._server is not None:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it, and the workers that are left."""
        self._end()

    def _begin(self) -> None:
        self._end()
        if self._interrupted:
            raise UnstraggleError("The engine was closed.")
        self._alive, self._codes = set[int](), dict[int, int]()
        spawn.get_preparation_data("")  # fails where a script without guard would begin without end
        link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(link.close)
            code = CODE.format(path=sys.path, fd=theirs.fileno(), master=os.getpid(), modules=self._modules)
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
            command = [spawn.get_executable(), *flags, "-c", code, *self._others]
            variables = {**os.environ, **self._environment}
            self._server = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
            self._link = link
            undo.pop_all()

    def _end(self) -> int | None:
        """End the process, if there is one, also a stopped one; gives its exit code."""
        server, self._server = self._server, None
        if server is None:
            return None
        self._link.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.send_signal(signal.SIGCONT)
            return server.wait(PATIENCE)
        server.kill()
        return server.wait()

    def _ask(self, channels: Channels) -> Child:
        about = spawn.get_preparation_data("unstraggle worker")
        about["authkey"] = bytes(about["authkey"])
        if not travel.imports_main():
            about = {name: value for name, value in about.items() if not name.startswith("init_main")}
        file, fds = written((about, channels))
        self._link.settimeout(self._within)
        self._number += 1
        try:
            socket.send_fds(self._link, [FORK.pack(self._number)], [file, *fds])
        except ConnectionError as error:
            raise Gone from error
        finally:
            os.close(file)
        while True:
            kind, pid, about_it, received = self._hear()
            if kind == BORN and about_it == self._number:
                return Child(self, pid, received[0])
            if kind == BORN:  # asked for so long ago that nobody waits any more: it ends, since nobody holds its orders
                os.close(received[0])
            if kind == REFUSED and pid == self._number:
                raise OSError(about_it, f"a worker could not be forked: {os.strerror(about_it)}")

    def _hear(self) -> tuple[int, int, int, list[int]]:
        try:
            record, fds, flags, _ = socket.recv_fds(self._link, RECORD.size, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError as error:
            raise Gone from error
        if not record:
            raise Gone("The nursery is gone.")
        kind, pid, code = RECORD.unpack(record)
        if kind == BORN and (flags & socket.MSG_CTRUNC or not fds):  # it ends by itself, for nobody holds its orders
            raise OSError(errno.EMFILE, "Too many open files: raise the limit (ulimit -n), or use fewer workers.")
        if kind == BORN:
            self._alive.add(pid)
        elif kind == ENDED:
            self._alive.discard(pid)
            self._codes[pid] = code
        return kind, pid, code, fds


class Gone(ConnectionError):
    """The nursery has ended."""


class Child:
    """A process that a nursery forked, as `multiprocessing.Process` shows its own. sentinel: readable when it has ended."""

    def __init__(self, nursery: Nursery, pid: int, sentinel: int) -> None:
        self._nursery, self.pid, self.sentinel = nursery, pid, sentinel

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end; gives whether it has come."""
        if self.sentinel < 0:
            return True
        poll = select.poll()
        poll.register(self.sentinel, select.POLLIN)
        return bool(poll.poll(None if timeout is None else 1e3 * timeout))

    def is_alive(self) -> bool:
        return not self.join(0.0)

    @property
    def exitcode(self) -> int | None:
        """Negative: the signal that ended it. Asks the nursery, and may wait for it."""
        return self._nursery.code_of(self.pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.sentinel >= 0:
                signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)

    def close(self) -> None:
        sentinel, self.sentinel = self.sentinel, -1
        if sentinel >= 0:
            os.close(sentinel)


def written(things: Any) -> tuple[int, list[int]]:
    """A nameless file with the pickled things, and the descriptors in them, which are sent beside it."""
    file = os.memfd_create("unstraggle", os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as out:
        pickler = Pickler(out, protocol=5)
        pickler.dump(things)
    os.lseek(file, 0, os.SEEK_SET)
    return file, pickler.fds


class Pickler(pickle.Pickler):
    """Writes the number of a descriptor among all instead of itself."""

    def __init__(self, file: Any, protocol: int) -> None:
        super().__init__(file, protocol)
        self.fds: list[int] = []

    def persistent_id(self, thing: Any) -> int | None:
        if not isinstance(thing, Fd):
            return None
        self.fds.append(thing.fd)
        return len(self.fds) - 1
