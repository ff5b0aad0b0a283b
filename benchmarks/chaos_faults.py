"""What goes wrong in the chaos soak: data drawn from a seed, done by the problem on a worker, or from outside."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstraggle.engines import wire
from unstraggle.problems import LeastSquares

KILLS = ("kill", "stop_and_kill", "die", "no_fork", "no_files")
"""Those after which a worker has to be started again."""
IN_TASKS = ("sleep", "hold", "raise", "die", "garbage")
FROM_OUTSIDE = ("kill", "stop", "stop_and_kill", "interrupt", "absent")
KINDS = {
    "local": (*IN_TASKS[:4], *FROM_OUTSIDE, "nursery_stop", "nursery_kill", "no_fork", "no_files"),
    "mpi": (*IN_TASKS, *FROM_OUTSIDE),
    "ray": (*IN_TASKS[:4], *FROM_OUTSIDE, "guests"),
}
LEFT = 17
"""Exit code of a worker that leaves by itself; mpiexec, too, ends with it then."""
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
LONG = 2.5
"""Seconds of a stop, or of a task that holds the interpreter lock, at most: longer than a heartbeat."""


@dataclass(frozen=True)
class Fault:
    """kind: one of `KINDS`. seconds: how long, or, of what happens in a moment, how long after the start of the round."""

    kind: str
    worker: int
    seconds: float


def drawn(rng: np.random.Generator, engine: str, workers: int, rounds: int, chance: float, kills: int) -> dict[int, Fault]:
    """The faults of a life, by round: at most so many that cost a worker."""
    faults: dict[int, Fault] = {}
    for number in np.flatnonzero(rng.random(rounds) < chance).tolist():
        kind = str(rng.choice(KINDS[engine]))
        seconds = float(rng.random()) * (LONG if kind in ("sleep", "hold", "stop", "stop_and_kill") else 0.03)
        kills -= kind in KILLS
        if kind not in KILLS or kills >= 0:
            faults[number] = Fault(kind, int(rng.integers(workers)), seconds)
    return faults


@dataclass(frozen=True, eq=False)
class Troubled:
    """Least squares on workers that have trouble: each once, whoever computes the task again has none. folder: of the marks."""

    whole: LeastSquares
    faults: Mapping[int, Fault]
    folder: str
    here: int = -1

    @property
    def k(self) -> int:
        return self.whole.k

    @property
    def dim(self) -> int:
        return self.whole.dim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.whole.dtype

    def share(self, worker: int, parts: Any) -> Troubled:
        return replace(self, whole=self.whole.only(parts), here=worker)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        fault = self.faults.get(step)
        if fault is not None and fault.worker == self.here and fault.kind in IN_TASKS and self._first(step):
            trouble(fault)
        return self.whole.grad(params, part, where, step)

    def _first(self, step: int) -> bool:
        try:
            (Path(self.folder) / str(step)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def trouble(fault: Fault) -> None:
    """What happens in the middle of a task."""
    if fault.kind == "sleep":
        time.sleep(fault.seconds)
    elif fault.kind == "hold":
        ctypes.PyDLL(None).usleep(int(1e6 * fault.seconds))
    elif fault.kind == "raise":
        raise ArithmeticError("a task fails on purpose")
    elif fault.kind == "die":
        os._exit(LEFT)
    elif fault.kind == "garbage":
        _parcels(np.random.default_rng(fault.worker))


def _parcels(rng: np.random.Generator) -> None:
    """Frames that are none, from a rank to the master."""
    from unstraggle.engines import mpi_launch
    from unstraggle.engines.mpi_wire import ENGINES, FRAME

    for engine in range(4):
        mpi_launch._wires[0].send(0, FRAME, engine % ENGINES, rng.bytes(int(rng.integers(200))))


@dataclass(eq=False)
class Outside:
    """What is done to an engine and its workers while rounds run. later: what is still to come. inside: whether one runs."""

    engine: Any
    rng: np.random.Generator
    later: list[threading.Timer] = field(default_factory=list)
    inside: bool = False

    def cause(self, fault: Fault) -> None:
        """Begin what a round is to go through; most of it happens a little later."""
        doing = getattr(self, f"_{fault.kind}", None)
        if doing is not None:
            with contextlib.suppress(OSError):  # this process may have no descriptor left, on purpose
                doing(fault)

    def end(self, *, early: bool) -> None:
        """Wait for what is still to come, or let it be: then workers that are stopped stay so."""
        for timer in self.later:
            if early and timer.function is not resource.setrlimit:
                timer.cancel()
            timer.join()

    def _after(self, seconds: float, what: Callable[..., object], *arguments: Any) -> None:
        self.later = [timer for timer in self.later if timer.is_alive()]
        self.later.append(threading.Timer(seconds, what, arguments))
        self.later[-1].start()

    def _signal(self, pid: int | None, number: int, after: float) -> None:
        """To the process that has this number now, whoever has it later."""
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                self._after(after, _sent, os.pidfd_open(pid), number)

    def _kill(self, fault: Fault) -> None:
        self._signal(self.engine.pid(fault.worker), signal.SIGKILL, fault.seconds)

    def _stop(self, fault: Fault) -> None:
        pid = self.engine.pid(fault.worker)
        self._signal(pid, signal.SIGSTOP, 0.0)
        self._signal(pid, signal.SIGCONT, fault.seconds)

    def _stop_and_kill(self, fault: Fault) -> None:
        pid = self.engine.pid(fault.worker)
        self._signal(pid, signal.SIGSTOP, 0.0)
        self._signal(pid, signal.SIGKILL, fault.seconds)

    def _interrupt(self, fault: Fault) -> None:
        """Ctrl+C, while a worker dies or not."""
        if fault.worker % 2:
            self._stop(replace(fault, seconds=0.5))
        self._after(fault.seconds, self._press)

    def _press(self) -> None:
        if self.inside:
            os.kill(os.getpid(), signal.SIGINT)

    def _absent(self, fault: Fault) -> None:
        """The master does something else for longer than a heartbeat."""
        time.sleep(1.2)

    # Local

    def _nursery_stop(self, fault: Fault) -> None:
        """The process that forks does not answer when a worker has to be started again."""
        self._signal(_nursery(self.engine), signal.SIGSTOP, 0.0)
        self._signal(_nursery(self.engine), signal.SIGCONT, 1.0)

    def _nursery_kill(self, fault: Fault) -> None:
        """With it, its workers."""
        self._signal(_nursery(self.engine), signal.SIGKILL, fault.seconds)

    def _no_fork(self, fault: Fault) -> None:
        """A worker dies, and the process that forks has no descriptor left for another one."""
        pid = _nursery(self.engine)
        if pid is not None:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_files(pid), FILES[1]))
            self._after(1.0, self._unlimited)
        self._kill(fault)

    def _no_files(self, fault: Fault) -> None:
        """The same, in the master."""
        self._kill(fault)
        resource.setrlimit(resource.RLIMIT_NOFILE, (_files(os.getpid()), FILES[1]))
        self._after(0.5, self._unlimited)

    def _unlimited(self) -> None:
        """As many files as before, in the master and in what forks, which may be a new one that has the limit of the master."""
        resource.setrlimit(resource.RLIMIT_NOFILE, FILES)
        pid = _nursery(self.engine)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, FILES)

    # Ray

    def _guests(self, fault: Fault) -> None:
        """Strangers at the master's door: some talk nonsense, some say nothing, some claim to be a worker."""
        hub = self.engine._hub
        words = (
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            self.rng.bytes(500),
            _claim(self.rng.bytes(wire.TOKEN)),
            _claim(hub.token, 10**6),
        )
        for text in words:
            guest = socket.create_connection(hub._door.getsockname(), 5.0)
            with contextlib.suppress(OSError):
                guest.sendall(text)
            self._after(3.0, guest.close)


def _claim(token: bytes, worker: int = 0) -> bytes:
    return wire.head(wire.HELLO, worker, 1, len(token)) + token


def _sent(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, number)
    os.close(process)


def _files(pid: int) -> int:
    """How many files a process has open: with this limit it cannot open another one."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def _nursery(engine: Any) -> int | None:
    server = engine._nursery._server
    return None if server is None or server.poll() is not None else server.pid
