"""The master's end of connections, with workers played by plain sockets."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.engines import Message, Order, dock, parts, ray_worker, wire
from unstraggle.engines.commons import OWN, PLACE, machine
from unstraggle.engines.hub import Hub
from unstraggle.engines.ray_worker import Post, Worker
from unstraggle.runtime import frame, words
from unstraggle.runtime.events import Failed, Joined, Lost

from ..problems import Constant, Growing

DIM = 8
CODE = codes.uncoded(2)
CLIENTS: list[socket.socket] = []


@pytest.fixture
def hub() -> Iterator[Hub]:
    yield from opened(DIM)


@pytest.fixture
def wide_hub() -> Iterator[Hub]:
    yield from opened(1_000_000)


def opened(dim: int) -> Iterator[Hub]:
    hub = Hub(CODE, dim, np.dtype(np.float64), lambda worker: None, heartbeat=1.0, start_within=60.0, restarts=0)
    hub.listen("127.0.0.1", 0)
    yield hub
    hub.close()
    while CLIENTS:
        CLIENTS.pop().close()


def connect(hub: Hub) -> socket.socket:
    CLIENTS.append(socket.create_connection(hub._door.getsockname(), 5))
    return CLIENTS[-1]


def call(hub: Hub, token: bytes, worker: int = 0, process: int = 4711) -> socket.socket:
    """A connection that says who it is."""
    client = connect(hub)
    wire.send_all(client, wire.head(wire.HELLO, worker, process, len(token)), token)
    return client


def worker_of(hub: Hub, worker: int = 0) -> socket.socket:
    client = call(hub, hub.token, worker)
    wire.send_all(client, wire.head(wire.READY))
    until(hub, lambda: hub.roster.is_ready(worker))
    hub.events.clear()
    assert wire.read_record(client, lambda what: np.empty(what.size, np.uint8))[0].kind == wire.PING
    return client


def until(hub: Hub, condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        hub.collect(0.05)


def message(worker: int = 0, index: int = 0, round: int = 0, numbers: int = DIM) -> bytes:
    """A record with a whole frame."""
    payload = np.arange(float(numbers)).view(np.uint8)
    body = frame.head(worker, index, round, len(payload), frame.checksum(payload), [0.1, 0.2]) + payload.tobytes()
    return wire.head(wire.SENT, index, round, len(body)) + body


def part(at: int, size: int, round: int = 0, numbers: int = DIM) -> bytes:
    """A record with some bytes of the same payload."""
    payload = np.arange(float(numbers)).view(np.uint8)
    return wire.head(wire.PART, 0, round, size, at) + payload[at : at + size].tobytes()


def rest(at: int = 8 * DIM, worker: int = 0, index: int = 0, round: int = 0) -> bytes:
    """A record with a frame that lacks the beginning."""
    payload = np.arange(float(DIM)).view(np.uint8)
    body = frame.head(worker, index, round, len(payload), frame.checksum(payload), [0.1, 0.2]) + payload[at:].tobytes()
    return wire.head(wire.REST, index, round, len(body)) + body


def ended(client: socket.socket) -> bool:
    client.settimeout(600)
    try:
        return not client.recv(1)
    except ConnectionResetError:
        return True


def test_a_worker_comes_and_goes(hub: Hub) -> None:
    client = worker_of(hub)
    assert hub.seats[0].process == 4711
    client.close()
    until(hub, lambda: bool(hub.events))
    assert hub.events == [Lost(0, hub.events[0].time)]
    assert hub.roster.given_up(0) and hub.seats[0].link is None


def test_messages_in_pieces_and_in_one_piece(hub: Hub) -> None:
    hub.begin(0)
    client = worker_of(hub)
    for byte in message():
        client.sendall(bytes([byte]))
        hub.collect(0)
    client.sendall(message() + message(round=-1))
    until(hub, lambda: len(hub.events) == 3)
    first, again, late = (event for event in hub.events if isinstance(event, Message))
    assert first.payload.view(float).tolist() == again.payload.view(float).tolist() == list(range(DIM))
    assert not np.shares_memory(first.payload, again.payload), "a payload that the master reads was overwritten"
    assert not first.payload.flags.writeable
    assert late.round == -1 and len(late.payload) == 0


def test_parts_come_to_where_the_message_will_stand(hub: Hub) -> None:
    hub.begin(0)
    client = worker_of(hub)
    for round, ends in enumerate(((24, 64), (3,))):
        hub.begin(round)
        pieces = [part(begin, end - begin, round) for begin, end in pairwise((0, *ends))]
        for byte in b"".join(pieces) + rest(ends[-1], round=round):
            client.sendall(bytes([byte]))
            hub.collect(0)
        until(hub, lambda: bool(hub.events))
        (found,) = (event for event in hub.events if isinstance(event, Message))
        assert found.payload.view(float).tolist() == list(range(DIM)) and found.times == (0.1, 0.2)
        assert frame.checksum(found.payload) == found.checksum and not found.payload.flags.writeable
        assert np.shares_memory(found.payload, hub._parts._rooms[0])
        hub.events.clear()


def test_a_message_that_lacks_a_part_counts_as_damaged_and_one_that_comes_whole_does_not(hub: Hub) -> None:
    """A part of another round, one that was left out, and one that came twice; then parts of a message that is whole."""
    client, lacking = (
        worker_of(hub),
        [part(0, 24, round=7) + rest(24), part(24, 40) + rest(), part(0, 8) + part(0, 8) + rest(16)],
    )
    for data in lacking:
        hub.begin(0)
        client.sendall(data)
        until(hub, lambda: bool(hub.events))
        (found,) = (event for event in hub.events if isinstance(event, Message))
        assert len(found.payload) == 0 and found.round == 0
        hub.events.clear()
    client.sendall(message() + part(0, 64) + rest() + part(0, 8) + rest(8) + message())
    until(hub, lambda: len(hub.events) == 4)
    whole, parted, again, last = (event for event in hub.events if isinstance(event, Message))
    assert whole.payload.tobytes() == parted.payload.tobytes() == last.payload.tobytes() and len(again.payload) == 0


def test_a_stranger_is_sent_away(hub: Hub) -> None:
    for token, worker in ((b"x" * wire.TOKEN, 0), (b"", 0), (hub.token, 2)):
        stranger = call(hub, token, worker)
        until(hub, lambda: bool(hub._guests))
        until(hub, lambda: not hub._guests)
        assert ended(stranger)
    assert not hub.events and all(seat.link is None for seat in hub.seats)


def test_a_guest_who_says_nothing_is_sent_away(hub: Hub) -> None:
    silent = connect(hub)
    until(hub, lambda: bool(hub._guests))
    until(hub, lambda: (hub.look() and False) or not hub._guests)
    assert ended(silent)


@pytest.mark.parametrize(
    "data",
    [
        wire.head(wire.SENT, 0, 0, 1 << 40),
        wire.head(wire.FAILED, 0, 0, wire.REPORT + 1),
        wire.head(wire.HELLO, 0, 0, wire.TOKEN),
        wire.head(99),
        wire.head(wire.PART, 0, 0, parts.PIECE + 1),
        wire.head(wire.PART, 1, 0, 8) + bytes(8),
        wire.head(wire.PART, 99, 0, 8) + bytes(8),
        wire.head(wire.REST, 0, 0, 8) + bytes(8),
        rest(worker=1, index=1),
        rest(worker=1),
        message(numbers=DIM + 64),
        message(worker=1, index=1),
        message(worker=1),
        wire.head(wire.SENT, 0, 0, 8) + b"too small",
        b"\xff" * 4096,
    ],
    ids=[
        *("huge", "report", "hello", "unknown", "long part", "part of another", "part of none", "cut rest", "rest of another"),
        *("rest as another", "larger", "of another", "as another", "cut", "noise"),
    ],
)
def test_what_must_not_come_ends_the_connection(hub: Hub, data: bytes) -> None:
    hub.begin(0)
    client = worker_of(hub)
    client.sendall(data)
    until(hub, lambda: bool(hub.events))
    assert [type(event) for event in hub.events] == [Lost]
    assert ended(client)


def test_a_part_that_is_too_long_ends_the_connection_and_the_longest_does_not(wide_hub: Hub) -> None:
    hub, most = wide_hub, parts.PIECE
    hub.begin(0)
    client = worker_of(hub)
    client.sendall(part(0, most, numbers=1_000_000) + wire.head(wire.PART, 0, 0, most + 1, most))
    until(hub, lambda: bool(hub.events))
    assert [type(event) for event in hub.events] == [Lost] and hub._parts._upto == {0: most}


def test_a_process_number_is_believed_only_of_the_process_that_has_the_connection(hub: Hub) -> None:
    """It came over the wire: another process of this machine, all of them (-1), and the first one are never signalled."""
    for said in (-1, 0, 1, os.getppid(), os.getpid()):
        client = call(hub, hub.token, process=said)
        wire.send_all(client, wire.head(wire.READY))
        until(hub, lambda said=said: hub.roster.is_ready(0) and hub.seats[0].process == said)
        assert hub.pid(0) == (os.getpid() if said == os.getpid() else None)


def test_an_error_and_what_comes_behind_it_are_all_taken(hub: Hub) -> None:
    hub.begin(0)
    client = worker_of(hub)
    error = wire.head(wire.FAILED, 0, 0, 4) + b"oops"
    client.sendall(error + error + message() + wire.head(wire.FAILED, 0, 1, 4) + b"next")
    until(hub, lambda: len(hub.events) == 3)
    assert [type(event) for event in hub.events] == [Failed, Message, Failed]
    assert [event.round for event in hub.events] == [0, 0, 1]


def test_a_successor_takes_the_seat(hub: Hub) -> None:
    old = worker_of(hub)
    new = call(hub, hub.token)
    until(hub, lambda: bool(hub.events))
    assert [type(event) for event in hub.events] == [Lost] and ended(old)
    wire.send_all(new, wire.head(wire.READY))
    until(hub, lambda: hub.roster.is_ready(0))
    assert isinstance(hub.events[-1], Joined)
    hub.begin(0)
    hub.order(Order(0, 0, np.zeros(DIM)), [0])
    heads = [wire.read_record(new, lambda what: np.empty(what.size, np.uint8))[0].kind for _ in range(2)]
    assert heads == [wire.PING, wire.ORDER], "orders go to the successor"


def test_silence_is_a_loss_until_a_sign_of_life(hub: Hub) -> None:
    client = worker_of(hub)
    until(hub, lambda: (hub.look() and False) or bool(hub.events))
    assert [type(event) for event in hub.events] == [Lost] and hub.events[0].returns
    wire.send_all(client, wire.head(wire.ALIVE))
    until(hub, lambda: len(hub.events) == 2)
    assert isinstance(hub.events[1], Joined) and not hub.events[1].fresh


def test_who_lags_behind_gets_the_newest_order_only(wide_hub: Hub) -> None:
    hub, dim = wide_hub, 1_000_000
    client = worker_of(hub)
    for round in range(10):
        hub.begin(round)
        hub.order(Order(round, round, np.full(dim, float(round))), [0])
        hub.cancel(round, [0])
    seen: list[tuple[wire.Head, float]] = []
    reader = threading.Thread(target=read_until, args=(client, wire.CANCEL, 9, seen))
    reader.start()
    until(hub, lambda: not reader.is_alive())
    orders = [(what.round, last) for what, last in seen if what.kind == wire.PARAMS]
    assert [what.round for what, _ in seen if what.kind == wire.ORDER_AT] == [round for round, _ in orders]
    assert orders[-1] == (9, 9.0) and len(orders) < 10, orders
    assert orders == sorted(orders) and all(round == last for round, last in orders)


def read_until(client: socket.socket, kind: int, round: int, seen: list[tuple[wire.Head, float]]) -> None:
    """Records with the last number of their bodies."""
    while not seen or (seen[-1][0].kind, seen[-1][0].round) != (kind, round):
        what, body = wire.read_record(client, lambda what: np.empty(what.size, np.uint8))
        seen.append((what, float(body[-8:].view(float)[0]) if what.size else -1.0))


LONG = 20_000
"""float64 coordinates that stand in shared memory."""


class Machines:
    """Workers of the Ray engine in threads of this process, which say that they are on the machines that they are told."""

    def __init__(self, hub: Hub, monkeypatch: pytest.MonkeyPatch, machines: tuple[str, ...], problem: Any = Constant) -> None:
        self.hub, self.workers = hub, []  # type: Hub, list[Worker]
        hub.begin(0)
        for number, name in enumerate(machines):
            monkeypatch.setattr(ray_worker, "machine", lambda name=name: name)
            with ThreadPoolExecutor(1) as pool:
                post = Post(hub._door.getsockname(), hub.token, 1, LONG, "<f8", True)
                coming = pool.submit(Worker, number, post)
                until(hub, coming.done)
            self.workers.append(coming.result())
            self.workers[-1]._leave = lambda why: None  # type: ignore[method-assign, assignment, return-value]
            share = CODE.program(number), problem(2, dim=LONG), (slice(0, LONG),), np.dtype("f8")
            self.workers[-1].prepare(*share)
            until(hub, lambda number=number: hub.roster.is_ready(number))
        hub.events.clear()

    def round(self, number: int) -> list[Message]:
        """The messages of a round."""
        self.hub.begin(number)
        self.hub.order(Order(number, number, np.full(LONG, float(number))), range(len(self.workers)))
        until(self.hub, lambda: len(self.hub.events) == len(self.workers))
        messages = [event for event in self.hub.events if isinstance(event, Message)]
        self.hub.events.clear()
        assert sorted(message.payload.view(float)[-1] for message in messages) == [1.0, 2.0]
        return messages


@pytest.fixture
def long_hub() -> Iterator[Hub]:
    yield from opened(LONG)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Records of each kind that the master sends."""
    kinds: Counter[int] = Counter()
    send = wire.Link.send

    def counting(self: wire.Link, *parts: wire.Part, newest: bool = False) -> bool:
        kinds.update(wire.HEAD.unpack(part)[0] for part in parts if len(part) == wire.HEAD.size)
        return send(self, *parts, newest=newest)

    monkeypatch.setattr(wire.Link, "send", counting)
    return kinds


