"""Frames: whatever is not a whole frame is refused, and nothing else."""

import time
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstraggle import Invalid
from unstraggle.engines import frame
from unstraggle.engines.shared import Area


def framed(payload, tasks=2, worker=3, index=7, number=9):
    room = np.full(frame.head_size(tasks) + len(payload) + 13, 255, np.uint8)
    times = [(float(task), task + 0.5) for task in range(tasks)]
    start = frame.write_head(room, worker, index, number, len(payload), frame.checksum(payload), times)
    room[start : start + len(payload)] = payload
    return room


@given(st.binary(max_size=200), st.integers(0, 5))
def test_round_trip(data, tasks):
    payload = np.frombuffer(data, np.uint8)
    message = frame.read(framed(payload, tasks), 1.5)
    assert (message.worker, message.index, message.round, message.time) == (3, 7, 9, 1.5)
    assert bytes(message.payload) == data
    assert message.checksum == frame.checksum(payload)
    assert message.times[:, 0].tolist() == list(range(tasks))
    assert message.times[:, 1].tolist() == [task + 0.5 for task in range(tasks)]


@given(st.binary(min_size=1, max_size=100), st.data())
def test_any_changed_bit_changes_the_checksum(data, more):
    payload = np.frombuffer(data, np.uint8).copy()
    before = frame.checksum(payload)
    payload[more.draw(st.integers(0, len(data) - 1))] ^= 1 << more.draw(st.integers(0, 7))
    assert frame.checksum(payload) != before


def test_what_is_not_a_frame():
    good = framed(np.arange(100, dtype=np.uint8))
    with pytest.raises(Invalid, match="at least 40 bytes, but got 10"):
        frame.read(good[:10], 0.0)
    with pytest.raises(Invalid, match="cut off"):
        frame.read(good[:120], 0.0)
    for place in (0, 4):
        bad = good.copy()
        bad[place] ^= 1
        with pytest.raises(Invalid, match="starts with"):
            frame.read(bad, 0.0)
    huge = good.copy()
    huge[24:32] = 255
    with pytest.raises(Invalid, match="cut off"):
        frame.read(huge, 0.0)


def _write_again_and_again(area):
    room = area.map()
    while True:
        frame.write_head(room, 1, 2, 3, 64, 0, [(0.1, 0.2)])


def test_a_frame_can_be_read_while_it_is_written_again():
    """As happens when a worker is asked again in the round in which its first answer is read."""
    area = Area(4096)
    room = area.map()
    frame.write_head(room, 1, 2, 3, 64, 0, [(0.1, 0.2)])
    writer = get_context("spawn").Process(target=_write_again_and_again, args=(area,), daemon=True)
    writer.start()
    try:
        room[8:12] = 0
        while not room[8]:
            time.sleep(0.01)
        found = {frame.read(room, 0.0, checked=False).index for _ in range(200_000)}
    finally:
        writer.kill()
        writer.join()
        writer.close()
        area.close()
    assert found == {2}
