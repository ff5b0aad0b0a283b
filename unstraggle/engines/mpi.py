"""MPI: one rank a worker, on one machine or many. Run: mpiexec -n 9 python -m unstraggle.engines.mpi script.py"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import pickle
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..doors import door
from ..errors import Invalid, UnstraggleError
from ..problems.base import Problem
from ..runtime import frame, words
from ..runtime.events import Failed
from ..runtime.instructions import Tell
from ..runtime.message import Bytes, Incoming, Message, Order, WorkerFailed
from ..runtime.payload import payload_sizes
from ..runtime.roster import Roster
from ..runtime.serve import share_of
from ..scheme.code import Code
from .base import prepared
from .commons import OWN, PLACE, machine
from .depot import Depot
from .hosts import Carry, Hosts, Step
from .mooring import agree, moored, require_way
from .mpi_launch import FAREWELL, is_gone, is_sibling, wire
from .mpi_launch import command as command
from .mpi_order import NUMBER, PING_TIMES, pack_order, part_of, round_of
from .mpi_wire import (
    ANNOUNCED,
    CANCEL,
    CLOSE,
    ENGINES,
    FAILED,
    FINISHED,
    FRAME,
    HAVE,
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
    Sent,
    Wire,
)
from .parts import Parts
from .starter import Starter

IN_FLIGHT = 2
"""Orders on their way to a worker that has not taken them; a later one waits, and replaces the one that waits already."""
NOTHING = np.empty(0, np.uint8)
NUMBERS = itertools.count()


@dataclass(eq=False)
class Seat:
    """A worker's place: the rank that has it now, and what the master knows of it."""

    rank: int
    messages: int
    pid: int = 0
    told: int = -1
    owes: int = 0
    sent: list[Sent | None] = field(default_factory=list)
    waiting: tuple[int, list[tuple[int, Bytes]]] | None = None


