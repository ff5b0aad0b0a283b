"""The worker process of the local engine: orders from a pipe, parameters and payloads in shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime import frame
from ..runtime.instructions import Tell
from ..runtime.serve import Abandoned, Job, Share, Times, run
from ..runtime.shift import Shift, Shifts
from ..runtime.sums import address
from ..runtime.words import unpacked as unpacked_word
from ..scheme.program import Outgoing, unpacked
from .lifeline import end_with
from .shared import Area, Board, Fd, Letter
from .waking import Home, yield_to_others

ORDER = struct.Struct("<qqd?3xIQdQ")
"""round, step, when it began on the monotonic clock, whether there are delays, bytes of a program of its own, of context, and
the hold of its job."""

NOTE = struct.Struct("<IIqII")
"""kind, worker, round, message or task, epoch or how much of it: shorter than PIPE_BUF, so that notes of different workers
never mix."""

READY, SENT, FAILED, FINISHED, PART = 1, 2, 3, 4, 5
LONG = 1 << 16
"""Bytes of a payload from which on it is worth it to add it up where it will stand."""
BEAT = 0.25
"""Seconds between two heartbeats."""
FREE = b"f"
"""What a process says whose orders have ended."""
AWAKE = 0.005
"""Seconds that a worker with a device looks for its next order before it sleeps: that long its caches stay warm. While the
device computes, its processor does nothing else either."""


@dataclass(frozen=True)
class Channels:
    """What a worker process gets: a file with its pickled `Share`, its orders, the master's inbox, the shared areas, and its
    slots in the area of payloads. link: a socket over which it hears what to do when its orders have ended, from another engine
    of the same master."""

    share: Fd
    orders: Fd
    notes: Fd
    board: Area
    params: Area
    payloads: Area
    letter: Letter
    slots: tuple[tuple[int, int, int], ...]
    n: int
    messages: int
    dim: int
    param_type: str
    way: Any = None
    link: Fd | None = None


def main(channels: Channels, parent: int) -> None:
    """Serve one engine after the other, until there is none any more or the master is gone. Ctrl+C is the master's to handle.

    parent: the master, or the server that forks for it and ends with it.
    """
    end_with(parent)
    yield_to_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = None if channels.link is None else socket.socket(fileno=channels.link.fd)
    following: Channels | None = channels
    while following is not None:
        problem = serve(following, parent)
        following = None if link is None else following_on(link, problem)
    gc.unfreeze()  # else libraries that count their objects at the end miss some, and say so


def following_on(link: socket.socket, problem: Callable[[], Any]) -> Channels | None:
    """Say that this process is free, and wait for what it does next; None where that is nothing. problem: a weak reference to
    the one before, to see whether it is gone: to look for it among all that was imported takes long."""
    from .nursery_server import MOST_FDS, Unpickler  # which imports this module

    if problem() is not None:
        gc.unfreeze()
        gc.collect()
    with contextlib.suppress(OSError):
        link.send(FREE)
        record, fds, _, _ = socket.recv_fds(link, len(FREE), MOST_FDS, socket.MSG_CMSG_CLOEXEC)
        if record:
            with open(fds[0], "rb") as file:
                return Unpickler(file, fds[1:]).load()  # type: ignore[no-any-return]
    return None


def serve(channels: Channels, parent: int) -> Callable[[], Any]:
    """Serve an engine until it closes the pipe. Gives a weak reference to its problem."""
    with open(channels.share.fd, "rb") as file:
        share: Share = pickle.load(file)
    if channels.way is not None:
        share = replace(share, left=True)
    worker = Worker(share, channels)
    if share.stays:
        share.problem.stay()  # type: ignore[attr-defined]
    threading.Thread(target=worker.beat, args=(parent,), daemon=True).start()
    worker.join(share.problem)
    gc.collect()
    gc.freeze()  # what is here stays: collections need not look at it in the middle of a round
    worker.note(READY)
    _serve(share, worker)
    worker.leave()
    try:
        return weakref.ref(share.problem)
    except TypeError:  # then it may still be there
        return lambda: True


def _serve(share: Share, worker: Worker) -> None:
    if share.program.handed:
        serve_shifts(share, worker)
        return
    while (job := worker.next_job()) is not None:
        try:
            run(share, job, worker.send, worker.stopped, worker.wait, worker.begin)
            if share.prepares:
                share.problem.prepare()  # type: ignore[attr-defined]
        except Exception:
            worker.report(traceback.format_exc())


def serve_shifts(share: Share, worker: Worker) -> None:
    """Do what is handed out, in this thread, while another one hears words and sends sums."""
    shifts = Shifts()
    listener = threading.Thread(target=_listen, args=(share, worker, shifts), daemon=True)
    listener.start()
    while (shift := shifts.take()) is not None:
        round = shift.job.round
        try:
            shift.work(partial(worker.stopped, round))
        except Exception:
            worker.report(traceback.format_exc(), round)
    listener.join()


def _listen(share: Share, worker: Worker, shifts: Shifts) -> None:
    for record in worker.records():
        if isinstance(record, Job):
            round = record.round
            say = partial(worker.note, FINISHED, round)
            shifts.put(Shift(share, record, say, partial(worker.send_sum, round)))
            continue
        try:
            shifts.hear(record)
        except Exception:
            worker.report(traceback.format_exc(), record.round)
    shifts.put(None)


class Worker:
    """One worker process: the shared areas as arrays, and the order it works on."""

    def __init__(self, share: Share, channels: Channels) -> None:
        self.number, self._home = share.worker, Home(share.worker, channels.n)
        self._orders, self._notes = channels.orders.fd, channels.notes.fd
        self._board = Board(channels.board.map(), channels.n, channels.messages)
        self._newest, self._cancelled, self._whole = (
            a.data for a in (self._board.round, self._board.cancelled, self._board.whole)
        )
        self._mail = [bytearray(1 << 16)]
        self._params = channels.params.map().view(channels.param_type).reshape(-1, channels.dim)
        self._params.flags.writeable = channels.way is not None
        payloads = channels.payloads.map().data
        self._mine = list(share.program.place)
        places = dict(zip(self._mine, channels.slots, strict=True))
        self._heads = {m: payloads[start : start + head] for m, (start, _, head) in places.items()}
        self._rooms = {m: payloads[start + head : start + room] for m, (start, room, head) in places.items()}
        self._at = {m: address(np.frombuffer(room, np.uint8)) for m, room in self._rooms.items() if len(room)}
        self._letter, self._round = channels.letter, -1
        self._kind, self._dim, self._way = share.dtype, channels.dim, channels.way
        self._overwrite = share.problem.overwrite if share.overwrites else None  # type: ignore[attr-defined]
        self._areas, self._left = (channels.board, channels.params, channels.payloads), False

    def join(self, problem: Any) -> None:
        """Open what stands on a device."""
        if self._way is not None:
            rooms = {m: np.frombuffer(room, np.uint8) for m, room in self._rooms.items()}
            self._way.join(self.number, list(self._params), rooms)
            problem.along(self._way, lambda index, upto: self.note(PART, self._round, index, upto))

    def next_job(self) -> Job | None:
        """Wait for orders and take the newest: who lags behind skips rounds. None when the master has closed or is gone."""
        if self._way is not None:
            self._look_out(time.monotonic() + AWAKE)
        with self._home:
            size = os.readv(self._orders, self._mail)
        if not size:
            return None
        number, step, origin, delayed, program, context, *hold = ORDER.unpack_from(self._mail[0], size - ORDER.size)
        self._round = number
        job = self._job(number, step, origin, delayed)
        job.hold = hold[0], hold[1]
        if program or context:
            data = self._board.programs[number % 2, self.number, :program].tobytes()
            job.context = self._letter.read(number, context)
            if self._newest[0] > number + 1:  # two rounds late: the bytes may be of another one by now
                return self.next_job()
            job.program = unpacked(data) if program else None
        return job

    def _look_out(self, until: float) -> None:
        """For an order, without sleeping."""
        while not select.select([self._orders], [], [], 0)[0] and time.monotonic() < until:
            pass

    def _job(self, number: int, step: int, origin: float, delayed: bool) -> Job:
        delays = self._board.delays[number % 2, self._mine] if delayed else None
        params = self._params[number % len(self._params)] if self._way is None else self._way.params(number)
        return Job(number, step, params, origin, delays)

    def stopped(self, round: int | None = None) -> bool:
        number = self._round if round is None else round
        return self._newest[0] != number or self._cancelled[self.number] >= number

    def records(self) -> Iterator[Job | Tell]:
        """Orders and words, one after the other, until the master has closed or is gone."""
        while size := os.readv(self._orders, self._mail):
            for at in range(0, size, ORDER.size):
                number, step, origin, delayed, _, context, *_ = ORDER.unpack_from(self._mail[0], at)
                if number < 0:
                    yield unpacked_word(self._mail[0], self.number, at)
                    continue
                job = self._job(number, step, origin, delayed)
                job.context = self._letter.read(number, context)
                yield job

    def wait(self, until: float) -> None:
        """Sleep until then on the monotonic clock, or raise `Abandoned` when a new order comes."""
        while (rest := until - time.monotonic()) > 0:
            if select.select([self._orders], [], [], min(rest, 1e6))[0] or self.stopped():
                raise Abandoned

    def send(self, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        """Copy the message to its slot and tell the master.

        It may be reading the slot when this worker, or the one before it, is asked again: what stands there whole stays.
        """
        index, round = message.index, self._round
        if self._whole[index] != round:
            self._put(index, round, payload, checksum, times)
            self._whole[index] = round
        os.write(self._notes, NOTE.pack(SENT, self.number, round, index, 0))

    def send_sum(self, round: int, message: Outgoing, payload: Any, checksum: int, times: Times, ticket: int) -> None:
        """The same for a sum on request. The master reads it when the round is over, and asks for no other then."""
        self._put(message.index, round, payload, checksum, times, ticket)
        self.note(SENT, round, message.index)

    def begin(self, index: int) -> Any:
        """Where the payload of a message will stand, for its tasks to be added there: zeros, unless the first is written over
        what there is. None where it is too short for that, or stands there whole already: the master may be reading it."""
        room, kind = self._rooms[index], self._kind
        if self._way is not None:
            return None if self._whole[index] == self._round else self._way.begin(index)
        if len(room) < LONG or len(room) != kind.itemsize * self._dim or self._whole[index] == self._round:
            return None
        found = np.frombuffer(room, kind)
        if self._overwrite is None or not self._overwrite(found):
            found.fill(0)
        return found

    def _put(self, index: int, round: int, payload: Any, checksum: int, times: Times, ticket: int = 0) -> None:
        """Head and payload of a message to its slot; a long payload may stand there already, or lie on a device."""
        room, short = self._rooms[index], isinstance(payload, bytes)
        size = len(payload) if short else payload.nbytes
        frame.put_head(self._heads[index], self.number, index, round, size, checksum, times, ticket)
        if self._way is not None:
            self._way.deliver(index, payload)
        elif short or address(payload) != self._at[index]:
            room[:size] = payload

    def note(self, kind: int, round: int = -1, number: int = 0, epoch: int = 0) -> None:
        os.write(self._notes, NOTE.pack(kind, self.number, round, number, epoch))

    def report(self, text: str, round: int | None = None) -> None:
        """Tell the master that the problem raised an error; it decides. Not of one that is two rounds late: its parameters were
        overwritten while it computed, and nobody waits for it."""
        number = self._round if round is None else round
        if self._newest[0] > number + 1:
            return
        self._board.write_report(self.number, text)
        self.note(FAILED, number)

    def leave(self) -> None:
        """The engine is closed: give back what was of it. The problem, too: the thread that beats keeps this longer."""
        self._left, self._overwrite = True, None
        for fd in (self._orders, self._notes, self._letter.fd):
            os.close(fd)
        for area in self._areas:
            area.close()

    def beat(self, parent: int) -> None:
        """Show the master that this process runs, and end it when its parent is gone, where the kernel does not."""
        beats: NDArray[np.float64] = self._board.beats
        while os.getppid() == parent:
            if self._left:
                return
            beats[self.number] = time.monotonic()
            time.sleep(BEAT)
        print(f"unstraggle worker {self.number}: the master is gone, so this worker ends.", file=sys.stderr, flush=True)
        os._exit(3)
