"""The worker process of the local engine: orders from a pipe, parameters and payloads in shared memory."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtime import frame
from ..runtime.serve import Abandoned, Job, Share, Times, run
from ..scheme.program import Outgoing, unpacked
from .lifeline import end_with
from .shared import Area, Board, Fd, Letter

ORDER = struct.Struct("<qqd?3xIQ")
"""round, step, when it began on the monotonic clock, whether there are delays, bytes of a program of its own, of context."""

NOTE = struct.Struct("<IIqI4x")
"""kind, worker, round, message: shorter than PIPE_BUF, so that notes of different workers never mix."""

READY, SENT, FAILED = 1, 2, 3
BEAT = 0.25
"""Seconds between two heartbeats."""


@dataclass(frozen=True)
class Channels:
    """What a worker process gets: a file with its pickled `Share`, its orders, the master's inbox, the shared areas, and its
    slots in the area of payloads."""

    share: Fd
    orders: Fd
    notes: Fd
    board: Area
    params: Area
    payloads: Area
    letter: Letter
    slots: tuple[tuple[int, int], ...]
    n: int
    messages: int
    dim: int
    param_type: str


def main(channels: Channels, parent: int) -> None:
    """Serve until the master closes the pipe or is gone. Ctrl+C is the master's to handle.

    parent: the master, or the server that forks for it and ends with it.
    """
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(channels.share.fd, "rb") as file:
        share: Share = pickle.load(file)
    worker = Worker(share, channels)
    threading.Thread(target=worker.beat, args=(parent,), daemon=True).start()
    gc.collect()
    gc.freeze()  # what is here stays: collections need not look at it in the middle of a round
    worker.note(READY)
    while (job := worker.next_job()) is not None:
        try:
            run(share, job, worker.send, worker.stopped, worker.wait)
        except Exception:
            worker.report(traceback.format_exc())


class Worker:
    """One worker process: the shared areas as arrays, and the order it works on."""

    def __init__(self, share: Share, channels: Channels) -> None:
        self.number = share.worker
        self._orders, self._notes = channels.orders.fd, channels.notes.fd
        self._board = Board(channels.board.map(), channels.n, channels.messages)
        self._newest, self._cancelled, self._whole = (
            a.data for a in (self._board.round, self._board.cancelled, self._board.whole)
        )
        self._mail = [bytearray(1 << 16)]
        self._params = channels.params.map().view(channels.param_type).reshape(2, -1)[:, : channels.dim]
        self._params.flags.writeable = False
        payloads = channels.payloads.map().data
        self._mine = list(share.program.place)
        self._slots = {m: payloads[start : start + room] for m, (start, room) in zip(self._mine, channels.slots, strict=True)}
        self._letter, self._round = channels.letter, -1

    def next_job(self) -> Job | None:
        """Wait for orders and take the newest: who lags behind skips rounds. None when the master has closed or is gone."""
        size = os.readv(self._orders, self._mail)
        if not size:
            return None
        number, step, origin, delayed, program, context = ORDER.unpack_from(self._mail[0], size - ORDER.size)
        self._round = number
        delays = self._board.delays[number % 2, self._mine] if delayed else None
        job = Job(number, step, self._params[number % 2], origin, delays)
        if program or context:
            data = self._board.programs[number % 2, self.number, :program].tobytes()
            job.context = self._letter.read(number, context)
            if self._newest[0] > number + 1:  # two rounds late: the bytes may be of another one by now
                return self.next_job()
            job.program = unpacked(data) if program else None
        return job

    def stopped(self) -> bool:
        return self._newest[0] != self._round or self._cancelled[self.number] >= self._round

    def wait(self, until: float) -> None:
        """Sleep until then on the monotonic clock, or raise `Abandoned` when a new order comes."""
        while (rest := until - time.monotonic()) > 0:
            if select.select([self._orders], [], [], min(rest, 1e6))[0] or self.stopped():
                raise Abandoned

    def send(self, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        """Copy the message to its slot and tell the master.

        It may be reading the slot when this worker, or the one before it, is asked again: what stands there whole stays.
        """
        index, round, size = message.index, self._round, len(payload)
        if self._whole[index] != round:
            slot, head = self._slots[index], frame.head(self.number, index, round, size, checksum, times)
            start = len(head)
            slot[:start] = head
            slot[start : start + size] = payload
            self._whole[index] = round
        os.write(self._notes, NOTE.pack(SENT, self.number, round, index))

    def note(self, kind: int, round: int = -1, message: int = 0) -> None:
        os.write(self._notes, NOTE.pack(kind, self.number, round, message))

    def report(self, text: str) -> None:
        """Tell the master that the problem raised an error; it decides."""
        self._board.write_report(self.number, text)
        self.note(FAILED, self._round)

    def beat(self, parent: int) -> None:
        """Show the master that this process runs, and end it when its parent is gone, where the kernel does not."""
        beats: NDArray[np.float64] = self._board.beats
        while os.getppid() == parent:
            beats[self.number] = time.monotonic()
            time.sleep(BEAT)
        print(f"unstraggle worker {self.number}: the master is gone, so this worker ends.", file=sys.stderr, flush=True)
        os._exit(3)
