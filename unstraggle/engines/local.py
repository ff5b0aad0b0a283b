"""Local: worker processes on this machine, with parameters and payloads in shared memory. The default."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from ..blocks import block_slices
from ..errors import Invalid, UnstraggleError
from ..problems.base import Problem
from ..runtime import frame
from ..runtime.events import Joined, Lost
from ..runtime.message import Incoming, Message, Order, WorkerFailed
from ..runtime.payload import number_type, payload_sizes
from ..runtime.serve import Share, share_of
from ..scheme.code import Code
from .base import prepared
from .environment import environment, thread_limits
from .local_worker import FAILED, NOTE, ORDER, READY, Channels, main
from .nursery import Nursery
from .shared import Area, Board, Fd

PAGE = 4096
NOTHING = np.empty(0, np.uint8)


@dataclass(eq=False)
class Seat:
    """A worker's place: the process that has it now, and what the master knows of it."""

    process: Any = None
    orders: int = -1
    ready: bool = False
    hung: bool = False
    starts: int = 0


class Local:
    """One process a worker. Scripts that use it need the guard `if __name__ == "__main__":`.

    restarts: how often a worker that died is started again. heartbeat: seconds without a sign of life after which a worker
    counts as lost until it shows one. threads: of the numerical libraries in each worker. start_within: seconds.
    start_method: "forkserver", by a `Nursery` of this engine, or "spawn", each as an interpreter of its own.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        restarts: int = 3,
        heartbeat: float = 10.0,
        threads: int = 1,
        start_within: float = 300.0,
        start_method: str = "forkserver",
    ) -> None:
        if not heartbeat >= 1 or threads < 1 or restarts < 0:
            raise Invalid(
                "Local needs heartbeat >= 1 second, threads >= 1 and restarts >= 0, "
                f"but got heartbeat={heartbeat}, threads={threads}, restarts={restarts}."
            )
        if start_method not in ("spawn", "forkserver"):
            raise Invalid(f'Local starts workers by "forkserver" or "spawn", but got start_method={start_method!r}.')
        self.problem = problem
        self._restarts, self._heartbeat, self._threads = restarts, heartbeat, threads
        self._start_within, self._method = start_within, start_method
        self._seats: list[Seat] = []
        self._origin = self._last_look = time.monotonic()
        self._round = self._failed = -1
        self._areas: tuple[Area, ...] = ()
        self._events: list[Incoming] = []
        self._exits: dict[int, int | None] = {}
        self._nursery: Nursery | None = None

    def open(self, code: Code) -> None:
        if self._areas:
            raise Invalid("An engine serves one code. Close this one and make another for the next code.")
        self.problem = prepared(self.problem, code)
        self._code, self._dtype = code, np.dtype(self.problem.dtype)
        self._place_slots()
        board, params = Area(Board.size(code.n, len(code.messages))), Area(2 * self.problem.dim * self._dtype.itemsize)
        self._areas = board, params, Area(self._room)
        self._board = Board(board.map(), code.n, len(code.messages))
        self._board.round[0], self._board.cancelled[:] = -1, -1
        self._params = params.map().view(self._dtype).reshape(2, -1)
        payloads = self._areas[2].map()
        self._frames = [payloads[start : start + room] for start, room in self._slots]
        self._inbox, self._notes = os.pipe()
        os.set_blocking(self._inbox, False)
        self._watch = select.epoll()
        self._watch.register(self._inbox, select.EPOLLIN)
        self._seats = [Seat() for _ in range(code.n)]
        self._seat_of: dict[int, int] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            if self._method == "forkserver":
                self._nursery = Nursery(thread_limits(self._threads), _own_modules(self.problem), self._start_within)
            self._start_all()
            undo.pop_all()

    def start(self, order: Order) -> None:
        side = order.round % 2
        if order.round != self._round:
            self._round, self._origin = order.round, time.monotonic()
            self._params[side] = order.params
            self._board.round[0] = order.round
        if order.delays is not None:
            self._board.delays[side] = order.delays
        record = ORDER.pack(order.round, order.step, self._origin, order.delays is not None)
        for worker in range(self._code.n) if order.workers is None else order.workers:
            self._board.cancelled[worker] = order.round - 1
            self._tell(self._seats[worker], record)

    def next(self, until: float | None) -> list[Incoming]:
        while not self._events:
            rest = self._heartbeat / 4 if until is None else min(until - self.clock(), self._heartbeat / 4)
            self._collect(max(rest, 0.0))
            self._look_for_hung()
            if not self._events and until is not None and self.clock() >= until:
                break
        events, self._events = self._events, []
        return events

    def clock(self) -> float:
        return time.monotonic() - self._origin

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        self._board.cancelled[list(workers)] = round

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None while it has none."""
        process = self._seats[worker].process
        return process.pid if process is not None and process.is_alive() else None

    def close(self) -> None:
        """Ask the workers to end, and make those that do not. They ignore Ctrl+C, so this also ends an interrupted run."""
        if not self._areas:
            return
        for seat in self._seats:
            self._hang_up(seat)
        limit = time.monotonic() + 2.0
        for seat in self._seats:
            if seat.process is not None:
                seat.process.join(max(0.0, limit - time.monotonic()))
                if seat.process.is_alive():
                    seat.process.kill()
                    seat.process.join()
                seat.process.close()
        if self._nursery is not None:
            self._nursery.close()
        self._seats, self._nursery = [], None
        self._watch.close()
        for fd in (self._inbox, self._notes):
            os.close(fd)
        for area in self._areas:
            area.close()
        self._areas = ()
        del self._board, self._params, self._frames

    # Starting

    def _place_slots(self) -> None:
        """A place in shared memory for every message of a round: header, then payload."""
        sizes = payload_sizes(self._code, self.problem.dim, self._dtype)
        tasks = np.bincount(self._code.tasks.worker, minlength=self._code.n)[self._code.messages.worker]
        rooms = np.array([frame.head_size(int(count)) for count in tasks]) + sizes
        ends = np.cumsum(-(-rooms // PAGE) * PAGE)
        self._slots = [(int(end - -(-room // PAGE) * PAGE), int(room)) for end, room in zip(ends, rooms, strict=True)]
        self._room = int(ends[-1])

    def _start_all(self) -> None:
        for worker in range(self._code.n):
            self._spawn(worker)
        limit = time.monotonic() + self._start_within
        while not all(seat.ready for seat in self._seats):
            self._collect(0.5)
            gone = [event for event in self._events if isinstance(event, Lost)]
            if gone:
                code = self._exits.get(gone[0].worker)
                raise UnstraggleError(
                    f"Worker {gone[0].worker} ended while it started (exit code {code}); its error stands above. A script "
                    'needs the guard `if __name__ == "__main__":`, and the problem must be picklable and importable.'
                )
            if time.monotonic() > limit:
                late = [number for number, seat in enumerate(self._seats) if not seat.ready]
                raise UnstraggleError(
                    f"Workers {late} were not ready within {self._start_within:g} s. Raise start_within, or use fewer workers."
                )
        self._events = []

    def _spawn(self, worker: int) -> None:
        """Start a process for a seat; it reports READY when it has what it needs."""
        seat = self._seats[worker]
        program = self._code.program(worker)
        slices = tuple(block_slices(self.problem.dim, self._code.blocks))
        share = Share(program, share_of(self.problem, program), slices, number_type(self._code, self._dtype), False)
        theirs, seat.orders = os.pipe()
        os.set_blocking(seat.orders, False)
        board, params, payloads = self._areas
        slots = tuple(self._slots[message.index] for message in program.messages)
        sizes = self._code.n, len(self._code.messages), self.problem.dim, self._dtype.str
        channels = Channels(Fd(theirs), Fd(self._notes), board, params, payloads, slots, *sizes)
        data = pickle.dumps(share, protocol=5)  # by value: multiprocessing's own way would share the memory of torch's tensors
        try:
            seat.process = self._started(data, channels)
        finally:
            os.close(theirs)
        seat.starts += 1
        self._board.beats[worker] = np.inf
        self._watch.register(seat.process.sentinel, select.EPOLLIN)
        self._seat_of[seat.process.sentinel] = worker

    def _started(self, data: bytes, channels: Channels) -> Any:
        """A process, forked by the nursery or from nothing."""
        if self._nursery is not None:
            return self._nursery.start(data, channels)
        process = get_context("spawn").Process(target=main, args=(data, channels), daemon=True)
        with environment(thread_limits(self._threads)):
            process.start()
        return process

    # What happens

    def _collect(self, timeout: float) -> None:
        """Wait for notes and deaths. Notes first: what a worker sent before it died counts."""
        fds = [fd for fd, _ in self._watch.poll(timeout)]
        if fds:
            self._read_notes()
        for fd in fds:
            if fd != self._inbox:
                self._bury(self._seat_of.pop(fd), fd)

    def _read_notes(self) -> None:
        for data in self._drain():
            now = self.clock()
            for kind, worker, round, index in NOTE.iter_unpack(data):
                if kind == READY:
                    self._welcome(worker, now)
                elif kind == FAILED:
                    self._fail(worker, round)
                elif round == self._round:
                    self._events.append(frame.read(self._frames[index], now, checked=False))
                else:
                    self._events.append(Message(worker, index, round, now, NOTHING))

    def _fail(self, worker: int, round: int) -> None:
        """Raise what a worker reports, once a round: others that hold the same partition fail as well."""
        if not 0 <= round <= self._failed:
            self._failed = round
            raise WorkerFailed(worker, self._board.read_report(worker))

    def _drain(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._inbox, NOTE.size * 2048):
                yield data

    def _welcome(self, worker: int, now: float) -> None:
        seat = self._seats[worker]
        seat.ready, seat.hung = True, False
        self._board.beats[worker] = time.monotonic()
        self._events.append(Joined(worker, now))

    def _bury(self, worker: int, sentinel: int) -> None:
        """A process ended: its worker is lost, and starts again if it may."""
        seat = self._seats[worker]
        self._watch.unregister(sentinel)
        seat.process.join()
        self._exits[worker] = seat.process.exitcode
        seat.process.close()
        seat.process = None
        self._hang_up(seat)
        starting, seat.ready = not seat.ready, False
        again = seat.starts <= self._restarts and not (starting and seat.starts == 1)
        self._events.append(Lost(worker, self.clock(), again))
        if again:
            self._spawn(worker)

    def _look_for_hung(self) -> None:
        """A worker without heartbeat is lost until it has one again (it may be stopped, or its machine may be swapping)."""
        now = time.monotonic()
        if now - self._last_look < self._heartbeat / 4:
            return
        missed = now - self._last_look > self._heartbeat
        self._last_look = now
        for worker, (seat, beat) in enumerate(zip(self._seats, self._board.beats.tolist(), strict=True)):
            hung = now - beat > self._heartbeat
            if seat.ready and hung != seat.hung and not missed:
                seat.hung = hung
                self._events.append(Lost(worker, self.clock(), True) if hung else Joined(worker, self.clock(), False))

    def _tell(self, seat: Seat, record: bytes) -> None:
        """Give an order. A pipe that is full belongs to a worker that lags far behind: it gets a later order."""
        if seat.orders >= 0:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(seat.orders, record)

    def _hang_up(self, seat: Seat) -> None:
        if seat.orders >= 0:
            os.close(seat.orders)
            seat.orders = -1


def _own_modules(problem: Problem) -> list[str]:
    """The module of a problem of this library, with what it imports. Others may start threads, which must not be forked."""
    name = type(problem).__module__
    return [name] if name.startswith("unstraggle.") else []