def test_on_one_host_only_notes_travel(long_hub: Hub, monkeypatch: pytest.MonkeyPatch, counted: Counter[int]) -> None:
    machines = Machines(long_hub, monkeypatch, (machine(), machine()))
    for number in range(3):
        for one in machines.round(number):
            assert one.checksum is None, "it stands in shared memory"
    assert counted[wire.ORDER_AT] == 6 and not counted[wire.PARAMS] and not counted[wire.ORDER]


def test_parameters_go_once_to_another_host(long_hub: Hub, monkeypatch: pytest.MonkeyPatch, counted: Counter[int]) -> None:
    machines = Machines(long_hub, monkeypatch, ("another", "another"))
    for number in range(3):
        machines.round(number)
    assert counted[wire.PARAMS] == 3 and counted[wire.ORDER_AT] == 6
    monkeypatch.setattr(machines.workers[1]._dock, "_find", lambda place: None)
    machines.round(3)
    assert counted[wire.PARAMS] == 5, "who does not find them gets its own"


def test_another_worker_carries_when_the_first_one_is_gone(long_hub: Hub) -> None:
    hub = long_hub
    hub.begin(0)
    first, second = worker_of(hub, 0), worker_of(hub, 1)
    hub.order(Order(0, 0, np.full(LONG, 5.0)), [0, 1])
    first.close()
    seen: list[tuple[wire.Head, float]] = []
    reader = threading.Thread(target=read_until, args=(second, wire.ORDER_AT, 0, seen))
    reader.start()
    until(hub, lambda: not reader.is_alive())
    assert [what.kind for what, _ in seen] == [wire.OFFER, wire.PARAMS, wire.ORDER_AT] and seen[1][1] == 5.0


