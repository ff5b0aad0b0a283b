"""Nursery: a process without threads that has imported what workers need, and forks them.

A fork takes milliseconds where a new interpreter takes a tenth of a second, and one with PyTorch seconds. Forks share memory;
and as their code lies at the same addresses, a processor that goes from one to the next predicts its branches better. The
master itself is never forked, nor is anything that a user's script has begun: each fork runs the script's imports by itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import spawn
from typing import Any

from ..errors import UnstraggleError
from .local_worker import Channels
from .nursery_server import BORN, END, FORK, RECORD
from .shared import Fd

PATIENCE = 5.0
"""Seconds for what takes milliseconds."""
CODE = """import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = {path}
from unstraggle.engines.nursery_server import serve
serve({fd}, {master}, {modules})"""
"""The program of the nursery. Ctrl+C is the master's to handle."""


class Nursery:
    """The master's end. environment: variables that the workers have besides those of now. modules: to import before forks.

    within: seconds for that.
    """

    def __init__(self, environment: dict[str, str], modules: Sequence[str] = (), within: float = 300.0) -> None:
        self._environment, self._modules, self._within = environment, list(modules), within
        self._begin()

    def start(self, data: bytes, channels: Channels) -> Child:
        """Fork a worker; see `local_worker.main`. If the nursery itself was killed, another one begins."""
        for again in (True, False):
            try:
                return self._ask(data, channels)
            except OSError:
                self.close()
                if again:
                    self._begin()
        raise UnstraggleError(
            f"The process that forks workers ended (exit code {self._server.returncode}); its error stands above. "
            'Local(problem, start_method="spawn") does without it.'
        )

    def code_of(self, pid: int) -> int | None:
        """The exit code of a worker that has ended; None where its nursery is gone and nobody knows it."""
        self._link.settimeout(PATIENCE)
        with contextlib.suppress(OSError):
            while pid in self._alive:
                self._hear()
        return self._codes.pop(pid, None)

    def close(self) -> None:
        """End it, and the workers that are left."""
        with contextlib.suppress(OSError):
            self._link.send(END)
        self._link.close()
        try:
            self._server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def _begin(self) -> None:
        self._alive, self._codes = set[int](), dict[int, int]()
        spawn.get_preparation_data("")  # fails where a script without guard would begin without end
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            code = CODE.format(path=sys.path, fd=theirs.fileno(), master=os.getpid(), modules=self._modules)
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
            command, variables = [spawn.get_executable(), *flags, "-c", code], {**os.environ, **self._environment}
            self._server = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def _ask(self, data: bytes, channels: Channels) -> Child:
        about = spawn.get_preparation_data("unstraggle worker")
        about["authkey"] = bytes(about["authkey"])
        file, fds = written((about, data, channels))
        self._link.settimeout(self._within)
        try:
            socket.send_fds(self._link, [FORK], [file, *fds])
        finally:
            os.close(file)
        while True:
            kind, pid, received = self._hear()
            if kind == BORN:
                return Child(self, pid, received[0])

    def _hear(self) -> tuple[int, int, list[int]]:
        record, fds, _, _ = socket.recv_fds(self._link, RECORD.size, 1, socket.MSG_CMSG_CLOEXEC)
        if not record:
            raise ConnectionResetError("The nursery is gone.")
        kind, pid, code = RECORD.unpack(record)
        if kind == BORN:
            self._alive.add(pid)
        else:
            self._alive.discard(pid)
            self._codes[pid] = code
        return kind, pid, fds


class Child:
    """A process that a nursery forked, as `multiprocessing.Process` shows its own. sentinel: readable when it has ended."""

    def __init__(self, nursery: Nursery, pid: int, sentinel: int) -> None:
        self._nursery, self.pid, self.sentinel = nursery, pid, sentinel

    def join(self, timeout: float | None = None) -> bool:
        """Wait for its end; gives whether it has come."""
        poll = select.poll()
        poll.register(self.sentinel, select.POLLIN)
        return bool(poll.poll(None if timeout is None else 1e3 * timeout))

    def is_alive(self) -> bool:
        return not self.join(0.0)

    @property
    def exitcode(self) -> int | None:
        """Negative: the signal that ended it."""
        return self._nursery.code_of(self.pid)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)

    def close(self) -> None:
        os.close(self.sentinel)


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
