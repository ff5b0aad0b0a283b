"""Codecs in rounds: every payload is compared with what the code says, checked once, and added by the codec of its message."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from unstraggle import Count, Master, WorkerFailed, codes
from unstraggle.engines import Local, Message, Virtual
from unstraggle.latency import ShiftedExponential
from unstraggle.problems import LeastSquares
from unstraggle.quantizers import QSGD, ErrorFeedback, Identity, Sign, decode, wire

DIM = 1 << 15
"""Long enough for compiled sums, which do not look at the length of what they add."""
SENT = QSGD(8)


@dataclass(frozen=True)
class Noise:
    """Partial gradients that are random, but the same at every step and for all parameters."""

    k: int
    dim: int = DIM
    type: str = "f4"

    @property
    def dtype(self):
        return np.dtype(self.type)

    def grad(self, params, part, where=slice(None), step=0):
        return np.random.default_rng(part).standard_normal(self.dim).astype(self.dtype)[where]


class Tampering:
    """An engine that changes messages on their way. change(message) gives another payload, or None to let it pass."""

    def __init__(self, engine, change):
        self._engine, self._change = engine, change

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def next(self, until):
        return [self._changed(each) if isinstance(each, Message) else each for each in self._engine.next(until)]

    def _changed(self, message):
        payload = self._change(message)
        return message if payload is None else replace(message, payload=payload)


def virtual(problem):
    return Virtual(problem, ShiftedExponential(rate=1.0, shift=0.1), rng=0)


def repetition(bits=8, bucket=None):
    return codes.quantize(codes.fractional_repetition(2, s=1), bits=bits, bucket=bucket)


def swapped(payload):
    """The first two blocks of 512 coordinates change places."""
    other, block, start = payload.copy(), 512, SENT.format.start(DIM)
    other[start : start + 2 * block] = np.roll(payload[start : start + 2 * block], block)
    return other


VECTOR = np.random.default_rng(9).standard_normal(8 * DIM).astype(np.float32)
HOSTILE = {
    "other bits": lambda payload: QSGD(16).encode(VECTOR[: DIM // 2], 0),
    "fewer bits": lambda payload: QSGD(2).encode(VECTOR[: 4 * DIM], 0),
    "no rounding": lambda payload: Identity().encode(VECTOR[: DIM // 4], 0),
    "signs": lambda payload: Sign().encode(VECTOR, 0),
    "buckets": lambda payload: QSGD(8, bucket=DIM).encode(VECTOR[:DIM], 0),
    "shorter": lambda payload: QSGD(8).encode(VECTOR[: DIM - 5], 0),
    "cut off": lambda payload: payload[:-64],
    "empty": lambda payload: payload[:0],
    "longer": lambda payload: np.concatenate([payload, payload[:64]]),
    "rotated": lambda payload: np.roll(payload, 64),
    "rotated words": lambda payload: np.concatenate([payload[:64], np.roll(payload[64:], 64)]),
    "swapped blocks": swapped,
    "zeros": np.zeros_like,
    "noise": lambda payload: np.random.default_rng(0).integers(0, 256, len(payload), dtype=np.uint8),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_payloads_are_counted_as_damaged_and_never_added(kind):
    code, problem = repetition(), Noise(2)
    params = np.zeros(DIM, np.float32)
    tampering = Tampering(virtual(problem), lambda m: HOSTILE[kind](m.payload) if m.worker == 0 else None)
    with Master(code, tampering) as master:
        estimate = master.gradient(params, delays=np.array([0.1, 0.2]))
    assert estimate.damaged == 1 and estimate.got.tolist() == [False, True]
    with Master(code, virtual(problem)) as master:
        expected = master.gradient(params, delays=np.array([0.2, 0.1]))
    assert expected.got.tolist() == [False, True] and np.array_equal(estimate.gradient, expected.gradient)


def test_payloads_that_have_the_right_size_are_among_the_hostile_ones():
    good = SENT.encode(VECTOR[:DIM], 0)
    alike = [kind for kind, change in HOSTILE.items() if len(change(good)) == len(good)]
    assert {"other bits", "fewer bits", "no rounding", "signs", "buckets", "rotated", "rotated words"} <= set(alike)


def test_every_payload_is_checked_once(monkeypatch):
    seen, read = [], wire.read_header
    monkeypatch.setattr(wire, "read_header", lambda head, size: seen.append(size) or read(head, size))
    with Master(codes.quantize(codes.uncoded(8), bits=8), virtual(Noise(8))) as master:
        assert master.gradient(np.zeros(DIM, np.float32)).exact
    assert len(seen) == 8


def test_payloads_of_one_codec_are_added_in_one_pass(monkeypatch):
    passes, accumulate = [], QSGD.accumulate
    monkeypatch.setattr(QSGD, "accumulate", lambda *of, **how: passes.append(len(of[2])) or accumulate(*of, **how))
    code = codes.quantize(codes.uncoded(6), codec=[QSGD(8), QSGD(4), QSGD(8), QSGD(4), QSGD(8), QSGD(8)])
    with Master(code, virtual(Noise(6))) as master:
        master.gradient(np.zeros(DIM, np.float32))
    assert passes == [4, 2], "all neighbours in one go: four of one codec, and two of the other"


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("name", ["blocks", "stack", "mixed", "repetition"])
def test_codecs_of_every_kind_add_up_to_what_their_vectors_do(kind, name):
    few = codes.quantize(codes.uncoded(3), codec=[QSGD(8), QSGD(4, 512), Sign(512)])
    code = {
        "blocks": codes.blocks([1, 3], few, codes.uncoded(3)),
        "stack": codes.stack(few, codes.quantize(codes.uncoded(3), codec=Identity())),
        "mixed": codes.quantize(codes.uncoded(4), codec=[QSGD(8), codes.uncoded(1).messages.codec[0], Sign(), QSGD(8)]),
        "repetition": codes.quantize(codes.fractional_repetition(6, s=2), bits=6, bucket=512),
    }[name]
    problem, sent = Noise(code.k, type=kind), {}
    engine = Tampering(virtual(problem), lambda m: sent.update({m.index: m.payload.copy()}))
    with Master(code, engine) as master:
        estimate = master.gradient(np.zeros(DIM, kind))
    weights, expected = code.decoder.weights(estimate.got)[0], np.zeros(DIM)
    starts = np.concatenate([[0], np.cumsum(np.rint(np.array(code.blocks) * DIM).astype(int))])
    for m in np.flatnonzero(estimate.got).tolist():
        vector = sent[m].view(kind) if code.messages.plain[m] else decode(sent[m])
        expected[starts[code.messages.block[m]] :][: len(vector)] += weights[m] * vector
    np.testing.assert_allclose(estimate.gradient, expected, atol=1e-5 * np.abs(expected).max())


def test_equal_arrivals_give_equal_bits_in_whatever_order():
    code = codes.quantize(codes.fractional_repetition(6, s=2), codec=[QSGD(8), Sign(), QSGD(8), QSGD(8), QSGD(4), QSGD(8)])
    with Master(code, virtual(Noise(6)), Count(6)) as master:
        orders = [1 + np.roll(range(6), turn) for turn in range(6)]
        found = {master.gradient(np.zeros(DIM, np.float32), 0, delays=order).gradient.tobytes() for order in orders}
    assert len(found) == 1


# The numbers of a run


def test_a_resumed_run_rounds_as_the_one_that_went_on():
    code, params = codes.quantize(codes.uncoded(3), bits=3), np.zeros(64, np.float32)
    with Master(code, virtual(Noise(3, 64))) as master:
        whole = [master.gradient(params, step).gradient for step in range(6)]
    with Master(code, virtual(Noise(3, 64))) as master:
        resumed = [master.gradient(params, step).gradient for step in range(3, 6)]
    assert np.array_equal(whole[3:], resumed) and not np.array_equal(whole[2], whole[3])


@pytest.mark.parametrize("engine", [Local, virtual], ids=["Local", "Virtual"])
def test_rounding_depends_on_the_step_alone(engine):
    """Whatever the rounds before were, and wherever the workers run."""
    code, params = codes.quantize(codes.uncoded(2), bits=3), np.zeros(64, np.float32)
    with Master(code, engine(Noise(2, 64))) as master:
        found = [master.gradient(params, step).gradient for step in (0, 7, 3, 7)]
    expected = sum(sent_at(7, m) for m in range(2))
    assert np.array_equal(found[1], found[3]) and np.allclose(found[1], expected, atol=1e-6)


def sent_at(step, m):
    """What worker m sends at a step."""
    return QSGD(3).decode(QSGD(3).encode(Noise(2, 64).grad(None, m), (step << 32) | m))


# Memory


class Twins:
    """What two workers with error feedback would send, computed here."""

    def __init__(self, codec):
        self.codecs = [ErrorFeedback(codec), ErrorFeedback(codec)]

    def send(self, m, step):
        codec = self.codecs[m]
        return codec.decode(codec.encode(Noise(2, 64).grad(None, m), (step << 32) | m))


@pytest.mark.parametrize("engine", [Local, virtual], ids=["Local", "Virtual"])
def test_error_feedback_works_in_rounds_and_a_skipped_round_leaves_the_memory_alone(engine):
    code = codes.quantize(codes.uncoded(2), codec=ErrorFeedback(QSGD(4)))
    twins = Twins(QSGD(4))
    with Master(code, engine(Noise(2, 64)), Count(2), on_shortfall="approximate") as master:
        for step in range(12):
            master.stop = Count(1 if step == 5 else 2)
            late = np.array([0.0, 60.0 if step == 5 else 0.0])
            estimate = master.gradient(np.zeros(64, np.float32), step, delays=late)
            heard = [0] if step == 5 else [0, 1]
            sent = sum(twins.send(m, step) for m in heard)
            assert np.flatnonzero(estimate.got).tolist() == heard
            np.testing.assert_allclose(estimate.gradient, sent, atol=1e-5)


@pytest.mark.parametrize("engine", [Local, virtual], ids=["Local", "Virtual"])
def test_a_worker_that_is_asked_again_in_a_round_sends_the_same_bytes_and_remembers_once(engine):
    code, seen = codes.quantize(codes.uncoded(2), codec=ErrorFeedback(QSGD(4))), {}

    def damage_the_first(message):
        copies = seen.setdefault((message.round, message.index), [])
        copies.append(message.payload.tobytes())
        return np.roll(message.payload, 1) if len(copies) == 1 else None

    twins = Twins(QSGD(4))
    with Master(code, Tampering(engine(Noise(2, 64)), damage_the_first)) as master:
        for step in range(4):
            estimate = master.gradient(np.zeros(64, np.float32), step)
            assert estimate.damaged >= 2
            np.testing.assert_allclose(estimate.gradient, sum(twins.send(m, step) for m in range(2)), atol=1e-5)
    assert all(len(copies) >= 2 and len(set(copies)) == 1 for copies in seen.values())


def test_error_feedback_trains_live_where_rounding_alone_stalls():
    """At the solution the gradients of the workers cancel and do not vanish, so that rounding them at random never ends."""
    rng = np.random.default_rng(0)
    features, labels = rng.standard_normal((64, 16)), rng.standard_normal(64)
    problem, best = LeastSquares.split(features, labels, 2), np.linalg.lstsq(features, labels, rcond=None)[0]

    def distance(codec):
        params, code, seen = np.zeros(16), codes.quantize(codes.uncoded(2), codec=codec), []
        with Master(code, Local(problem)) as master:
            for step in range(400):
                params = params - 0.003 * master.gradient(params, step).gradient
                seen.append(params)
        return np.linalg.norm(np.mean(seen[200:], axis=0) - best)

    assert distance(ErrorFeedback(QSGD(4))) < 0.3 * distance(QSGD(4))


# Codecs that break their word


@dataclass(frozen=True)
class Overlong(QSGD):
    def size(self, length):
        return super().size(length) - 4


def test_a_codec_whose_payload_is_longer_than_promised_is_stopped_at_the_worker():
    code = codes.quantize(codes.uncoded(2), codec=Overlong(4))
    words = "promises 124 bytes for 64 coordinates, but its payload has 128"
    with Master(code, virtual(Noise(2, 64))) as master, pytest.raises(WorkerFailed, match=words):
        master.gradient(np.zeros(64, np.float32))