def test_who_need_not_begin_is_not_told_to_when_parameters_come(long_hub: Hub, counted: Counter[int]) -> None:
    hub = long_hub
    hub.begin(0)
    first, _ = worker_of(hub, 0), worker_of(hub, 1)
    hub.order(Order(0, 0, np.full(LONG, 5.0)), [0, 1])
    hub.cancel(0, [1])
    wire.send_all(first, wire.head(wire.HAVE, 0, 0, PLACE.size), OWN)
    until(hub, lambda: hub.hosts._of[0].place is not None)
    assert counted[wire.ORDER_AT] == 1 and counted[wire.CANCEL] == 1


def test_workers_that_see_no_memory_get_all_over_the_wire(
    long_hub: Hub, monkeypatch: pytest.MonkeyPatch, counted: Counter[int]
) -> None:
    monkeypatch.setattr(dock, "found", lambda *_, **__: None)
    machines = Machines(long_hub, monkeypatch, (machine(), machine()))
    for number in range(2):
        assert all(one.checksum is not None for one in machines.round(number))
    assert counted[wire.PARAMS] == 4


def test_notes_of_messages_that_are_not_there_end_the_connection(long_hub: Hub) -> None:
    for record in (
        wire.head(wire.PLACED, 0, 0, words.DONE.size) + words.done(0, 0, 0),  # nothing stands there
        wire.head(wire.PLACED, 0, 0, words.DONE.size) + words.done(0, 1, 0),  # it is another worker's
        wire.head(wire.PLACED, 0, 0, words.DONE.size) + words.done(0, 99, 0),
        wire.head(wire.PLACED, 0, 0, 3) + b"cut",
        wire.head(wire.HAVE, 0, 0, 3) + b"cut",
    ):
        hub = long_hub
        hub.roster.__init__(CODE.n, restarts=9, heartbeat=60.0, start_within=60.0, now=time.monotonic())  # type: ignore[misc]
        hub.begin(0)
        client = worker_of(hub)
        client.sendall(record)
        until(hub, lambda hub=hub: any(isinstance(event, Lost) for event in hub.events))
        hub.events.clear()


