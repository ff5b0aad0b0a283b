"""A reading process reads samples beside a worker, as those of a DataLoader with `num_workers` do."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..engines.lifeline import end_with
from . import parcel
from .ahead import Found, Key
from .batches import Rows
from .seeds import alike, seeded, states

log = logging.getLogger("unstraggle")

Read = Callable[[int, Rows], Any]
CPU = torch.device("cpu")
FORKING = threading.Lock()
"""One at a time: a process that is forked while another one's link is made would hold an end of it."""
KILLED = "somebody has killed it, or there was too little memory for so many readers="


class ReadingProcess:
    """Reads batches in a process of its own, for one thread of a worker.

    read(partition, places): how. seed(key): that of a batch. Random numbers are drawn as if the worker had read itself: from
    that seed, and the worker goes on from where reading left them. The process is forked, so that the dataset need not be sent,
    and ends with the thread that forked it. If it ends before, another one reads that batch, once.
    """

    def __init__(self, read: Read, seed: Callable[[Key], tuple[int, ...]]) -> None:
        self._read, self._seed = read, seed
        self._running: tuple[int, socket.socket] | None = None

    def start(self) -> None:
        """Fork, unless there is a process."""
        if self._running is None:
            with FORKING:
                self._running = _forked(self._read)

    def read(self, key: Key, places: Rows) -> Found:
        request = key[1], places, self._seed(key)
        try:
            found = self._answer(request)
        except ChildProcessError as error:
            log.warning("%s; another one reads on.", error)
            found = self._answer(request)
        if isinstance(found, Exception):
            raise found
        return Found(*found)

    def _answer(self, request: Any) -> Any:
        self.start()
        assert self._running is not None
        try:
            parcel.send(self._running[1], request)
            return parcel.receive(self._running[1])
        except (EOFError, ConnectionError) as error:
            raise ChildProcessError(f"A reading process ended {_how(self._end())}") from error

    def close(self) -> None:
        if self._running is not None:
            self._end()

    def _end(self) -> int | None:
        """End the process, if it has not; how it did. None where somebody else has asked already."""
        assert self._running is not None
        (pid, link), self._running = self._running, None
        link.close()
        with contextlib.suppress(ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return None


def _forked(read: Read) -> tuple[int, socket.socket]:
    """A process that reads, and the link to it."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else both would write what waits there
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    with warnings.catch_warnings():  # Python 3.12 warns of threads; what is forked needs none of them, and no lock of theirs
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        here.close()
        _serve(parent, there, read)
    there.close()
    return pid, here


def _how(code: int | None) -> str:
    """By what a process ended.

    >>> _how(1), _how(-signal.SIGSEGV)
    ('with exit code 1', 'by SIGSEGV')
    """
    if code is None or code >= 0:
        return f"with exit code {code}"
    return f"by {signal.Signals(-code).name}" + (f": {KILLED}" if code == -signal.SIGKILL else "")


def _serve(parent: int, link: socket.socket, read: Read) -> None:
    """Be the process: what was forked is never returned to."""
    code = 1
    try:
        end_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the worker, and that ends this
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        torch.set_num_threads(1)  # the others of the worker are not here
        while True:
            _respond(link, read, *parcel.receive(link))
    except (EOFError, ConnectionError):
        code = 0
    finally:
        os._exit(code)


def _respond(link: socket.socket, read: Read, part: int, places: Rows, seed: tuple[int, ...]) -> None:
    """Send a batch, and where it left the random numbers, if it drew any; or the error."""
    answer: Any
    try:
        with seeded(seed, CPU):
            before = states()
            batch = read(part, places)
            after = states()
        answer = batch, None if alike(before, after) else after
    except Exception as error:
        answer = _portable(error)
    sys.stdout.flush()
    try:
        parcel.send(link, answer)
    except ConnectionError:
        raise  # nobody is there who would hear of it
    except Exception as error:
        parcel.send(link, _portable(error))


def _portable(error: Exception) -> Exception:
    """An error that arrives; what cannot be sent comes as its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
