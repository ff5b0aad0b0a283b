"""Quantisers on the CPU: the bits of the reference, unbiased, of the stated variance; broken payloads are refused."""

from itertools import product

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.quantizers import QSGD, ErrorFeedback, Identity, Sign, accumulate, cpu, decode, read, reference, wire

ALL_BITS = range(2, 17)
BUCKETS = (None, 512, 2048)
LENGTHS = (1, 2, 15, 511, 512, 513, 5000)


def vector(length, seed=0):
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


@pytest.mark.parametrize("bits", ALL_BITS)
def test_payloads_are_those_of_the_reference_bit_for_bit(bits):
    for bucket in BUCKETS:
        quantizer = QSGD(bits, bucket)
        for length in LENGTHS:
            x = vector(length, length)
            payload = quantizer.encode(x, seed=length + 1)
            found = read(payload)
            steps, words = reference.encode(x, length + 1, quantizer.format)
            assert len(payload) == quantizer.size(length)
            assert np.array_equal(found.steps, steps) and np.array_equal(found.words.view(np.uint32), words)
            assert np.array_equal(quantizer.decode(payload), reference.decode(steps, words, length, quantizer.format))


@pytest.mark.parametrize("bits, bucket", [(1, None), *product((3, 8, 16), (None, 512, 1024))])
def test_large_payloads_are_those_of_the_reference_too(bits, bucket, monkeypatch):
    """Those that go past the caches; with buckets side by side that are usual, zero, one-sparse, tiny and huge."""
    rng = np.random.default_rng(bits)
    blocks = rng.standard_normal((12, 512)).astype("f4")
    blocks[1], blocks[4, 1:], blocks[6], blocks[9] = 0.0, 0.0, 1e-30 * blocks[6], 1e25 * blocks[9]
    x = np.concatenate([blocks.ravel(), rng.standard_normal(77).astype("f4")])
    quantizer = Sign() if bits == 1 else QSGD(bits, bucket=bucket)
    monkeypatch.setattr(cpu, "STREAMED", 0)
    payload = quantizer.encode(x, 5)
    assert payload.ctypes.data % 64 == 0
    steps, words = reference.encode(x, 5, quantizer.format)
    assert wire.steps_of(payload, quantizer.format, len(x)).tobytes() == steps.tobytes()
    assert payload[quantizer.format.start(len(x)) :].tobytes() == words.tobytes()
    odd = np.empty(len(payload) + 1, np.uint8)[1:]
    assert quantizer.encode(x, 5, out=odd).tobytes() == payload.tobytes()


@pytest.mark.parametrize("bits", ALL_BITS)
def test_the_wire_holds_exactly_so_many_bits_a_coordinate(bits):
    assert 8 * (QSGD(bits).size(2**20) - QSGD(bits).size(0)) - bits * 2**20 <= 8 * 64
    assert QSGD(bits, 512).size(2**20) - QSGD(bits, None).size(2**20) == pytest.approx(4 * 2**11, abs=64)


@pytest.mark.parametrize("quantizer", [QSGD(4), QSGD(3, 512), Sign(), Identity()], ids=repr)
def test_threads_and_buffers_change_nothing(quantizer):
    x = vector(200_000)
    payload = quantizer.encode(x, seed=9)
    again = quantizer.encode(x, seed=9, out=np.full(quantizer.size(len(x)) + 100, 7, np.uint8), threads=2)
    assert bytes(payload) == bytes(again)
    assert np.array_equal(quantizer.decode(payload), quantizer.decode(payload, threads=2))
    assert not np.array_equal(quantizer.encode(x, seed=10), payload)


@pytest.mark.parametrize("quantizer", [QSGD(b, u) for b in ALL_BITS for u in (None, 512)] + [Sign(), Sign(512)], ids=repr)
def test_unbiased_with_the_stated_variance(quantizer):
    x, draws = vector(700, seed=3), 1500
    decoded = np.array([quantizer.decode(quantizer.encode(x, seed)) for seed in range(draws)], dtype=float)
    spread = decoded.std(axis=0)
    z = (decoded.mean(axis=0) - x)[spread > 0] / spread[spread > 0] * np.sqrt(draws)
    assert np.abs(z).max() < 5.2 and abs(z.std() - 1) < 0.15
    squares = ((decoded - x) ** 2).sum(axis=1)
    assert abs(squares.mean() - quantizer.variance(x)) <= 5 * squares.std() / np.sqrt(draws) + 1e-12
    bounds = quantizer.omega(700, "qsgd"), quantizer.omega(700)
    assert quantizer.variance(x, relative=True) <= 1.00001 * bounds[0] <= 1.00002 * bounds[1]


@pytest.mark.parametrize("bits", [2, 3, 5, 8])
def test_levels_lie_on_the_grid_and_signs_are_kept(bits):
    x = vector(3000)
    quantizer = QSGD(bits)
    decoded, step = quantizer.decode(quantizer.encode(x, seed=1)), float(read(quantizer.encode(x, seed=1)).steps[0])
    levels = decoded / step
    assert np.array_equal(levels, np.rint(levels)) and np.abs(levels).max() <= 2 ** (bits - 1) - 1
    assert (decoded * x >= 0).all()