class Parted:
    """Rounds of workers on other hosts that say how much of a message is known. seen: the parts that came."""

    def __init__(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dock.Dock, "take_offer", lambda *_: None)
        monkeypatch.setattr(dock, "LEAST", 1 << 10)
        monkeypatch.setattr(ray_worker, "Flow", lambda: parts.Flow(piece=3000))
        self.hub, self.seen = hub, []  # type: Hub, list[parts.Part]
        self.workers = Machines(hub, monkeypatch, ("another", "one more"), Growing).workers
        came = hub._parts.came
        monkeypatch.setattr(hub._parts, "came", lambda part: (self.seen.append(part), came(part)))

    def round(self, number: int, begin: bool = True, **order: Any) -> list[Message]:
        if begin:
            self.hub.begin(number)
        self.hub.order(Order(number, number, np.zeros(LONG), **order), range(2))
        until(self.hub, lambda: sum(isinstance(event, Message) for event in self.hub.events) == 2)
        found, self.hub.events = [event for event in self.hub.events if isinstance(event, Message)], []
        for one in found:
            whole = np.full(LONG, one.worker + 1.0 + number)
            assert one.checksum == frame.checksum(whole.view(np.uint8))
            assert not len(one.payload) or np.array_equal(one.payload.view(float), whole)
        return found


