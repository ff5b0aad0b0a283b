"""Memory that processes of one host share: who finds it, who carries parameters to other hosts, what a worker puts there."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.engines.commons import HEAD, OWN, PLACE, Commons, found, offset_of
from unstraggle.engines.depot import Depot
from unstraggle.engines.dock import Dock
from unstraggle.engines.hosts import FIRST, Carry, Hosts, Point
from unstraggle.errors import Invalid
from unstraggle.runtime.instructions import Tell
from unstraggle.runtime.message import Order

DIM = 10_000
KIND = np.dtype("f8")
CODE = codes.uncoded_mmc(2, load=2)

needs_memory = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has memory without a name")

STRANGER = """
import sys
from unstraggle.engines.commons import found
memory = found(bytes.fromhex(sys.argv[1]), 100, read_only=sys.argv[2] == "read")
print(None if memory is None else memory[:3].tolist())
if memory is not None and sys.argv[2] == "write":
    memory[:3] = 7
"""


def seen(place: bytes, how: str) -> str:
    """What a process of its own finds."""
    done = subprocess.run([sys.executable, "-c", STRANGER, place.hex(), how], capture_output=True, text=True)
    return done.stdout.strip() + done.stderr


@needs_memory
def test_another_process_finds_it_reads_it_and_writes_it() -> None:
    commons = Commons(100)
    commons.memory[:3] = 1, 2, 3
    assert seen(commons.place(), "write") == "[1, 2, 3]"
    assert commons.memory[:3].tolist() == [7, 7, 7]


@needs_memory
def test_what_is_read_only_cannot_be_written() -> None:
    commons = Commons(100, read_only=True)
    assert found(commons.place(), 100) is None, "somebody could write where many read"
    memory = found(commons.place(), 100, read_only=True)
    assert memory is not None and not memory.flags.writeable
    commons.memory[5] = 9
    assert memory[5] == 9


@needs_memory
def test_nothing_else_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place comes over a wire: of another host, of one that is gone, or of one who wants the reader to open something."""
    commons = Commons(100)
    process, file, mark, size, at = PLACE.unpack(commons.place())
    reader, writer = os.pipe()
    plain = os.memfd_create("unstraggle")
    os.ftruncate(plain, HEAD + 100)
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opened.append(path) or real(path, flags))
    for wrong in (
        (process, file, bytes(16), size, at),
        (process, file, mark, size + 1, at),
        (process, 10**6, mark, size, at),
        (10**9, file, mark, size, at),
        (-1, file, mark, size, at),
        (process, reader, mark, size, at),
        (process, plain, bytes(16), size, at),  # it could shrink under the reader
    ):
        assert found(PLACE.pack(*wrong), 100) is None, wrong
    assert not any(path.endswith(f"/{reader}") for path in opened), "what is no memory is not even opened"
    assert found(commons.place(), 99) is None and found(OWN, 100) is None
    memory = found(commons.place(), 100)
    commons.hide()
    assert memory is not None and found(PLACE.pack(process, file, mark, size, at), 100) is None
    for fd in (reader, writer, plain):
        os.close(fd)


# Who carries


def three_hosts() -> Hosts:
    hosts = Hosts("home")
    for worker, machine in enumerate(("home", "b", "b", "b", "c")):
        hosts.settle(worker, machine)
    return hosts


def test_parameters_go_once_to_each_host() -> None:
    hosts = three_hosts()
    for round in range(3):
        now = float(round)
        steps = hosts.order(round, range(5), now)
        assert steps == [Point(0, None), Carry(1), Carry(4)]
        assert hosts.have(4, round, b"c", now) == []
        assert hosts.have(1, round, b"b", now) == [Point(2, b"b"), Point(3, b"b")]
        assert hosts.have(1, round, b"b", now) == [] and hosts.have(2, round, b"x", now) == []
        assert hosts.order(round, [3], now) == [Point(3, b"b")], "asked again"
        assert hosts.late(now + 100) == []


