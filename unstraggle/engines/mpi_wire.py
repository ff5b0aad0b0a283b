"""The wire of the MPI engine: parcels between ranks by short calls that never block, from one thread at a time."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Invalid, UnstraggleError
from ..runtime.message import Bytes

READY, FRAME, FAILED, BEAT, PING, BYE, FINISHED = range(1, 8)
"""Kinds of parcels to the master, and some more:"""
ANNOUNCED, PLACED, HAVE, LACKS = range(15, 19)
PART, REST = range(21, 23)
"""Some of a message, and the end of it; see `parts`."""
SETUP, ORDER, CANCEL, CLOSE, PONG, EXIT, TELL = range(8, 15)
"""Kinds of parcels to a worker, and some more:"""
PARAMS, ORDER_AT = range(19, 21)

KINDS, ENGINES = 32, 1000
"""A tag is KINDS * (number of the engine modulo ENGINES) + kind: every MPI has tags up to 32767."""
SHARE = 0.02
"""The longest pause between two looks at the wire, of the time waited so far."""
AT_ONCE = 256
"""Parcels taken in one look, so that a look ends while more and more come."""
HINT = "The MPI engine needs mpi4py and an MPI library. Run: pip install 'unstraggle[mpi]'"


def library() -> Any:
    """mpi4py's MPI, initialised for calls from several threads, one at a time. The import initialises it."""
    require_mpi4py()
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py is there, but no MPI library
        raise Invalid(f"{HINT} ({error})") from error
    return MPI


def require_mpi4py() -> None:
    """Raise `Invalid` with a hint where mpi4py is not installed."""
    try:
        import mpi4py
    except ImportError as error:
        raise Invalid(HINT) from error
    mpi4py.rc.thread_level = "serialized"
    mpi4py.rc.finalize = False  # ranks do that themselves, or not, when they end


@dataclass(frozen=True, eq=False)
class Parcel:
    """What came from a rank. engine: number of the engine that it is for, modulo `ENGINES`."""

    rank: int
    engine: int
    kind: int
    data: Bytes


class Pace:
    """Pauses between two looks at the wire: from 20 us, twice as long each time, up to 1 ms, or up to a part of the time waited
    so far where that is longer, but never above `longest` seconds. So many ranks can wait on few cores without using them up.
    """

    def __init__(self, longest: float = 1e-3) -> None:
        self.longest = longest
        self.reset()

    def reset(self) -> None:
        self._pause, self._waited = 20e-6, 0.0

    def rest(self, at_most: float = math.inf) -> None:
        pause = max(0.0, min(self._pause, at_most))
        time.sleep(pause)
        self._waited += pause
        self._pause = min(2 * self._pause, max(1e-3, self._waited * SHARE), self.longest)


class Sent:
    """A parcel on its way. Its data is kept until it has left."""

    def __init__(self, kind: int, request: Any, data: Any) -> None:
        self.kind, self.request, self.data = kind, request, data