def test_what_workers_know_goes_ahead_of_their_messages(long_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """In odd rounds they take back what they have said."""
    rounds = Parted(long_hub, monkeypatch)
    for number in range(6):
        assert all(len(one.payload) for one in rounds.round(number))
    assert {part.round for part in rounds.seen} == set(range(6))
    again = [part for part in rounds.seen if part.round == 3 and part.message == 0 and part.at == 0]
    assert len(again) >= 1 and max(part.size for part in rounds.seen) <= parts.PIECE


def test_who_is_asked_again_or_fetched_from_or_delayed_sends_whole_messages(
    long_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Parted(long_hub, monkeypatch)
    rounds.round(0)
    rounds.seen.clear()
    assert all(len(one.payload) for one in rounds.round(0, begin=False))
    assert all(len(one.payload) for one in rounds.round(1, delays=np.zeros(2)))
    assert rounds.seen == []
    long_hub.begin(2)
    long_hub.order(Order(2, 2, np.zeros(LONG), pull=True), range(2))
    until(long_hub, lambda: len(long_hub.events) == 2)
    assert {type(event).__name__ for event in long_hub.events} == {"Announced"} and rounds.seen == []


def test_a_message_whose_parts_were_thrown_away_is_asked_for_again(long_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Parted(long_hub, monkeypatch)
    monkeypatch.setattr(long_hub._parts, "room", lambda worker, part: None)
    assert all(len(one.payload) == 0 for one in rounds.round(0)) and rounds.seen
    assert all(len(one.payload) for one in rounds.round(0, begin=False))


def test_nothing_of_a_round_that_is_over_goes_ahead(long_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Parted(long_hub, monkeypatch).workers[0]
    worker._newest = 5
    with worker._flowing:
        worker._flow.begin(5, may=True)
        worker._flow.know(0, 100)
        worker._cancelled = 5
    assert worker._next_part() is None and worker._flow.next() is None
