"""Frames: whatever is not a whole frame is refused, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstraggle import Invalid
from unstraggle.runtime import frame


def framed(payload, tasks=2, worker=3, index=7, number=9):
    times = [moment for task in range(tasks) for moment in (float(task), task + 0.5)]
    head = frame.head(worker, index, number, len(payload), frame.checksum(payload), times)
    assert len(head) == frame.head_size(tasks)
    return np.frombuffer(head + payload.tobytes() + 13 * b"\xff", np.uint8).copy()


@given(st.binary(max_size=200), st.integers(0, 5))
def test_round_trip(data, tasks):
    payload = np.frombuffer(data, np.uint8)
    message = frame.read(framed(payload, tasks), 1.5)
    assert (message.worker, message.index, message.round, message.time) == (3, 7, 9, 1.5)
    assert bytes(message.payload) == data
    assert message.checksum == frame.checksum(payload)
    assert message.times == tuple(moment for task in range(tasks) for moment in (task, task + 0.5))


def test_times_of_the_last_tasks_are_kept_where_there_are_too_many():
    many = frame.MOST_TASKS + 2
    head = frame.head(3, 7, 9, 0, 0, np.arange(2.0 * many).tolist())
    times = frame.read(np.frombuffer(head, np.uint8), 1.5).times
    assert len(head) == frame.head_size(many) and len(times) == 2 * frame.MOST_TASKS
    assert (times[0], times[-1]) == (4.0, 2 * many - 1)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_any_changed_bit_changes_the_checksum(data, more):
    payload = np.frombuffer(data, np.uint8).copy()
    before = frame.checksum(payload)
    payload[more.draw(st.integers(0, len(data) - 1))] ^= 1 << more.draw(st.integers(0, 7))
    assert frame.checksum(payload) != before


@given(st.integers(2, 20_000), st.integers(0, 2**32), st.data())
def test_a_payload_that_was_moved_changes_the_checksum(size, seed, more):
    """Rotated by any number of bytes, two stretches exchanged, or read backwards."""
    payload = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    length = more.draw(st.integers(1, size // 2))
    swapped = payload.copy()
    swapped[:length], swapped[-length:] = payload[-length:], payload[:length]
    for other in (np.roll(payload, more.draw(st.integers(1, size - 1))), swapped, payload[::-1].copy()):
        assert np.array_equal(other, payload) or frame.checksum(other) != frame.checksum(payload)


@pytest.mark.parametrize("size", [4, 100, 512, 1024, 5000, 600_000])
def test_moved_words_of_real_gradients_change_the_checksum(size):
    numbers = np.linspace(-1, 1, size)
    whole = frame.checksum(numbers.view(np.uint8))
    half = size // 2
    moved = {
        "rotated by a word": np.roll(numbers, 1),
        "rotated by a row": np.roll(numbers, 512),
        "halves exchanged": np.roll(numbers, half),
        "x and -x exchanged": np.concatenate([-numbers[:1], numbers[1:-1], -numbers[-1:]]),
        "rows exchanged": np.concatenate([numbers[512:1024], numbers[:512], numbers[1024:]]),
    }
    for what, other in moved.items():
        assert np.array_equal(other, numbers) or frame.checksum(other.view(np.uint8)) != whole, what


def test_what_is_not_a_message_in_a_slot():
    slot = framed(np.arange(100, dtype=np.uint8))
    place, room = slot[: frame.head_size(2)], slot[frame.head_size(2) :]
    message = frame.read_slot(place, room, 0.5)
    assert bytes(message.payload) == bytes(range(100)) and message.checksum is None and len(message.times) == 4
    with pytest.raises(Invalid, match="cut off"):
        frame.read_slot(place, room[:99], 0.0)
    for at in (0, 4):
        bad = place.copy()
        bad[at] ^= 1
        with pytest.raises(Invalid, match="starts with"):
            frame.read_slot(bad, room, 0.0)


def test_a_head_in_its_place_is_the_head_of_a_frame():
    for tasks in (0, 1, 3, frame.MOST_TASKS + 1):
        times, place = np.arange(2.0 * tasks).tolist(), bytearray(frame.head_size(tasks))
        frame.put_head(memoryview(place), 3, 7, 9, 11, 13, times, 2)
        assert bytes(place) == frame.head(3, 7, 9, 11, 13, times, 2)


def test_what_is_not_a_frame():
    good = framed(np.arange(100, dtype=np.uint8))
    with pytest.raises(Invalid, match="at least 48 bytes, but got 10"):
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