class Wire:
    """Parcels to and from other ranks. Ranks that died are in `dead`; `heard` says when each one last gave a sign of life.

    engine: the one that is open on this wire. room(tag, size): where parcels go that are not to lie anywhere; None: anywhere.
    """

    def __init__(self, comm: Any) -> None:
        self.mpi = library()
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.dead: set[int] = set()
        self.heard: dict[int, float] = {}
        self.engine: Any = None
        self.room: Callable[[int, int], Bytes | None] = lambda tag, size: None
        self.lock = threading.Lock()
        self._comm, self._status = comm, self.mpi.Status()
        self._source = self.mpi.ANY_SOURCE if self.rank == 0 else 0
        self._going: list[Sent] = []
        self._coming: list[tuple[Parcel, Any]] = []
        self._failure = {self.mpi.ERR_PROC_FAILED, self.mpi.ERR_PROC_FAILED_PENDING}

    def send(self, rank: int, kind: int, engine: int, data: Any, *, taken: bool = False) -> Sent | None:
        """Start to send. taken: it has left only when the other rank took it. None: that rank is dead."""
        tag = engine % ENGINES * KINDS + kind
        with self.lock:
            if rank in self.dead:
                return None
            try:
                request = (self._comm.Issend if taken else self._comm.Isend)([data, self.mpi.BYTE], rank, tag)
            except self.mpi.Exception as error:
                self._note_failures(error)
                return None
            sent = Sent(kind, request, data)
            if not self._has_left(sent):
                self._going.append(sent)
            return sent

    def left(self, sent: Sent | None) -> bool:
        """Whether a parcel has left."""
        with self.lock:
            return sent is None or self._has_left(sent)

    def going(self, *kinds: int) -> int:
        """How many parcels of some kinds have not left yet; moves them on, and forgets those that have left."""
        with self.lock:
            self._going = [sent for sent in self._going if not self._has_left(sent)]
            return sum(sent.kind in kinds for sent in self._going)

    @property
    def patience(self) -> float:
        """The longest pause that does not slow down a parcel that is coming, in seconds."""
        return 200e-6 if self._coming else math.inf

    def poll(self) -> list[Parcel]:
        """The parcels that are here, those of a rank in the order in which it sent them."""
        with self.lock:
            came: list[Parcel] = []
            for _ in range(AT_ONCE):
                message = self._probe(self.mpi.ANY_TAG)
                if message is None:
                    break
                self._receive(message, came)
            if self._coming:
                self._move_on(came)
            return came

    def told_to_end(self) -> Parcel | None:
        """The parcel by which the master tells this rank to end, whatever else waits before that."""
        with self.lock:
            came: list[Parcel] = []
            message = self._probe(EXIT)
            if message is not None:
                self._receive(message, came)
            return came[0] if came else None

    # With the lock

    def _probe(self, tag: int) -> Any:
        try:
            return self._comm.Improbe(self._source, tag, self._status)
        except self.mpi.Exception as error:
            self._note_failures(error)
            return None

    def _receive(self, message: Any, came: list[Parcel]) -> None:
        """Take a parcel. What is not here as a whole yet comes while others are looked at: its rank may be slow, or stop."""
        rank, tag = self._status.Get_source(), self._status.Get_tag()
        data = self._room(tag, self._status.Get_count(self.mpi.BYTE))
        parcel = Parcel(rank, tag // KINDS, tag % KINDS, data)
        self.heard[rank] = time.monotonic()
        request = message.Irecv([data, self.mpi.BYTE])
        if any(other.rank == rank for other, _ in self._coming) or not self._test(request):
            self._coming.append((parcel, request))
        else:
            came.append(parcel)

    def _room(self, tag: int, size: int) -> Bytes:
        found = self.room(tag, size)
        return np.empty(size, np.uint8) if found is None else found

    def _move_on(self, came: list[Parcel]) -> None:
        """Finish what is on its way; a parcel waits for those that the same rank sent before."""
        still: list[tuple[Parcel, Any]] = []
        for parcel, request in self._coming:
            if parcel.rank in self.dead:
                continue
            if any(other.rank == parcel.rank for other, _ in still) or not self._test(request):
                still.append((parcel, request))
            elif parcel.rank not in self.dead:
                self.heard[parcel.rank] = time.monotonic()
                came.append(parcel)
        self._coming = still

    def _has_left(self, sent: Sent) -> bool:
        if sent.request is not None and self._test(sent.request):
            sent.request = sent.data = None
        return sent.request is None

    def _test(self, request: Any) -> bool:
        """Whether there is nothing to wait for any more: it is done, or the other rank died."""
        try:
            return bool(request.Test())
        except self.mpi.Exception as error:
            self._note_failures(error)
            return True

    def _note_failures(self, error: Any) -> None:
        """Where MPI goes on without a dead rank (ULFM), remember the rank; any other error is an error."""
        if error.Get_error_class() not in self._failure:
            raise UnstraggleError(f"MPI reports an error: {error}") from error
        self._comm.Ack_failed()
        group = self._comm.Get_failed()
        self.dead.update(group.Translate_ranks(list(range(group.Get_size())), self._comm.Get_group()))
        group.Free()