def test_another_one_carries_where_the_carrier_dies_or_is_late() -> None:
    hosts = three_hosts()
    hosts.order(0, range(5), 0.0)
    assert hosts.leave(1, 0.1) == [Carry(2)]
    assert hosts.late(0.1 + FIRST - 1) == [] and hosts.late(0.2 + FIRST) == [Carry(3)]
    assert hosts.have(2, 0, b"2", 20.0) == [] and hosts.have(3, 0, b"3", 20.0) == []
    hosts.settle(1, "b")
    assert hosts.order(0, [1], 21.0) == [Point(1, b"2")]
    assert hosts.leave(2, 22.0) == [] and hosts.order(0, [1], 22.0) == [Carry(1)], "its memory went with it"
    assert hosts.have(1, 7, b"1", 23.0) == [], "of another round"


def test_a_carrier_that_has_not_taken_the_last_ones_is_the_last_to_be_asked() -> None:
    hosts = three_hosts()
    hosts.order(0, range(5), 0.0)
    assert Carry(2) in hosts.order(1, range(5), 1.0)
    assert hosts.have(1, 0, b"old", 1.1) == [], "of a round that is over"
    hosts.have(2, 1, b"b", 1.5)
    assert Carry(2) in hosts.order(2, range(5), 2.0)
    assert hosts.order(3, [1], 3.0) == [Carry(1)], "there is no other"
    assert hosts.order(3, [1], 3.1) == [Carry(1)], "asked again: what waits is replaced"
    hosts.order(3, [2], 3.2)
    assert hosts.have(1, 2, b"old", 3.3) == [] and hosts.have(1, 3, b"new", 3.4) == [Point(2, b"new")]


def test_who_does_not_find_them_has_a_host_of_its_own() -> None:
    hosts = three_hosts()
    hosts.order(0, range(5), 0.0)
    assert hosts.lacks(0, 0, 0.1) == [Carry(0)] and hosts.lacks(0, 0, 0.2) == [], "nothing else would help"
    hosts.have(1, 0, b"b", 0.3)
    assert hosts.lacks(3, 0, 0.4) == [Carry(3)] and hosts.lacks(2, 5, 0.4) == []
    assert hosts.order(1, range(5), 1.0) == [Carry(0), Carry(1), Carry(3), Carry(4)]


def test_who_was_told_that_the_round_is_over_is_not_told_to_begin_it() -> None:
    hosts = three_hosts()
    hosts.order(0, range(5), 0.0)
    hosts.cancel([2])
    assert hosts.have(1, 0, b"b", 0.5) == [Point(3, b"b")]
    hosts.order(1, [1, 2], 1.0)
    hosts.order(2, [4], 2.0)
    assert hosts.late(100.0) == [] and hosts.leave(1, 100.0) == [], "nobody waits for a round that is over"


# Depot and dock


def order(round: int, params: np.ndarray) -> Order:
    return Order(round, round, params)


@needs_memory
def test_parameters_of_two_rounds_stand_side_by_side() -> None:
    depot, dock = Depot(CODE, DIM, KIND), Dock(0, DIM, KIND)
    places = [depot.write(order(round, np.full(DIM, 5.0 + round))) for round in (0, 1)]
    first, second = (dock.params(round, places[round]) for round in (0, 1))
    assert first is not None and second is not None and not first.flags.writeable
    assert set(first) == {5.0} and set(second) == {6.0}
    assert dock.params(2, places[0]) is None, "of another round"
    side = depot.lend(2)
    assert dock.params(0, places[0]) is None, "it is being overwritten"
    side[:] = 2.0
    place = depot.write(order(2, side))
    found = dock.params(2, place)
    assert place == places[0] and found is not None and found[-1] == 2.0
    depot.close()
    assert Depot(CODE, 8, KIND).lend(0) is None, "short ones go with orders"