@door
class MPI:
    """Ranks 1, 2, ... of an MPI job are the workers. The script runs on rank 0 only.

    heartbeat: seconds without a sign of life after which a worker counts as lost until it shows one. start_within: seconds. Of
    more ranks than workers, the last are spare: they take the place of ranks that died, where MPI goes on after that. way: how
    gradients of workers on accelerators get into memory of their hosts: "pinned" (which devices reach), "host" (as bytes) or
    "auto".
    """

    keeps = True

    def __init__(self, problem: Problem, *, heartbeat: float = 10.0, start_within: float = 300.0, way: str = "auto") -> None:
        if not 1 <= heartbeat < math.inf:
            raise Invalid(f"MPI needs a finite heartbeat >= 1 second, but got heartbeat={heartbeat}.")
        self.problem, self._way = problem, require_way("MPI", way)
        self._heartbeat, self._start_within = heartbeat, start_within
        self._number = next(NUMBERS)
        self._wire: Wire | None = None
        self._seats: list[Seat] = []
        self._pace = Pace()
        self._origin = time.monotonic()
        self._round, self._pull = -1, False
        self._events: list[Incoming] = []

    def open(self, code: Code) -> None:
        if self._seats:
            raise Invalid("An engine serves one code. Close this one and make another for the next code.")
        self.problem, found = prepared(self.problem, code), wire(code.n)
        if found.engine is not None:
            raise Invalid("Ranks serve one engine at a time, and another one is open. Close that one first.")
        agree(self.problem, code, self._way)
        dim, dtype = self.problem.dim, np.dtype(self.problem.dtype)
        self._depot = Depot(code, dim, dtype)
        self._parts = Parts(code.messages.worker.tolist(), payload_sizes(code, dim, dtype).tolist())
        self._code, self._wire, found.engine = code, found, self
        alive = [rank for rank in range(1, found.size) if rank not in found.dead]
        self._spare, self._buried = alive[code.n :], len(found.dead)
        self._seats = [Seat(rank, len(code.program(worker).messages)) for worker, rank in enumerate(alive[: code.n])]
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._start_all()
            undo.pop_all()

    def start(self, order: Order) -> None:
        assert self._wire is not None
        self._wire.going(ORDER)
        if order.round != self._round:
            self._round, self._origin, self._pull = order.round, time.monotonic(), order.pull
            self._roster.begin(self._origin)
            self._parts.begin(order.round)
        workers = range(self._code.n) if order.workers is None else order.workers
        self._order, ready = order, [worker for worker in workers if self._roster.is_ready(worker)]
        if self._depot.long:
            self._depot.write(order)
            self._follow(self._hosts.order(order.round, ready, time.monotonic()))
            return
        parcels = [(ORDER, pack_order(order, self._origin))]
        for worker in ready:
            self._give(worker, parcels)

    def _follow(self, steps: list[Step]) -> None:
        """Bring long parameters to hosts, and orders to who finds them there."""
        made: dict[bytes, Bytes] = {}
        for step in steps:
            order, place, carried = self._order, OWN, []  # type: Order, bytes, list[tuple[int, Bytes]]
            if isinstance(step, Carry):
                carried = [(PARAMS, self._depot.parcel(order.round))]
            else:
                place = step.place or self._depot.write(order)
            if place not in made:
                made[place] = pack_order(order, self._origin, place)
            self._give(step.worker, [*carried, (ORDER_AT, made[place])])

    def _give(self, worker: int, parcels: list[tuple[int, Bytes]]) -> None:
        self._seats[worker].waiting = self._round, parcels
        self._post(self._seats[worker])

    def lend(self, round: int) -> Any:
        """Memory from which workers of this host read, where parameters are long."""
        return self._depot.lend(round)

    def gather(self, code: Code) -> Any:
        return None

    def next(self, until: float | None) -> list[Incoming]:
        assert self._wire is not None
        self._pace.reset()
        self._collect()
        while not self._events and (until is None or self.clock() < until):
            rest = math.inf if until is None else until - self.clock()
            self._pace.rest(min(rest, self._wire.patience))
            self._collect()
        events, self._events = self._events, []
        return events

    def clock(self) -> float:
        return time.monotonic() - self._origin

    def tell(self, word: Tell) -> None:
        if self._roster.is_ready(word.worker):
            self._tell(self._seats[word.worker], TELL, words.packed(word))

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        self._hosts.cancel(workers)
        for seat in (self._seats[worker] for worker in workers if self._seats):
            if seat.waiting is not None and seat.waiting[0] <= round:
                seat.waiting = None
            if seat.told == round and seat.owes:
                seat.owes = 0
                self._tell(seat, CANCEL, NUMBER.pack(round))

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None while it has none, or where it is not one that this machine's mpiexec started."""
        pid = self._seats[worker].pid
        return pid if self._roster.is_ready(worker) and is_sibling(pid) else None

    def close(self) -> None:
        """Let the ranks wait for the next engine. They end when the script does."""
        if self._wire is None:
            return
        for seat in self._seats:
            self._tell(seat, CLOSE, b"")
        self._starter.end()
        self._starter.join(FAREWELL)
        self._depot.close()
        self._wire.engine, self._wire, self._seats = None, None, []

    # Starting

    def _start_all(self) -> None:
        assert self._wire is not None
        now, times = time.monotonic(), {"heartbeat": self._heartbeat, "start_within": self._start_within}
        self._roster = Roster(self._code.n, restarts=math.inf, now=now, **times)
        self._hosts = Hosts(machine(), self._roster.is_ready)
        self._starter = Starter(self._set_up)
        for worker in range(self._code.n):
            self._starter.ask(worker)
        while not self._roster.all_ready:
            self._collect(opening=True)
            self._pace.rest()
            if time.monotonic() > now + self._start_within or any(seat.rank in self._wire.dead for seat in self._seats):
                raise UnstraggleError(
                    f"Workers {self._roster.not_ready()} were not ready within {self._start_within:g} s, or died. Their errors "
                    "stand above; if there are none, raise start_within, or use fewer workers."
                )
        self._events = []

    def _set_up(self, worker: int) -> bytes:
        """What a rank gets at first, its share: it says READY when it has what it needs. Pickled by the starter's thread."""
        share = share_of(self.problem, self._code, worker)
        share = replace(share, moored=moored(share.problem, self._code, self._way))
        return pickle.dumps((share, machine(), self._heartbeat / 5, self._depot.offer(worker)), protocol=5)

    # To the workers

    def _tell(self, seat: Seat, kind: int, data: Any, *, taken: bool = False) -> Sent | None:
        assert self._wire is not None
        return self._wire.send(seat.rank, kind, self._number, data, taken=taken)

    def _post(self, seat: Seat) -> None:
        """Send the order that waits, unless two are on their way: who lags behind gets the newest one later."""
        assert self._wire is not None
        seat.sent = [sent for sent in seat.sent if not self._wire.left(sent)]
        if seat.waiting is None or len(seat.sent) >= IN_FLIGHT:
            return
        (seat.told, parcels), seat.waiting = seat.waiting, None
        seat.owes = seat.messages
        seat.sent += [self._tell(seat, kind, data, taken=True) for kind, data in parcels]

    # From the workers

    def _collect(self, opening: bool = False) -> None:
        """Take what has come, without waiting. What a rank sent before it died counts. opening: what goes wrong is raised."""
        assert self._wire is not None
        parcels, now = self._wire.poll(), time.monotonic()
        if parcels:
            worker_of = {seat.rank: worker for worker, seat in enumerate(self._seats)}
            for one in parcels:
                worker = worker_of.get(one.rank, -1)
                if worker >= 0 and one.engine == self._number % ENGINES:
                    self._take(worker, one, now, opening)
        for seat in self._seats:
            if seat.waiting is not None:
                self._post(seat)
        for worker, data in self._starter.take():
            self._hand_over(worker, data, opening)
        if not opening:
            self._bury(now)
            self._look(now)

    def _hand_over(self, worker: int, data: bytes | BaseException, opening: bool) -> None:
        if isinstance(data, bytes):
            self._tell(self._seats[worker], SETUP, data)
        elif opening or not isinstance(data, Exception):
            raise data
        else:
            self._lose(worker, time.monotonic(), again=False)

    def _take(self, worker: int, parcel: Parcel, now: float, opening: bool) -> None:
        """Any parcel is a sign of life."""
        seat, joined = self._seats[worker], self._roster.heard(worker, now)
        if joined is not None:
            self._events.append(joined)
        if parcel.kind in (FRAME, REST):
            self._events.append(self._message(seat, worker, parcel, now - self._origin))
        elif parcel.kind == PART:
            self._parts.take(worker, *part_of(parcel.data))
        elif parcel.kind == PLACED:
            self._events.append(self._placed(seat, worker, parcel.data, now - self._origin))
        elif parcel.kind == HAVE and len(parcel.data) == NUMBER.size + PLACE.size:
            self._follow(self._hosts.have(worker, round_of(parcel.data), parcel.data[NUMBER.size :].tobytes(), now))
        elif parcel.kind == LACKS:
            self._follow(self._hosts.lacks(worker, round_of(parcel.data), now))
        elif parcel.kind == FINISHED:
            self._events.append(words.finished(parcel.data, worker, now - self._origin))
        elif parcel.kind == ANNOUNCED:
            seat.owes = max(0, seat.owes - 1)
            self._events.append(words.announced(parcel.data, worker, now - self._origin))
        elif parcel.kind == PING:
            asked, _ = PING_TIMES.unpack(parcel.data.tobytes())
            self._tell(seat, PONG, PING_TIMES.pack(asked, time.monotonic()))
        elif parcel.kind == READY:
            about = json.loads(parcel.data.tobytes())
            seat.pid = int(about["pid"]) if about["machine"] == machine() else 0
            self._depot.hide(worker)
            self._hosts.settle(worker, str(about["machine"]))
            self._events.append(self._roster.ready(worker, now))
        elif parcel.kind == FAILED:
            self._fail(worker, parcel.data.tobytes(), now, opening)

    def _fail(self, worker: int, report: bytes, now: float, opening: bool) -> None:
        round, words = NUMBER.unpack(report[: NUMBER.size])[0], report[NUMBER.size :].decode(errors="replace")
        if round >= 0:
            self._events += self._roster.failed(worker, round, words, now)
        elif opening:
            raise WorkerFailed(worker, words)
        else:
            self._lose(worker, now, again=False)

    def _message(self, seat: Seat, worker: int, parcel: Parcel, now: float) -> Incoming:
        """The message of a frame. A rank that sends what is none, or another's, has failed."""
        rest = parcel.kind == REST
        try:
            message, at = frame.read_rest(parcel.data, now) if rest else (frame.read(parcel.data, now), 0)
            if message.worker != worker:
                raise Invalid(f"Rank {seat.rank} is worker {worker}, but sent a message of worker {message.worker}.")
        except Invalid as error:
            return Failed(worker, now, self._round, str(error))
        if message.round != self._round:
            return Message(worker, message.index, message.round, now, NOTHING)
        message.payload.flags.writeable = False
        return self._counted(seat, self._parts.finish(message, at) if rest else message)

    def _placed(self, seat: Seat, worker: int, note: Bytes, now: float) -> Incoming:
        """The message of a note, which stands in shared memory."""
        round, index, ticket = words.placed(note)
        if round != self._round:
            return Message(worker, index, round, now, NOTHING)
        try:
            return self._counted(seat, self._depot.message(worker, index, round, ticket, now))
        except Invalid as error:
            return Failed(worker, now, self._round, str(error))

    def _counted(self, seat: Seat, message: Message) -> Message:
        seat.owes = seat.owes if self._pull else max(0, seat.owes - 1)
        return message

    # Ranks that die or hang

    def _bury(self, now: float) -> None:
        """A rank died: its worker is lost, until a spare rank has taken its place."""
        assert self._wire is not None
        if len(self._wire.dead) != self._buried:
            self._buried = len(self._wire.dead)
            self._spare = [rank for rank in self._spare if rank not in self._wire.dead]
            for worker, seat in enumerate(self._seats):
                if seat.rank in self._wire.dead and not self._roster.given_up(worker):
                    self._lose(worker, now, again=bool(self._spare))
                    if self._spare:
                        self._seats[worker] = Seat(self._spare.pop(0), seat.messages)
                    self._follow(self._hosts.leave(worker, now))
        for worker in self._roster.due(now):
            self._starter.ask(worker)

    def _lose(self, worker: int, now: float, again: bool) -> None:
        self._seats[worker].waiting = None
        lost = self._roster.died(worker, now, again)
        if lost is not None:
            self._events.append(lost)

    def _look(self, now: float) -> None:
        """Now and then: who gives no sign of life (it may be stopped, or cut off), and which spare rank does not get ready."""
        assert self._wire is not None
        if not self._roster.time_to_look(now):
            return
        self._follow(self._hosts.late(now))
        for worker, seat in enumerate(self._seats):
            if seat.pid and is_gone(seat.pid):  # it has left by itself, as by exit(): MPI tells of those only that were killed
                self._wire.dead.add(seat.rank)
            joined = self._roster.heard(worker, self._wire.heard.get(seat.rank, -math.inf))
            if joined is not None:
                self._events.append(joined)
        self._events += self._roster.look(now)


if __name__ == "__main__":
    # This file is `__main__` now: the engines of the program are those of the module that it imports.
    from unstraggle.engines.mpi_launch import main

    main(sys.argv[1:])