@pytest.mark.parametrize("quantizer", [QSGD(4), QSGD(2, 512)], ids=repr)
def test_special_vectors(quantizer):
    for length in (1, 600):
        assert not quantizer.decode(quantizer.encode(np.zeros(length), seed=1)).any()
    for value in (3.0, -2.5, 1e-30, 1e30):
        one = np.zeros(700, np.float32)
        one[13] = value
        assert quantizer.decode(quantizer.encode(one, seed=2)) == pytest.approx(one, rel=1e-6)
    assert quantizer.decode(quantizer.encode([], seed=0)).shape == (0,)
    for scale in (1e-35, 1e25):
        x = (vector(600) * scale).astype(np.float32)
        decoded = quantizer.decode(quantizer.encode(x, seed=5))
        ratio = np.linalg.norm(decoded.astype(float)) / np.linalg.norm(x.astype(float))
        assert np.isfinite(decoded).all() and 0.05 < ratio < 60


def test_accumulate_is_the_weighted_sum_also_of_different_formats():
    x = [vector(5000, seed) for seed in range(5)]
    quantizers = [QSGD(3), QSGD(3), QSGD(8, 512), Sign(), Identity()]
    payloads = [q.encode(v, seed=i) for i, (q, v) in enumerate(zip(quantizers, x, strict=True))]
    weights = [0.5, -2.0, 1.0, 0.25, 3.0]
    out = vector(5000, 99)
    expected = out + sum(w * decode(p).astype(float) for w, p in zip(weights, payloads, strict=True))
    assert accumulate(out, payloads, weights) == pytest.approx(expected, rel=1e-4, abs=1e-3)


def test_accumulate_takes_one_payload_and_a_number():
    x, out = vector(600), vector(600, 1)
    payload, expected = QSGD(4).encode(x, seed=3), out + 0.5 * QSGD(4).decode(QSGD(4).encode(x, seed=3))
    assert QSGD(4).accumulate(out.copy(), payload, 0.5) == pytest.approx(expected, abs=1e-5)
    assert accumulate(out.copy(), read(payload), np.float64(0.5)) == pytest.approx(expected, abs=1e-5)
    assert QSGD(4).accumulate(out.copy(), [payload], [0.5]) == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(accumulate(out.copy(), [], []), out)


@pytest.mark.parametrize("bits", [2, 5, 8])
@pytest.mark.parametrize("bucket", [None, 512])
def test_opposite_vectors_have_opposite_means_and_equal_variance(bits, bucket):
    quantizer, x = QSGD(bits, bucket), vector(700)
    assert quantizer.variance(-x) == pytest.approx(quantizer.variance(x), rel=1e-6)
    there, back = (np.mean([quantizer.decode(quantizer.encode(v, seed)) for seed in range(300)], axis=0) for v in (x, -x))
    assert np.linalg.norm(there + back) <= 3 * np.sqrt(2 * quantizer.variance(x) / 300)


@pytest.mark.parametrize("quantizer", [QSGD(2), QSGD(5, 512), QSGD(16), Sign(512), Identity()], ids=repr)
def test_lengths_beyond_32_bits_are_right_in_the_header(quantizer):
    """Sizes and headers only: nothing of that length is allocated."""
    for length in (2**31 - 1, 2**31, 2**31 + 17, 2**32, 2**40 + 3):
        size = quantizer.size(length)
        head = wire.header(quantizer.format, length, 2**64 - 1, 12345)
        assert wire.read_header(head, size) == (quantizer.format, length, 2**64 - 1, 12345)
        assert abs(8 * size / length - quantizer.bits) < 32 / (quantizer.format.bucket or 2**30) + 1e-5
        with pytest.raises(Invalid, match="bytes, but got"):
            wire.read_header(head, size % 2**32 + 1)
        with pytest.raises(Invalid):
            decode(np.frombuffer(head, np.uint8))


@pytest.fixture
def payload():
    return QSGD(5, 512).encode(vector(1300), seed=4)


def test_every_changed_byte_is_noticed(payload):
    places = [*range(48), *range(48, len(payload), 37), len(payload) - 1]
    for place in places:
        for flip in (1, 0x80):
            changed = payload.copy()
            changed[place] ^= flip
            with pytest.raises(Invalid):
                decode(changed)


def test_what_is_cut_off_or_foreign_is_refused(payload):
    for size in (0, 1, 3, 4, 16, 47, 48, 60, len(payload) - 1):
        with pytest.raises(Invalid):
            decode(payload[:size])
    for foreign in (b"", b"GIF89a" * 20, bytes(1000), np.concatenate([payload, payload])):
        with pytest.raises(Invalid):
            decode(foreign)
    with pytest.raises(Invalid, match="bytes"):
        decode([1, 2, 3])


