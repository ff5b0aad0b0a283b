"""Hub: the master's end of connections from workers, however these were started. It believes nothing that it cannot check."""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Invalid
from ..runtime import frame, words
from ..runtime.instructions import Tell
from ..runtime.message import Bytes, Incoming, Message, Order
from ..runtime.payload import payload_sizes
from ..runtime.roster import Roster
from ..scheme.code import Code
from ..scheme.program import packed
from . import wire
from .commons import OWN, PLACE, machine
from .depot import Depot
from .hosts import Carry, Hosts, Step
from .parts import PIECE, Part, Parts
from .wire import Head, Link

NOTHING = np.empty(0, np.uint8)
FROM_GUESTS = {wire.HELLO: wire.TOKEN}
FROM_WORKERS = {wire.READY: wire.MACHINE, wire.ALIVE: 0, wire.FAILED: wire.REPORT, wire.FINISHED: words.DONE.size}
FROM_WORKERS |= {wire.ANNOUNCED: words.DONE.size, wire.HAVE: PLACE.size, wire.LACKS: 0, wire.PLACED: words.DONE.size}
"""The most bytes of each kind of record; messages have their own."""


@dataclass(eq=False)
class Seat:
    """A worker's place: its connection while it has one. process: its number, as it says. asked: for a sign of life."""

    link: Link | None = None
    process: int = -1
    asked: bool = False


