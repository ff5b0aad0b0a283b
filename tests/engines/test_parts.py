"""Parts of messages that go ahead of the rest: both ends without a wire, and a wire that loses what it likes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from unstraggle import Invalid, codes
from unstraggle.engines import Message
from unstraggle.engines.parts import Flow, Part, Parts, passes, rest_of
from unstraggle.runtime import frame
from unstraggle.runtime.message import Bytes

SIZE, PIECE = 24, 5


def numbers(seed: int, size: int = SIZE) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


class Bench:
    """A worker with message 1 and its master. lose(): whether the wire loses the next part."""

    def __init__(self) -> None:
        self.flow, self.parts = Flow(PIECE), Parts([0, 3], [SIZE, SIZE])
        self.room = np.zeros(SIZE, np.uint8)

    def order(self, round: int, may: bool = True) -> None:
        self.parts.begin(round) if round != self.parts._round else None
        self.flow.begin(round, may)

    def know(self, payload: Bytes, upto: int) -> None:
        self.room[:upto] = payload[:upto]
        self.flow.know(1, upto)

    def send(self, lost: bool = False) -> Part | None:
        part = self.flow.next()
        if part is not None and not lost:
            self.parts.take(3, part, self.room[part.at : part.at + part.size])
        self.flow.sent(part)
        return part

    def deliver(self, payload: Bytes) -> Bytes:
        """What the master has when the message is whole: its payload, or nothing."""
        gone = self.flow.end(1)
        if not gone:
            return payload
        head = frame.head(3, 1, self.flow._round, SIZE, frame.checksum(payload), [])
        message, at = frame.read_rest(np.frombuffer(head + payload[gone:].tobytes(), np.uint8), 0.0)
        assert at == gone
        return self.parts.finish(message, at).payload


ACTIONS = st.one_of(
    st.tuples(st.just("know"), st.integers(0, SIZE)),
    st.tuples(st.just("change"), st.integers(0, SIZE)),
    st.tuples(st.sampled_from(["send", "lose", "again", "round"]), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=60), st.booleans())
def test_what_becomes_whole_is_what_the_worker_has_whatever_happens(actions: list[tuple[str, int]], may: bool) -> None:
    """Passes that begin anew, orders that come again, and parts that are lost: the whole message, or asked for again."""
    bench, round, seed, lost = Bench(), 0, 0, False
    payload = numbers(seed)
    bench.order(round, may)
    for action, number in actions:
        if action == "know":
            bench.know(payload, max(number, bench.flow._known.get(1, 0)))
        elif action == "change":  # numbers that were known are not, any more
            bench.flow.know(1, 0)
            payload = numbers(seed := seed + 1)
            bench.know(payload, number)
        elif action in ("send", "lose"):
            lost |= bench.send(action == "lose") is not None and action == "lose"
        elif action == "again":
            bench.order(round, may)
        else:
            round, lost = round + 1, False
            bench.order(round, may)
    found = bench.deliver(payload)
    if not lost:
        assert np.array_equal(found, payload)
        return
    assert len(found) == 0 or np.array_equal(found, payload)
    bench.order(round, may)
    bench.know(payload, SIZE)
    assert bench.send() is None, "who is asked again sends whole messages"
    assert np.array_equal(bench.deliver(payload), payload)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2), st.integers(0, 30), st.integers(0, 30))))
@example([(0, 1, 0, 0, 8)])
@example([(0, 1, 0, 20, 4)])
def test_a_message_that_is_whole_is_not_written_again_in_its_round(given_: list[tuple[int, ...]]) -> None:
    parts, payload = Parts([0, 1], [SIZE, SIZE]), numbers(1)
    parts.begin(1)
    parts.take(0, Part(1, 0, 0, 20), payload[:20])
    whole = parts.finish(Message(0, 0, 1, 0.0, payload[20:]), 20).payload
    assert np.array_equal(whole, payload) and not whole.flags.writeable
    for worker, round, message, at, size in given_:
        parts.take(worker, Part(round, message, at, size), np.full(size, 255, np.uint8))
        parts.finish(Message(worker, message, round, 0.0, np.full(size, 255, np.uint8)), at)
    assert np.array_equal(whole, payload)


@pytest.mark.parametrize(
    ("worker", "part"),
    [
        (1, Part(4, 0, 10, 5)),
        (0, Part(3, 0, 10, 5)),
        (0, Part(5, 0, 10, 5)),
        (0, Part(4, 1, 10, 5)),
        (0, Part(4, 2, 10, 5)),
        (0, Part(4, -1, 10, 5)),
        (0, Part(4, 0, 9, 5)),
        (0, Part(4, 0, 11, 5)),
        (0, Part(4, 0, 10, SIZE)),
        (0, Part(4, 0, 10, 0)),
    ],
    ids=["of another", "before", "after", "another's", "none", "negative", "earlier", "later", "beyond", "empty"],
)
def test_a_part_that_does_not_fit_is_thrown_away(worker: int, part: Part) -> None:
    parts, payload = Parts([0, 1], [SIZE, SIZE]), numbers(1)
    parts.begin(4)
    parts.take(0, Part(4, 0, 0, 10), payload[:10])
    assert parts.room(worker, part) is None
    parts.came(part)
    parts.take(0, Part(4, 0, 10, 4), payload[10:14])
    assert np.array_equal(parts.finish(Message(0, 0, 4, 0.0, payload[14:]), 14).payload, payload)


def test_a_message_that_lacks_something_has_no_payload() -> None:
    payload = numbers(1)
    for upto, at, rest in ((10, 11, 13), (10, 9, 15), (10, 10, 13), (0, 10, 14)):
        parts = Parts([0], [SIZE])
        parts.begin(0)
        if upto:
            parts.take(0, Part(0, 0, 0, upto), payload[:upto])
        assert len(parts.finish(Message(0, 0, 0, 0.0, payload[SIZE - rest :]), at).payload) == 0


def test_what_was_on_its_way_when_a_message_began_anew_does_not_count() -> None:
    for change in (lambda flow: flow.know(1, 0), lambda flow: flow.begin(1, True), lambda flow: flow.stop()):
        flow = Flow(PIECE)
        flow.begin(0, True)
        flow.know(1, 9)
        going = flow.next()
        change(flow)
        flow.sent(going)
        flow.know(1, 9)
        assert flow.end(1) == 0


def test_a_part_of_the_next_round_that_came_half_does_not_count() -> None:
    parts = Parts([0], [SIZE])
    parts.begin(0)
    assert parts.room(0, Part(0, 0, 0, 8)) is not None
    parts.begin(1)
    parts.came(Part(0, 0, 0, 8))
    assert len(parts.finish(Message(0, 0, 1, 0.0, numbers(1)[8:]), 8).payload) == 0


def test_only_the_last_pass_of_a_message_counts() -> None:
    program = codes.fractional_repetition(4, s=1).program(0)
    assert passes(program, joins=False) == {0: 2} and passes(program, joins=True) == {0: 1}


def test_the_rest_of_a_frame() -> None:
    head = frame.head(0, 1, 2, SIZE, 77, [0.5, 1.0])
    for cut in (head[:20], head[:-1], head + bytes(SIZE + 1), b"x" + head[1:]):
        with pytest.raises(Invalid):
            frame.read_rest(np.frombuffer(cut, np.uint8), 0.0)
    found, at = frame.read_rest(np.frombuffer(head, np.uint8), 0.25)
    assert (found.worker, found.index, found.round, found.time, found.checksum, found.times) == (0, 1, 2, 0.25, 77, (0.5, 1.0))
    assert len(found.payload) == 0 and at == SIZE


def test_pieces_are_bounded() -> None:
    assert [part.size for part in rest_of(0, 0, 3, 14, PIECE)] == [5, 5, 1]
    flow = Flow(PIECE)
    flow.begin(0, True)
    flow.know(0, SIZE)
    sizes = []
    while (part := flow.next()) is not None:
        sizes.append(part.size)
        flow.sent(part)
    assert sizes == [5, 5, 5, 5, 4] and flow.end(0) == SIZE