def test_absurd_lengths_are_refused_before_anything_is_allocated(payload):
    import struct
    import zlib

    fields = list(struct.unpack("<4sBBBBIIQQQQ", bytes(payload[:48])))
    fields[7], fields[6] = 2**60, 0
    fields[6] = zlib.crc32(struct.pack("<4sBBBBIIQQQQ", *fields))
    forged = np.concatenate([np.frombuffer(struct.pack("<4sBBBBIIQQQQ", *fields), np.uint8), payload[48:]])
    with pytest.raises(Invalid, match=r"has .* bytes, but got"):
        decode(forged)


def test_a_bad_payload_leaves_the_sum_as_it_was(payload):
    out, bad = vector(1300, 1), payload.copy()
    bad[-1] ^= 1
    before = out.copy()
    with pytest.raises(Invalid):
        accumulate(out, [payload, bad], [1.0, 1.0])
    assert np.array_equal(out, before)


@pytest.mark.parametrize(
    "call",
    [
        lambda: QSGD(1),
        lambda: QSGD(17),
        lambda: QSGD(4, bucket=100),
        lambda: QSGD(4).encode([1.0, np.nan], seed=0),
        lambda: QSGD(4).encode([1.0, np.inf], seed=0),
        lambda: QSGD(4).encode([[1.0]], seed=0),
        lambda: QSGD(4).encode(["a"], seed=0),
        lambda: QSGD(4).encode([1.0], seed=-1),
        lambda: QSGD(4).encode(vector(100), seed=0, out=np.empty(10, np.uint8)),
        lambda: QSGD(4).decode(QSGD(4).encode([1.0], seed=0), out=np.empty(2, np.float32)),
        lambda: accumulate(np.zeros(1, np.float32), QSGD(4).encode([1.0], seed=0), np.nan),
        lambda: ErrorFeedback(ErrorFeedback(QSGD(4))),
        lambda: accumulate(np.zeros(1, np.float32), [QSGD(4).encode([1.0], seed=0)], [1.0, 2.0]),
        lambda: accumulate(np.zeros(1, np.float32), QSGD(4).encode([1.0], seed=0), 1j),
        lambda: QSGD(0),
        lambda: QSGD(2.5),
    ],
    ids=range(16),
)
def test_bad_input(call):
    with pytest.raises(Invalid):
        call()


def descend(quantizer, steps=400, rate=0.01):
    """Distance from the optimum of a quadratic after gradient steps with quantised gradients."""
    x = vector(2000, 5).astype(float)
    for step in range(steps):
        x = x - rate * quantizer.decode(quantizer.encode(x.astype(np.float32), seed=step))
        if np.linalg.norm(x) > 1e12:
            break
    return float(np.linalg.norm(x))


def test_plain_error_feedback_diverges_where_scaled_does_not():
    """At 2 bits omega is far above 1."""
    start = float(np.linalg.norm(vector(2000, 5)))
    assert QSGD(2).omega(2000, "qsgd") > 10
    assert descend(ErrorFeedback(QSGD(2))) > 100 * start
    assert descend(ErrorFeedback(QSGD(2), scaled=True)) < start
    assert descend(ErrorFeedback(QSGD(8, 512)), rate=0.3) < 1e-3 * start


def test_lost_payloads_are_taken_back():
    feedback, x = ErrorFeedback(QSGD(3)), vector(600)
    payload = feedback.encode(x, seed=0)
    feedback.lost(payload)
    assert feedback.error == pytest.approx(x, abs=1e-5)


def test_the_same_seed_again_replaces_what_was_encoded_and_remembered():
    again, once = ErrorFeedback(QSGD(3)), ErrorFeedback(QSGD(3))
    x, y, z = (vector(600, seed) for seed in range(3))
    again.encode(x, seed=0)
    once.encode(x, seed=0)
    again.encode(y, seed=1)
    payloads = [again.encode(z, seed=1), again.encode(z, seed=1), once.encode(z, seed=1)]
    assert len({payload.tobytes() for payload in payloads}) == 1
    assert np.array_equal(again.error, once.error)


@pytest.mark.parametrize("codec", [QSGD(4), QSGD(4, 512), Sign(), Identity()], ids=repr)
def test_a_gain_multiplies_what_is_decoded(codec):
    x = vector(700)
    once, twice = (codec.decode(codec.encode(x, 5, gain=gain)) for gain in (1.0, 2.0))
    assert np.allclose(twice, 2 * once, rtol=1e-5)


def test_scaled_feedback_needs_to_know_the_noise():
    class Silent:
        bits = 32
        size, encode, check, accumulate = Identity.size, Identity.encode, Identity.check, Identity.accumulate

    with pytest.raises(Invalid, match="omega"):
        ErrorFeedback(Silent(), scaled=True)
    assert ErrorFeedback(Silent()).omega(100) == 1
