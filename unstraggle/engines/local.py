"""Local: worker processes on this machine, with parameters and payloads in shared memory. The default."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..doors import door
from ..errors import Invalid, UnstraggleError
from ..problems.base import Problem
from ..runtime import frame
from ..runtime.events import Announced, Failed, Finished, Lost
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Message, Order
from ..runtime.roster import Roster
from ..runtime.words import packed as packed_word
from ..scheme.code import Code
from ..threads import cores
from .base import Engine, prepared
from .environment import thread_limits
from .local_memory import Memory
from .local_seat import Seat
from .local_start import (
    Born,
    Cradle,
    Estate,
    Free,
    end_all,
    end_starter,
    forget,
    own_modules,
    wait_until_free,
)
from .local_worker import FAILED, FINISHED, NOTE, ORDER, PART, READY, SENT
from .nursery import Nursery
from .starter import Starter

log = logging.getLogger("unstraggle")

NOTHING = np.empty(0, np.uint8)
AWAKE = 0.1
"""Seconds of a round in which the master of workers on a device looks for messages without sleeping, where there are processors
enough: a round there is short, and whoever sleeps is slow when he wakes up."""
WAYS = ("auto", "ipc", "pinned", "host")
AT_ONCE = NOTE.size * 2048
"""Bytes of notes that are read at once."""


@door
class Local:
    """One process a worker. They import the script where it has the guard `if __name__ == "__main__":`, see `travel`.

    restarts: how often a worker that died is started again. heartbeat: seconds without a sign of life after which a worker
    counts as lost until it shows one. threads: of the numerical libraries in each worker. start_within: seconds, also for a
    worker that is started again, which is given up then. start_method: "forkserver", by a `Nursery` of this engine, or
    "spawn", each as an interpreter of its own. way: how gradients of workers on accelerators get to the master: "ipc"
    (memory of the device that processes share), "pinned" (of the host, that devices reach), "host" (bytes) or "auto". sides: of
    the memory for parameters, two that take turns, or one: then a worker that is late reads what the master writes for the next
    round, and nobody uses what comes of it.
    """

    keeps = True

    def __init__(
        self,
        problem: Problem,
        *,
        restarts: int = 3,
        heartbeat: float = 10.0,
        threads: int = 1,
        start_within: float = 300.0,
        start_method: str = "forkserver",
        way: str = "auto",
        sides: int = 2,
    ) -> None:
        if not 1 <= heartbeat < math.inf or threads < 1 or restarts < 0:
            raise Invalid(
                "Local needs a finite heartbeat >= 1 second, threads >= 1 and restarts >= 0, "
                f"but got heartbeat={heartbeat}, threads={threads}, restarts={restarts}."
            )
        if start_method not in ("spawn", "forkserver"):
            raise Invalid(f'Local starts workers by "forkserver" or "spawn", but got start_method={start_method!r}.')
        if way not in WAYS:
            raise Invalid(f"Local's way is one of {', '.join(WAYS)}, but got {way!r}.")
        if sides not in (1, 2):
            raise Invalid(f"Parameters stand on one side or on two in turn, but got sides={sides}.")
        self.problem = problem
        self._restarts, self._heartbeat, self._threads = restarts, heartbeat, threads
        self._start_within, self._method, self._kind, self._sides = start_within, start_method, way, sides
        self._is_open = False
        self._seats: list[Seat] = []
        self._origin = time.monotonic()
        self._round, self._pull = -1, False
        self._events: list[Incoming] = []
        self._early: set[int] = set()
        self._nursery: Nursery | None = None
        self._estate: Estate | None = None
        self._left = False

    def follow(self, before: Engine) -> None:
        """Close an engine that has done its last round, and take over its processes, if they are all there and get free: then
        none has to be started."""
        if isinstance(before, Local) and (before._method, before._threads) == (self._method, self._threads):
            self._estate = before._leave()
        before.close()

    def open(self, code: Code) -> None:
        if self._is_open:
            raise Invalid("An engine serves one code. Close this one and make another for the next code.")
        self.problem = prepared(self.problem, code)
        self._code, self._memory = code, Memory(code, self.problem, self._sides, self._kind)
        self._is_open = True
        self._inbox, self._notes = os.pipe()
        os.set_blocking(self._inbox, False)
        self._seats, self._seat_of = [Seat() for _ in range(code.n)], dict[int, int]()
        self._last = [-math.inf] * code.n
        self._awake = self._memory.way is not None and cores() > 2 * (code.n + 1)
        self.crowded = self._memory.way is None and cores() <= code.n
        self._prepare_to_start()
        self._watch = select.epoll()
        for fd in (self._inbox, self._starter.fd):
            self._watch.register(fd, select.EPOLLIN)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._start_all()
            undo.pop_all()

    def gather(self, code: Code) -> Any:
        return self._memory.gather_of(code)

    def lend(self, round: int) -> Any:
        return self._memory.lend(round)

    def start(self, order: Order) -> None:
        if order.round != self._round:
            self._round, self._origin, self._pull = order.round, time.monotonic(), order.pull
            self._roster.begin(self._origin)
            self._memory.write(order)
        if order.delays is not None:
            self._memory.board.delays[order.round % 2] = order.delays
        record = self._record(order)
        is_ready = self._roster.is_ready
        for worker in range(self._code.n) if order.workers is None else order.workers:
            self._memory.board.cancelled[worker] = order.round - 1
            if is_ready(worker):
                self._seats[worker].tell(record if order.code is None else self._with_program(order, worker))

    def _with_program(self, order: Order, worker: int) -> bytes:
        """An order whose program stands on the board."""
        return self._record(order, self._memory.write_program(order, worker))

    def _record(self, order: Order, program: int = 0) -> bytes:
        delayed, hold = order.delays is not None, order.hold or (0.0, 0)
        return ORDER.pack(order.round, order.step, self._origin, delayed, program, len(order.context), *hold)

    def next(self, until: float | None) -> list[Incoming]:
        pause = self._roster.pause
        while not self._events:
            rest = pause if until is None else min(until - self.clock(), pause)
            self._collect(max(rest, 0.0))
            self._look()
            if not self._events and until is not None and self.clock() >= until:
                break
        events, self._events = self._events, []
        return events

    def clock(self) -> float:
        return time.monotonic() - self._origin

    def tell(self, word: Tell) -> None:
        seat = self._seats[word.worker]
        if word.message >= 0:
            self._events.append(self._fetch(word))
        elif self._roster.is_ready(word.worker):
            seat.tell(seat.waiting + packed_word(word))

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        for worker in workers:  # sooner done than a list of them is an index
            self._memory.board.cancelled[worker] = round

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None while it has none."""
        process = self._seats[worker].process
        return process.pid if process is not None and process.is_alive() else None

    def close(self) -> None:
        """Ask the workers to end, and make those that do not. They ignore Ctrl+C, so this also ends an interrupted run."""
        if self._estate is not None:
            self._estate.end()
            self._estate = None
        if not self._is_open:
            return
        if not self._left:
            self._end_workers()
        self._seats = []
        self._watch.close()
        for fd in (self._inbox, self._notes):
            os.close(fd)
        self._memory.close()
        self._is_open = False
        del self._memory

    # Starting

    def _prepare_to_start(self) -> None:
        """What starts processes: that of the engine before, where there was one, or a new one."""
        estate = self._inherited(self._code.n)
        if estate is not None:
            self._nursery = estate.nursery
        elif self._method == "forkserver":
            self._nursery = Nursery(thread_limits(self._threads), own_modules(self.problem), self._start_within)
        free = {} if estate is None else estate.free
        cradle = Cradle(self._code, self.problem, self._memory, self._notes, self._nursery, self._threads, free)
        self._starter = Starter(cradle.birth) if estate is None else estate.starter
        self._starter.use(cradle.birth)

    def _start_all(self) -> None:
        now = time.monotonic()
        times = {"restarts": self._restarts, "heartbeat": self._heartbeat, "start_within": self._start_within}
        self._roster = Roster(self._code.n, **times, now=now)
        for worker in range(self._code.n):
            self._starter.ask(worker)
        while not self._roster.all_ready:
            self._collect(0.5, opening=True)
            gone = [event for event in self._events if isinstance(event, Lost)]
            if gone:
                raise UnstraggleError(
                    f"Worker {gone[0].worker} ended while it started (exit code {self._exit}); its error stands above. A "
                    'script needs the guard `if __name__ == "__main__":`, and the problem must be picklable and importable.'
                )
            if time.monotonic() > now + self._start_within:
                raise UnstraggleError(
                    f"Workers {self._roster.not_ready()} were not ready within {self._start_within:g} s. "
                    "Raise start_within, or use fewer workers."
                )
        self._events = []

    # Ending

    def _end_workers(self) -> None:
        self._starter.end()
        for seat in self._seats:
            seat.hang_up()
        end_all([seat.process for seat in self._seats if seat.process is not None])
        end_starter(self._starter, self._nursery)
        self._nursery = None

    def _leave(self) -> Estate | None:
        """What another engine can take over, and this one has no more then; None where not all are there and get free."""
        if not self._is_open or self._memory.way is not None or not self._roster.all_ready:
            return None
        for seat in self._seats:
            seat.end_orders()
        if not wait_until_free([seat.link for seat in self._seats]):
            return None
        free = {worker: Free(seat.process, seat.link) for worker, seat in enumerate(self._seats) if seat.link is not None}
        self._left = True
        return Estate(free, self._starter, self._nursery)

    def _inherited(self, n: int) -> Estate | None:
        """What the engine before has left, if it had as many workers."""
        estate, self._estate = self._estate, None
        if estate is not None and len(estate.free) != n:
            estate.end()
            return None
        return estate

    # What happens

    def _collect(self, timeout: float, opening: bool = False) -> None:
        """Wait for notes, births and deaths. Notes first: what a worker sent before it died counts.

        opening: nobody is started again yet, and what goes wrong is raised.
        """
        fds = [fd for fd, _ in self._poll(timeout, opening)]
        if fds:
            self._read_notes()
        for fd in fds:
            if fd == self._starter.fd:
                self._take_births(opening)
            elif fd != self._inbox:
                self._bury(self._seat_of.pop(fd), fd, opening)
        if not opening:
            for worker in self._roster.due(time.monotonic()):
                self._starter.ask(worker)

    def _poll(self, timeout: float, opening: bool) -> list[tuple[int, int]]:
        """What has happened; wait for it, awake in the beginning of a round on a device."""
        until = min(time.monotonic() + timeout, self._origin + AWAKE) if self._awake and not opening else 0.0
        while (now := time.monotonic()) < until:
            if found := self._watch.poll(0):
                return found
            timeout -= time.monotonic() - now
        return self._watch.poll(max(timeout, 0.0))

    def _read_notes(self) -> None:
        """A message is a sign of life; the roster hears of it at its next look, or at once where somebody hangs."""
        events, last, current, frames, read = self._events, self._last, self._round, self._memory.frames, frame.read_slot
        for data in self._drain():
            now = time.monotonic()
            clock, as_usual = now - self._origin, not self._pull and not self._roster.hung
            for kind, worker, round, index, epoch in NOTE.iter_unpack(data):
                last[worker] = now
                if as_usual and kind == SENT and round == current:
                    place, room = frames[index]
                    events.append(read(place, room, clock))
                else:
                    self._take_note(kind, worker, round, index, epoch, now)

    def _take_note(self, kind: int, worker: int, round: int, index: int, epoch: int, now: float) -> None:
        if kind == READY:
            self._welcome(worker, now)
            return
        if kind == FAILED:
            self._events += self._roster.failed(worker, round, self._memory.board.read_report(worker), now)
            return
        if self._roster.hung:
            self._hear(worker)
        if kind == PART:
            if round == self._round and self._memory.gather is not None:
                self._memory.gather.hasten(index, epoch)
            return
        self._events.append(self._news(kind, worker, round, index, epoch, now - self._origin))

    def _news(self, kind: int, worker: int, round: int, index: int, epoch: int, clock: float) -> Incoming:
        """What a worker has finished, announced or sent."""
        if kind == FINISHED:
            return Finished(worker, index, clock, round, epoch)
        if self._pull:
            return Announced(worker, index, clock, round)
        if round != self._round:
            return Message(worker, index, round, clock, NOTHING)
        return self._memory.message(index, clock)

    def _hear(self, worker: int) -> None:
        """Tell the roster when a worker last gave a sign of life."""
        joined = self._roster.heard(worker, max(self._last[worker], float(self._memory.board.beats[worker])))
        if joined is not None:
            self._events.append(joined)

    def _welcome(self, worker: int, now: float) -> None:
        """A worker is ready, maybe before the thread that started it has said so: then it has no pipe for orders yet."""
        if self._seats[worker].process is None:
            self._early.add(worker)
        else:
            self._early.discard(worker)
            self._events.append(self._roster.ready(worker, now))

    def _drain(self) -> Iterator[bytes]:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._inbox, AT_ONCE):
                yield data
                if len(data) < AT_ONCE:  # there was no more
                    return

    def _take_births(self, opening: bool) -> None:
        """Processes that were started since the last look. Who could not be started is lost like one that died."""
        for worker, born in self._starter.take():
            if isinstance(born, Born):
                seat = self._seats[worker]
                seat.process, seat.link, seat.orders, seat.waiting = born.process, born.link, born.orders, b""
                self._watch.register(born.process.sentinel, select.EPOLLIN)
                self._seat_of[born.process.sentinel] = worker
                if worker in self._early:
                    self._welcome(worker, time.monotonic())
            elif opening or not isinstance(born, Exception):
                raise born
            else:
                log.warning("Worker %d could not be started again: %s", worker, born)
                self._lose(worker)

    def _bury(self, worker: int, sentinel: int, opening: bool) -> None:
        """A process ended: its worker is lost, and starts again if it may."""
        seat = self._seats[worker]
        process, seat.process = seat.process, None
        self._watch.unregister(sentinel)
        seat.hang_up()
        if opening:
            process.join()
            self._exit = process.exitcode
        forget(process)
        self._lose(worker)

    def _lose(self, worker: int) -> None:
        lost = self._roster.died(worker, time.monotonic())
        if lost is not None:
            self._events.append(lost)

    def _look(self) -> None:
        """Now and then: who gives no sign of life, who does not get ready, and whose pipe takes an order by now."""
        now = time.monotonic()
        if not self._roster.time_to_look(now):
            return
        for worker, seat in enumerate(self._seats):
            self._hear(worker)
            if seat.waiting:
                seat.tell(seat.waiting)
        for lost in self._roster.look(now):
            self._events.append(lost)
            process = self._seats[lost.worker].process
            if not lost.returns and process is not None:
                process.kill()

    # Messages that are fetched

    def _fetch(self, word: Tell) -> Incoming:
        """A message that was announced: it lies in shared memory, where it is whole, whatever its worker does."""
        now = self.clock()
        if self._memory.board.whole[word.message] != word.round:
            return Failed(word.worker, now, word.round, f"Worker {word.worker} announced message {word.message}, but has none.")
        message = self._memory.message(word.message, now)
        message.ticket = word.ticket
        return message