@needs_memory
def test_a_worker_carries_parameters_for_its_neighbours() -> None:
    """Received straight into the memory from which they read; the last ones stand while the next come."""
    depot, carrier, neighbour = Depot(CODE, DIM, KIND), Dock(0, DIM, KIND), Dock(1, DIM, KIND)
    seen = []
    for round in range(3):
        depot.write(order(round, np.full(DIM, float(round))))
        room = carrier.room()
        assert carrier.params(round, OWN) is None, "not here yet"
        np.copyto(room, depot.parcel(round))
        number, place = carrier.came(room)
        assert number == round and offset_of(place) % 64 == 0
        own, there = carrier.params(round, OWN), neighbour.params(round, place)
        assert own is not None and there is not None and set(there) == {float(round)}
        seen.append(there)
    assert set(seen[1]) == {1.0} and set(seen[2]) == {2.0}
    parcel = depot.parcel(2)
    depot.write(order(4, np.full(DIM, 4.0)))
    assert set(parcel[64:].view(KIND)) == {2.0}, "it was overwritten on its way"
    assert len(neighbour._known) == 1, "memory is looked for once"


@needs_memory
def test_messages_stand_in_slots() -> None:
    depot, dock = Depot(CODE, DIM, KIND), Dock(1, DIM, KIND)
    with pytest.raises(Invalid, match="no place for message 2"):
        depot.message(1, 2, 0, 0, 0.0)
    dock.take_offer(depot.offer(1))
    depot.hide(1)
    assert dock.shares
    first, second = CODE.program(1).messages
    with pytest.raises(Invalid, match="A frame starts"):
        depot.message(1, first.index, 0, 0, 0.0)
    total = dock.begin(0, first.index, KIND)
    total += 3.0
    dock.put(0, first, total.view(np.uint8), 0, [0.1, 0.2])
    dock.put(0, second, np.full(DIM, 4.0).view(np.uint8), 0, [0.2, 0.3])
    message = depot.message(1, first.index, 0, 5, 1.0)
    assert set(message.payload.view(KIND)) == {3.0} and message.times == (0.1, 0.2) and message.checksum is None
    assert message.ticket == 5 and not message.payload.flags.writeable
    dock.put(0, first, np.full(DIM, 9.0).view(np.uint8), 0, [])
    assert dock.begin(0, first.index, KIND) is None
    assert set(message.payload.view(KIND)) == {3.0}, "the master may be reading it"
    dock.put(0, first, np.full(DIM, 9.0).view(np.uint8), 0, [], again=True)
    assert set(message.payload.view(KIND)) == {9.0}
    with pytest.raises(Invalid, match="should"):
        depot.message(1, first.index, 1, 0, 0.0)
    assert dock.require(Tell(1, 0, ticket=1, message=second.index), current=0)
    assert not dock.require(Tell(1, 0, ticket=1, message=second.index), current=1)
    with pytest.raises(Invalid, match="but has none"):
        dock.require(Tell(1, 1, ticket=1, message=second.index), current=1)


@needs_memory
def test_a_successor_gets_memory_of_its_own() -> None:
    depot, old, new = Depot(CODE, DIM, KIND), Dock(0, DIM, KIND), Dock(0, DIM, KIND)
    message = CODE.program(0).messages[0]
    old.take_offer(depot.offer(0))
    new.take_offer(depot.offer(0))
    new.put(0, message, np.full(DIM, 1.0).view(np.uint8), 0, [])
    old.put(0, message, np.full(DIM, 2.0).view(np.uint8), 0, [])
    assert set(depot.message(0, message.index, 0, 0, 0.0).payload.view(KIND)) == {1.0}


def test_who_does_not_share_the_host_has_no_slots() -> None:
    depot, dock = Depot(CODE, DIM, KIND), Dock(0, DIM, KIND)
    offer = bytearray(depot.offer(0))
    offer[20] ^= 1
    dock.take_offer(bytes(offer))
    assert not dock.shares
    assert Depot(CODE, 8, KIND).offer(0) == b""
