"""A rank of the MPI engine that serves: it waits for set-ups and orders, computes, and keeps its parcels moving."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ..runtime import frame, words
from ..runtime.instructions import Tell
from ..runtime.kept import Kept
from ..runtime.message import Bytes
from ..runtime.serve import Abandoned, Job, Share, Times, run
from ..runtime.shift import Shift, Shifts
from ..scheme.program import Outgoing
from .commons import LONG, machine
from .dock import Dock
from .mpi_launch import TOGETHER, run_program
from .mpi_order import NUMBER, PART_HEAD, Clock, place_of, read_order, round_of
from .mpi_wire import (
    ANNOUNCED,
    BEAT,
    BYE,
    CANCEL,
    CLOSE,
    EXIT,
    FAILED,
    FINISHED,
    FRAME,
    HAVE,
    KINDS,
    LACKS,
    ORDER,
    ORDER_AT,
    PARAMS,
    PART,
    PING,
    PLACED,
    PONG,
    READY,
    REST,
    SETUP,
    TELL,
    Pace,
    Parcel,
    Wire,
)
from .parts import Flow

IN_FLIGHT = 2
"""Messages on their way from a worker, which computes on meanwhile; or parts of one."""
LOOK = 0.25
"""Seconds between two looks of the second thread while nothing is on its way, and while something is:"""
TEND = 0.5e-3
HEAR = 5e-3
"""Seconds between two looks of the second thread where messages are asked for, which may be in the middle of a task."""
WAITING = 20e-3
"""The longest pause between two looks of a rank that has nothing to do."""


class Worker:
    """One rank: the main thread computes and listens, a second one keeps parcels moving and shows that the rank runs."""

    def __init__(self, wire: Wire, program: Sequence[str]) -> None:
        self._wire, self._program, self._pace = wire, program, Pace(WAITING)
        self._engine = self._round = self._newest = self._cancelled = -1
        self._setup: Parcel | None = None
        self._order: Job | None = None
        self._dock: Dock | None = None
        self._share: Share | None = None
        self._shifts, self._hearing = Shifts(), threading.RLock()
        self._flow, self._flowing = Flow(), threading.Lock()
        self._kept, self._keeps, self._carries = Kept(), False, False
        self._clock = Clock(machine())
        self._beat = 0.0
        self._wake = threading.Event()

    def serve(self) -> NoReturn:
        """Until the master says to end, or is gone. Ctrl+C is the master's to handle."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._wire.room = self._room
        threading.Thread(target=self._tend, daemon=True).start()
        while True:
            if not self._hear():
                self._pace.rest(self._wire.patience)
            if self._setup is not None:
                self._take_setup()
            elif self._order is not None and self._share is not None:
                self._take_order(self._share)
            elif self._share is not None and time.monotonic() > self._clock.due:
                self._say(PING, self._clock.ask())

    # What the master says

    def _hear(self) -> bool:
        """Take what has come; only the newest order counts. Gives whether anything came."""
        with self._hearing:
            parcels = self._wire.poll()
            for parcel in parcels:
                if parcel.kind == EXIT:
                    self._leave(parcel.data.tobytes().decode())
                elif parcel.kind == SETUP:
                    self._setup, self._order = parcel, None
                elif parcel.engine == self._engine:
                    self._obey(parcel)
        if 0 in self._wire.dead:
            self._gone()
        if parcels:
            self._pace.reset()
        return bool(parcels)

    def _obey(self, parcel: Parcel) -> None:
        if parcel.kind in (ORDER, ORDER_AT) and self._share is not None and self._dock is not None:
            self._take_in(parcel, self._share, self._dock)
        elif parcel.kind == PARAMS and self._dock is not None:
            round, place = self._dock.came(parcel.data)
            self._say(HAVE, NUMBER.pack(round) + place)
        elif parcel.kind == TELL:
            word = words.unpacked(parcel.data.data, self._share.worker if self._share else -1)
            hear = self._answer if word.message >= 0 else self._shifts.hear
            self._try(word.round, lambda: hear(word))
        elif parcel.kind == CANCEL:
            self._cancelled = max(self._cancelled, round_of(parcel.data))
        elif parcel.kind == PONG:
            self._clock.take(parcel.data)
        elif parcel.kind == CLOSE:
            self._share = self._order = self._dock = None

    def _take_in(self, parcel: Parcel, share: Share, dock: Dock) -> None:
        """An order has come; its parameters may not be where it says."""
        params, round = None, round_of(parcel.data)
        if parcel.kind == ORDER_AT:
            params = dock.params(round, place_of(parcel.data))
            if params is None:
                self._say(LACKS, NUMBER.pack(round))
                return
        job = read_order(parcel.data, share, self._clock.offset, params)
        self._order, self._newest = job, job.round
        self._cancelled = self._newest - 1
        if self._handed:
            self._begin_shift(job)

    def _room(self, tag: int, size: int) -> Bytes | None:
        """Where a parcel goes: parameters for this host into memory that its neighbours find."""
        mine = self._dock is not None and tag == self._engine * KINDS + PARAMS and size == self._dock.parcel
        return self._dock.room() if mine and self._dock is not None else None

    def _take_setup(self) -> None:
        """Become a worker of an engine: unpack the share, learn the master's clock, and say READY."""
        parcel, self._setup = self._setup, None
        assert parcel is not None
        self._engine, self._round, self._newest, self._cancelled = parcel.engine, -1, -1, -1
        try:
            share, master, self._beat, offer = Unpickler(io.BytesIO(parcel.data.data), self._program).load()
            self._share = self._at_dock(share, offer, master)
        except Exception:
            self._share = None
            self._report()
            return
        self._clock = Clock(master)
        while not self._clock.known and self._setup is None:
            if time.monotonic() > self._clock.due:
                self._say(PING, self._clock.ask())
            if not self._hear():
                self._pace.rest()
        self._say(READY, json.dumps({"pid": os.getpid(), "machine": machine()}).encode())

    def _at_dock(self, share: Share, offer: bytes, master: str) -> Share:
        """See what is shared on this host. Memory damages nothing: what stands there needs no checksum."""
        self._dock = Dock(share.worker, share.problem.dim, np.dtype(share.problem.dtype))
        self._dock.take_offer(offer)
        long = share.problem.dim * np.dtype(share.problem.dtype).itemsize >= LONG
        self._carries = long and machine() != master
        if long and share.stays:
            share.problem.stay()  # type: ignore[attr-defined]
        share = replace(share, checked=not self._dock.shares)
        share = self._dock.moor(share) if share.moored else share
        self._flow = Flow()
        self._dock.follow(share, self._know)
        return share

    def _take_order(self, share: Share) -> None:
        job, self._order = self._order, None
        if job is None:  # the other thread has heard that the engine is closed
            return
        self._round = job.round
        if self._cancelled >= self._round:
            return
        if self._handed:
            self._work_shift()
        else:
            self._try(self._round, lambda: self._run(share, job))
        self._pace.reset()

    def _run(self, share: Share, job: Job) -> None:
        dock, self._keeps = self._dock, job.pull
        begin = partial(dock.begin, job.round, kind=share.dtype) if dock is not None and dock.begins else None
        with self._flowing:
            self._flow.begin(job.round, may=not job.pull and job.delays is None)
        if dock is not None and dock.follows:
            dock.expect(job.program or share.program)
        try:
            run(share, job, self._keep if job.pull else self.send, self.stopped, self.wait, begin)
        finally:
            with self._flowing:
                self._flow.stop()

    # Where messages are fetched

    def _keep(self, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        keep = self._dock.put if self._dock is not None and self._dock.shares else self._kept.put
        keep(self._round, message, payload, checksum, times)
        self._say(ANNOUNCED, words.done(self._round, message.index, 0))
        self._wake.set()

    def _answer(self, word: Tell) -> None:
        """Send what is asked for, in whichever thread hears it."""
        if self._dock is not None and self._dock.shares:
            if self._dock.require(word, self._newest):
                self._say(PLACED, words.done(word.round, word.message, word.ticket))
            return
        found = self._kept.asked(word, self._newest)
        if found is not None and self._share is not None:
            told = found.message, word.round, len(found.payload), found.checksum, found.times, word.ticket
            self._say(FRAME, framed(frame.head(self._share.worker, *told), found.payload))
            self._wake.set()

    # Where tasks are handed out

    @property
    def _handed(self) -> bool:
        return self._share is not None and bool(self._share.program.handed)

    def _begin_shift(self, job: Job) -> None:
        """An order has come: what follows in this round is for its shift, also while the last one is at a task."""
        assert self._share is not None
        self._shifts.put(Shift(self._share, job, partial(self._finished, job.round), partial(self._send_sum, job.round)))

    def _work_shift(self) -> None:
        shift = self._shifts.take()
        assert shift is not None
        self._try(shift.job.round, lambda: shift.work(self.stopped, self._idle))

    def _idle(self) -> None:
        if not self._hear():
            self._pace.rest(self._wire.patience)

    def _finished(self, round: int, task: int, epoch: int) -> None:
        self._say(FINISHED, words.done(round, task, epoch))

    def _send_sum(self, round: int, message: Outgoing, payload: Any, checksum: int, times: Times, ticket: int) -> None:
        assert self._share is not None
        if self._dock is not None and self._dock.shares:
            self._dock.put(round, message, payload, checksum, times, again=True)
            self._say(PLACED, words.done(round, message.index, ticket))
            return
        self._say(
            FRAME, framed(frame.head(self._share.worker, message.index, round, len(payload), checksum, times, ticket), payload)
        )
        self._wake.set()

    def _try(self, round: int, action: Callable[[], None]) -> None:
        """Do something for a round; an error is the master's to judge."""
        try:
            action()
        except Exception:
            self._report(round)

    # While it computes

    def stopped(self) -> bool:
        """Whether to leave the round: cancelled, or there is a newer order."""
        self._hear()
        new = self._order is not None or self._setup is not None or self._share is None
        return new or self._cancelled >= self._round

    def wait(self, until: float) -> None:
        """Sleep until then on the monotonic clock, or raise `Abandoned` when the round is over."""
        self._pace.reset()
        while (rest := until - time.monotonic()) > 0:
            if self.stopped():
                raise Abandoned
            self._pace.rest(rest)

    def send(self, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        """Start to send a message; waits while two are on their way."""
        assert self._share is not None
        if self._dock is not None and self._dock.shares:
            self._dock.put(self._round, message, payload, checksum, times)
            self._say(PLACED, words.done(self._round, message.index, 0))
            return
        self._pace.reset()
        while self._wire.going(FRAME, REST) >= IN_FLIGHT:
            if self.stopped():
                raise Abandoned
            self._pace.rest()
        head = frame.head(self._share.worker, message.index, self._round, len(payload), checksum, times)
        with self._flowing:
            gone = self._flow.end(message.index)
        whole = not gone or self._dock is None or not self._dock.stands(message.index, payload)
        self._say(FRAME if whole else REST, framed(head, payload if whole else payload[gone:]))
        if self._wire.going(FRAME, REST):
            self._wake.set()

    def _report(self, round: int = -1) -> None:
        """Tell the master what was raised, and in which round; -1 for the start."""
        self._say(FAILED, NUMBER.pack(round) + traceback.format_exc().encode(errors="replace"))

    def _say(self, kind: int, data: Any) -> None:
        self._wire.send(0, kind, self._engine, data)

    # The second thread

    def _tend(self) -> None:
        """Keep parcels moving while the main thread computes, show that the rank runs, and end it when it should."""
        beat, last = None, 0.0
        while True:
            self._send_part()
            busy = self._wire.going(FRAME, REST, PART) > 0
            if self._share is not None and time.monotonic() - last > self._beat and self._wire.left(beat):
                beat, last = self._wire.send(0, BEAT, self._engine, b"", taken=True), time.monotonic()
            if (told := self._wire.told_to_end()) is not None:
                self._leave(told.data.tobytes().decode())
            if 0 in self._wire.dead:
                self._gone()
            listens = self._handed or self._keeps or self._carries
            if listens:
                self._hear()
            self._wake.wait(TEND if busy else HEAR if listens else LOOK)
            self._wake.clear()

    def _know(self, message: int, upto: int) -> None:
        """Called while the rest of a message is computed: the second thread sends what is known."""
        with self._flowing:
            self._flow.know(message, upto)
        self._wake.set()

    def _send_part(self) -> None:
        """Some bytes of a message that is not whole yet. Few at a time: those of a round that is over would be in the way."""
        with self._flowing:
            part, dock = self._flow.next(), self._dock
            if part is None or dock is None or self._wire.going(PART) >= IN_FLIGHT:
                return
            if self._cancelled >= part.round or self._newest != part.round:
                self._flow.stop()
                return
            self._say(PART, framed(PART_HEAD.pack(part.round, part.message, part.at), dock.part(part)))
            self._flow.sent(part)

    def _leave(self, told: str) -> None:
        """Say goodbye when asked to; then end this rank, in whichever thread: the other one does not get the wire any more."""
        if not told:
            self._say(BYE, b"")
            return
        self._wire.lock.acquire()
        sys.stdout.flush()
        if told == TOGETHER:
            self._wire.mpi.Finalize()
        os._exit(0)

    def _gone(self) -> NoReturn:
        with contextlib.suppress(OSError):
            print(f"unstraggle rank {self._wire.rank}: the master is gone, so this rank ends.", file=sys.stderr, flush=True)
        os._exit(3)


def framed(head: bytes, payload: Any) -> Bytes:
    """A message as one piece of memory."""
    data = np.empty(len(head) + len(payload), np.uint8)
    data.data[: len(head)], data.data[len(head) :] = head, payload
    return data


class Unpickler(pickle.Unpickler):
    """Reads what the master pickled. What its script defines is found by running the script here, not as `__main__`."""

    def __init__(self, file: Any, program: Sequence[str]) -> None:
        super().__init__(file)
        self._program = program

    def find_class(self, module: str, name: str) -> Any:
        if module == "__main__":
            module = "__worker__"
            if module not in sys.modules:
                defined = types.ModuleType(module)
                vars(defined).update(run_program(self._program, module))
                sys.modules[module] = defined
        return super().find_class(module, name)