class Hub:
    """Lets workers in that have the token, gives them orders, and turns what they send into events.

    heartbeat, start_within, restarts: see `Roster`; others start workers again. greet(worker): called when one has come, which
    then needs its share and answers READY.
    """

    def __init__(
        self,
        code: Code,
        dim: int,
        dtype: np.dtype[Any],
        greet: Callable[[int], None],
        *,
        heartbeat: float,
        start_within: float,
        restarts: int,
    ) -> None:
        self.token = os.urandom(wire.TOKEN)
        self.seats = [Seat() for _ in range(code.n)]
        self.mine = [[message.index for message in code.program(worker).messages] for worker in range(code.n)]
        self.round, self.origin = -1, time.monotonic()
        times = {"restarts": restarts, "heartbeat": heartbeat, "start_within": start_within}
        self.roster = Roster(code.n, **times, now=self.origin)
        self.events: list[Incoming] = []
        self._dtype, self._heartbeat, self._greet = dtype, heartbeat, greet
        heads = [frame.head_size(int(tasks)) for tasks in np.bincount(code.tasks.worker, minlength=code.n)]
        sizes = payload_sizes(code, dim, dtype)
        self._rooms = (np.array(heads)[code.messages.worker] + sizes).tolist()
        self._parts = Parts(code.messages.worker.tolist(), sizes.tolist())
        self._slots: dict[int, Bytes] = {}
        self._filled: set[int] = set()
        self._guests: set[Link] = set()
        self._selector = selectors.DefaultSelector()
        self.depot, self.hosts = Depot(code, dim, dtype), Hosts(machine(), self.roster.is_ready)
        self._order: Order | None = None

    def listen(self, host: str, port: int) -> tuple[str, int]:
        """Open the door; gives the address to which workers connect."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._door = socket.create_server((host, port), family=family, backlog=max(128, len(self.seats)))
        self._door.setblocking(False)
        self._selector.register(self._door, selectors.EVENT_READ)
        name = self._door.getsockname()
        return name[0], name[1]

    def begin(self, round: int) -> None:
        """A round begins: payloads of the last one may be overwritten."""
        self.round, self.origin, self._filled = round, time.monotonic(), set()
        self._parts.begin(round)
        self.roster.begin(self.origin)

    def clock(self) -> float:
        """Seconds since the round began."""
        return time.monotonic() - self.origin

    def order(self, order: Order, workers: Iterable[int]) -> None:
        """Send an order. It replaces those that a worker has not yet taken, so that a slow one never has many before it."""
        if len(order.context) > wire.CONTEXT:
            raise Invalid(f"What comes with an order has at most {wire.CONTEXT} bytes, but got {len(order.context)}.")
        self._order = order
        if self.depot.long:
            self.depot.write(order)
            self._follow(self.hosts.order(order.round, workers, time.monotonic()))
            return
        params = np.array(order.params, self._dtype).view(np.uint8).data
        for worker in workers:
            self._tell(self.seats[worker].link, *self._record(wire.ORDER, order, worker, params), newest=True)

    def _follow(self, steps: Iterable[Step]) -> None:
        """Bring long parameters to hosts, and orders to who finds them there."""
        for step in steps:
            order, place, carried = self._order, OWN, ()  # type: Order | None, bytes, tuple[wire.Part, ...]
            assert order is not None, "nobody is sent anywhere before the first order"
            if isinstance(step, Carry):
                data = self.depot.parcel(order.round).data
                carried = wire.head(wire.PARAMS, 0, order.round, len(data)), data
            else:
                place = step.place or self.depot.write(order)
            record = self._record(wire.ORDER_AT, order, step.worker, place)
            self._tell(self.seats[step.worker].link, *carried, *record, newest=True)

    def _record(self, kind: int, order: Order, worker: int, params: wire.Part) -> tuple[wire.Part, ...]:
        """An order, with parameters or their place."""
        step = wire.STEP.pack(order.step, self.origin, len(order.context), *(order.hold or (0.0, 0)), order.pull)
        delays = self.delays(order, worker)
        program = b"" if order.code is None else packed(order.code.program(worker))
        parts = step, b"" if delays is None else delays.tobytes(), params, order.context, program
        head = wire.head(kind, 0 if delays is None else len(delays), order.round, sum(map(len, parts)))
        return head, *parts

    def delays(self, order: Order, worker: int) -> Any:
        """Those of a worker's messages, or None."""
        return None if order.delays is None else np.asarray(order.delays, "<f8")[self.mine[worker]]

    def cancel(self, round: int, workers: Iterable[int]) -> None:
        self.hosts.cancel(workers)
        for worker in workers:
            self._tell(self.seats[worker].link, wire.head(wire.CANCEL, 0, round))

    def tell(self, word: Tell) -> None:
        data = words.packed(word)
        self._tell(self.seats[word.worker].link, wire.head(wire.TELL, 0, word.round, len(data)), data)

    def collect(self, timeout: float) -> None:
        """Wait for something on the connections, and take what has come."""
        for key, mask in self._selector.select(timeout):
            link: Link | None = key.data
            if link is None:
                self._let_in()
                continue
            if mask & selectors.EVENT_WRITE and link.open and link.flush():
                self._selector.modify(link.sock, selectors.EVENT_READ, link)
            if mask & selectors.EVENT_READ and link.open:
                self._hear(link)

    def look(self) -> None:
        """Now and then: ask for signs of life, see who shows none, and send guests away who say nothing."""
        now = time.monotonic()
        if not self.roster.time_to_look(now):
            return
        self._follow(self.hosts.late(now))
        for worker, seat in enumerate(self.seats):
            if self.roster.is_ready(worker) and not seat.asked:
                seat.asked = True
                self._tell(seat.link, wire.head(wire.PING))
        self.roster.due(now)
        self.events += self.roster.look(now)
        for guest in [guest for guest in self._guests if now - guest.since > self._heartbeat]:
            self._drop(guest)

    def pid(self, worker: int) -> int | None:
        """The process of a worker that is ready; None where it is not on this machine, or is not the one that it says."""
        seat = self.seats[worker]
        if seat.link is None or not self.roster.is_ready(worker) or not owns(seat.process, seat.link.sock):
            return None
        return seat.process

    def close(self) -> None:
        """Close the door and all connections."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self.depot.close()

    # What comes

    def _let_in(self) -> None:
        """Take a connection; until it has shown the token, it is a guest."""
        with contextlib.suppress(OSError):
            link = Link(self._door.accept()[0])
            self._selector.register(link.sock, selectors.EVENT_READ, link)
            self._guests.add(link)

    def _hear(self, link: Link) -> None:
        try:
            heard = link.receive(lambda what: self._room(link, what), lambda what, body: self._take(link, what, body))
        except (OSError, EOFError, Invalid):
            self._drop(link)
            return
        if heard and link.worker is not None:
            self.seats[link.worker].asked = False

    def _room(self, link: Link, what: Head) -> Bytes:
        """The place for what follows. Refuses what is not expected, and what is larger than it may be."""
        if what.kind in (wire.SENT, wire.PART, wire.REST):
            return self._place(link, what)
        most = (FROM_GUESTS if link.worker is None else FROM_WORKERS).get(what.kind, -1)
        if what.size > most:
            raise Invalid(f"A record of kind {what.kind} has at most {most} bytes here, but got {what.size}.")
        return np.empty(what.size, np.uint8)

    def _place(self, link: Link, what: Head) -> Bytes:
        """The place for a message, or for some of it."""
        m = what.number
        if link.worker is None or not self._parts.owns(link.worker, m) or what.size > self._rooms[m]:
            raise Invalid(f"Worker {link.worker} has no message {m} of {what.size} bytes.")
        if what.kind == wire.SENT:
            return self._slot(what)
        if what.kind == wire.PART and what.size > PIECE:
            raise Invalid(f"A part of a message has at most {PIECE} bytes, but got {what.size}.")
        found = self._parts.room(link.worker, part_of(what)) if what.kind == wire.PART else None
        return np.empty(what.size, np.uint8) if found is None else found

    def _slot(self, what: Head) -> Bytes:
        """The place for a message: the same one in every round, but never that of a message which the master may be reading."""
        m = what.number
        if what.round != self.round or m in self._filled:
            return np.empty(what.size, np.uint8)
        if m not in self._slots:
            self._slots[m] = np.empty(self._rooms[m], np.uint8)
        return self._slots[m][: what.size]

    def _take(self, link: Link, what: Head, body: Bytes) -> None:
        if link.worker is None:
            self._welcome(link, what, body)
            return
        worker, now = link.worker, time.monotonic()
        joined = self.roster.heard(worker, now)
        if joined is not None:
            self.events.append(joined)
        if what.kind in (wire.SENT, wire.REST):
            self.events.append(self._message(worker, what, body, now - self.origin))
        elif what.kind == wire.PART:
            self._parts.came(part_of(what))
        elif what.kind == wire.PLACED:
            self.events.append(self._placed(worker, self._note(worker, body)))
        elif what.kind == wire.READY:
            self.depot.hide(worker)
            self.hosts.settle(worker, body.tobytes().decode(errors="replace"))
            self.events.append(self.roster.ready(worker, now))
        elif what.kind in (wire.HAVE, wire.LACKS):
            self._host(worker, what, body, now)
        elif what.kind == wire.FINISHED:
            self.events.append(words.finished(self._note(worker, body), worker, self.clock()))
        elif what.kind == wire.ANNOUNCED:
            self.events.append(words.announced(self._note(worker, body), worker, self.clock()))
        elif what.kind == wire.FAILED:
            self.events += self.roster.failed(worker, what.round, body.tobytes().decode(errors="replace"), now)

    def _note(self, worker: int, body: Bytes) -> Bytes:
        if len(body) != words.DONE.size:
            raise Invalid(f"Worker {worker} says in {len(body)} bytes what it has done, which takes {words.DONE.size}.")
        return body

    def _host(self, worker: int, what: Head, body: Bytes, now: float) -> None:
        """Parameters have come to a host, or are not where a worker looks for them."""
        if len(body) != (PLACE.size if what.kind == wire.HAVE else 0):
            raise Invalid(f"Worker {worker} tells of parameters in {len(body)} bytes.")
        if what.kind == wire.HAVE:
            self._follow(self.hosts.have(worker, what.round, body.tobytes(), now))
        else:
            self._follow(self.hosts.lacks(worker, what.round, now))

    def _placed(self, worker: int, note: Bytes) -> Message:
        """A message that stands in shared memory."""
        round, index, ticket = words.placed(note)
        if round != self.round:
            return Message(worker, index, round, self.clock(), NOTHING)
        return self.depot.message(worker, index, round, ticket, self.clock())

    def _message(self, worker: int, what: Head, body: Bytes, clock: float) -> Message:
        if what.round != self.round:
            return Message(worker, what.number, what.round, clock, NOTHING)
        body.flags.writeable = False
        message, at = frame.read_rest(body, clock) if what.kind == wire.REST else (frame.read(body, clock), 0)
        if message.worker != worker or message.index != what.number or message.round != what.round:
            raise Invalid(f"Message {message.index} of worker {message.worker} came as {what.number} of worker {worker}.")
        if what.kind == wire.REST:
            return self._parts.finish(message, at)
        self._filled.add(what.number)
        return message

    def _welcome(self, link: Link, what: Head, token: Bytes) -> None:
        """A worker has come. If it was thought to be here, its connection or machine broke, and this is its successor."""
        if not hmac.compare_digest(token.tobytes(), self.token) or what.number >= len(self.seats):
            raise Invalid("A connection came without the token of this run.")
        old = self.seats[what.number].link
        if old is not None:
            self._drop(old)
        self._guests.discard(link)
        seat = self.seats[what.number]
        link.worker, seat.link, seat.process = what.number, link, what.round
        self._tell(link, wire.head(wire.PING))
        offer = self.depot.offer(what.number)
        if offer:
            self._tell(link, wire.head(wire.OFFER, 0, -1, len(offer)), offer)
        self._greet(what.number)

    def _drop(self, link: Link) -> None:
        """A connection ended, or brought what it must not: its worker is lost, and ends too when it sees that."""
        self._selector.unregister(link.sock)
        link.sock.close()
        self._guests.discard(link)
        if link.worker is None:
            return
        lost = self.roster.died(link.worker, time.monotonic())
        if lost is not None:
            self.events.append(lost)
        self.roster.due(time.monotonic())
        self.seats[link.worker] = Seat()
        self.depot.forget(link.worker)
        self._follow(self.hosts.leave(link.worker, time.monotonic()))

    def _tell(self, link: Link | None, *parts: wire.Part, newest: bool = False) -> None:
        """Send what the connection takes now; the rest follows when it takes more."""
        if link is not None and not link.send(*parts, newest=newest):
            self._selector.modify(link.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, link)


def part_of(what: Head) -> Part:
    """What a record brings of a message."""
    return Part(what.round, what.number, what.at, what.size)


def owns(process: int, sock: socket.socket) -> bool:
    """Whether a process of this machine has the other end of a connection: a number that came over it proves nothing.

    By Linux's list of connections, and that of the process's files.
    """
    if process <= 1:
        return False
    with contextlib.suppress(OSError):
        ports = f":{sock.getpeername()[1]:04X}", f":{sock.getsockname()[1]:04X}"
        for line in (line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()):
            if line[1].endswith(ports[0]) and line[2].endswith(ports[1]) and line[9] != "0":
                return any(os.readlink(file) == f"socket:[{line[9]}]" for file in Path(f"/proc/{process}/fd").iterdir())
    return False
