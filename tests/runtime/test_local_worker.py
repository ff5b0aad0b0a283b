"""The worker process of the local engine, without a master."""

import os
import threading

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.engines.local_worker import LONG, NOTE, ORDER, Channels, Worker
from unstraggle.engines.shared import Area, Board, Fd, Letter
from unstraggle.runtime import frame
from unstraggle.runtime.payload import pack
from unstraggle.runtime.serve import Share

from ..problems import Constant

PAYLOAD = np.arange(64, dtype=np.uint8)
DIM = 8
HEAD = frame.head_size(1)


def worker_of(orders, payloads):
    """Worker 0 of a code with one worker and one message. Its notes go nowhere."""
    program = codes.uncoded(1).program(0)
    share = Share(program, Constant(1), (slice(0, DIM),), np.dtype("f8"), False)
    notes = os.open(os.devnull, os.O_WRONLY)
    slots = ((0, payloads.size, HEAD),)
    areas = Area(Board.size(1, 1)), Area(16 * DIM), payloads
    return share, Worker(share, Channels(Fd(-1), Fd(orders), Fd(notes), *areas, Letter(), slots, 1, 1, DIM, "<f8"))


def in_slot(area):
    memory = area.map()
    return frame.read_slot(memory[:HEAD], memory[HEAD:], 0.0)


def test_the_newest_order_counts():
    theirs, mine = os.pipe()
    _, worker = worker_of(theirs, Area(4096))
    for number in range(3):
        os.write(mine, ORDER.pack(number, 10 + number, 0.5, False, 0, 0, 0.0, 0))
    job = worker.next_job()
    assert (job.round, job.step, job.origin, job.delays) == (2, 12, 0.5, None)
    os.write(mine, ORDER.pack(4, 14, 0.5, False, 0, 0, 0.0, 0))
    assert worker.next_job().params is not job.params
    worker._letter.write(5, b"odd" * 9999)
    worker._letter.write(6, b"even")
    os.write(mine, ORDER.pack(5, 15, 0.5, False, 0, 3 * 9999, 0.0, 0))
    assert worker.next_job().context == b"odd" * 9999
    worker._newest[0] = 7  # the letter of round 5 may have been overwritten by that of round 7
    os.write(mine, ORDER.pack(5, 15, 0.5, False, 0, 4, 0.0, 0))
    threading.Timer(0.05, os.write, (mine, ORDER.pack(6, 16, 0.5, False, 0, 4, 0.0, 0))).start()
    assert worker.next_job().context == b"even"
    os.close(mine)
    assert worker.next_job() is None
    os.close(theirs)


def test_a_message_that_is_sent_again_leaves_what_the_master_may_be_reading():
    """As happens when a worker is asked again in a round, and computes something else: only its note comes twice."""
    area = Area(4096)
    share, worker = worker_of(-1, area)
    inbox, worker._notes = os.pipe()
    message, again = share.program.messages[0], PAYLOAD[::-1].copy()
    room, found = area.map(), []
    for round, payload in ((3, PAYLOAD), (3, again), (4, again)):
        worker._round = round
        worker.send(message, payload, 0, [0.1, 0.2])
        found.append((NOTE.unpack(os.read(inbox, 4096))[2], bytes(frame.read_slot(room[:HEAD], room[HEAD:], 0.0).payload)))
    assert found == [(3, bytes(PAYLOAD)), (3, bytes(PAYLOAD)), (4, bytes(again))]
    os.close(inbox)


def test_a_successor_leaves_it_too():
    """It shares the board with the process that died. One that died in the middle of a message has left no whole one."""
    area = Area(4096)
    share, worker = worker_of(-1, area)
    _, successor = worker_of(-1, area)
    successor._whole = worker._whole
    message, again = share.program.messages[0], PAYLOAD[::-1].copy()
    worker._round = successor._round = 3
    worker.send(message, PAYLOAD, 0, [0.1, 0.2])
    successor.send(message, again, 0, [0.1, 0.2])
    assert bytes(in_slot(area).payload) == bytes(PAYLOAD)
    worker._whole[0] = -1
    successor.send(message, again, 0, [0.1, 0.2])
    assert bytes(in_slot(area).payload) == bytes(again)


def long_worker(dim=LONG // 8):
    program, area = codes.uncoded(1).program(0), Area(HEAD + 8 * dim)
    share = Share(program, Constant(1), (slice(0, dim),), np.dtype("f8"), False)
    inbox, notes = os.pipe()
    areas = Area(Board.size(1, 1)), Area(16 * dim), area
    slots = ((0, area.size, HEAD),)
    return share, Worker(share, Channels(Fd(-1), Fd(-1), Fd(notes), *areas, Letter(), slots, 1, 1, dim, "<f8")), area, inbox


def test_a_long_payload_is_added_up_where_the_master_reads_it():
    share, worker, area, inbox = long_worker()
    worker._round = 3
    total = worker.begin(0)
    total += np.arange(len(total))
    payload, _ = pack(share.program.messages[0], total, 0, np.dtype("f8"), checked=False)
    assert np.shares_memory(payload, total)
    worker.send(share.program.messages[0], payload, 0, [0.1, 0.2])
    message = in_slot(area)
    assert (message.round, message.times) == (3, (0.1, 0.2))
    assert np.array_equal(message.payload.view("f8"), np.arange(len(total)))
    assert worker.begin(0) is None  # the master may be reading it
    worker._round = 4
    assert not worker.begin(0).any()
    os.close(inbox)


@pytest.mark.parametrize("able", [True, False])
def test_a_problem_may_write_over_what_stands_there(able):
    _, worker, _, inbox = long_worker()
    worker._round, asked = 3, []
    worker.begin(0)[:] = 7
    worker._overwrite = lambda total: asked.append(total) or able
    found = worker.begin(0)
    assert asked[0] is found and bool(found.any()) is able
    os.close(inbox)


def test_short_payloads_and_those_of_other_sizes_have_no_such_place():
    assert long_worker(LONG // 8 - 1)[1].begin(0) is None
    _, worker, _, _ = long_worker()
    worker._dim += 1  # as with a codec
    assert worker.begin(0) is None


def test_who_is_two_rounds_late_does_not_report_what_overwritten_parameters_did():
    _, worker, _, inbox = long_worker()
    os.set_blocking(inbox, False)
    worker._round, worker._newest[0] = 3, 5
    worker.report("the loss is nan")
    with pytest.raises(BlockingIOError):
        os.read(inbox, 4096)
    worker._newest[0] = 4
    worker.report("the loss is nan")
    assert NOTE.unpack(os.read(inbox, 4096))[2] == 3
    os.close(inbox)


def test_short_payloads_are_the_same_bytes():
    """Whatever the array is like: short ones take a way of their own."""
    message, dtype = codes.uncoded(1).program(0).messages[0], np.dtype("f8")
    wide = np.arange(40.0).reshape(20, 2)
    for numbers in (wide[:, 1], wide[:, 1].astype("f4"), wide[:, 1].astype(">f8"), np.arange(2000.0)[::2]):
        short, none = pack(message, numbers, 0, dtype, checked=False)
        payload, checksum = pack(message, numbers, 0, dtype)
        assert bytes(short) == bytes(payload) == np.array(numbers, "<f8").tobytes()
        assert (none, checksum) == (0, frame.checksum(payload))
