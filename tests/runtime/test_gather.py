"""Gather: the factor and the look for numbers that are none ride along, and memory is used again."""

import weakref

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.blocks import block_slices
from unstraggle.runtime.gather import Gather, Scaling
from unstraggle.runtime.mate import WORTH
from unstraggle.runtime.message import Message
from unstraggle.runtime.sums import FEW, SHORT, Sum, _by_hand, _by_numpy, settled_sum

CODES = [
    codes.uncoded(3),
    codes.uncoded(11),
    codes.fractional_repetition(6, s=1),
    codes.cyclic_repetition(5, s=1),
    codes.uncoded_mmc(3, load=2),
    codes.blocks([1, 3], codes.uncoded(4), codes.fractional_repetition(4, s=1)),
    codes.quantize(codes.uncoded(3), bits=8),
]
HEAD = 3


def filled(gather, code, dim, spoil=()):
    rng = np.random.default_rng(0)
    partials, slices = rng.standard_normal((code.k, dim)), block_slices(dim, code.blocks)
    gather.clear()
    for m, block in enumerate(code.messages.block):
        numbers = np.asarray(code.messages.coef[[m]] @ partials[:, slices[block]])[0].astype("f4")
        numbers[list(spoil)] = np.nan
        codec = code.messages.codec[m]
        payload = numbers.view(np.uint8) if code.messages.plain[m] else np.asarray(codec.encode(numbers, m))
        gather.add([Message(int(code.messages.worker[m]), m, 0, 0.0, payload)])
    return code.decoder.weights(np.ones(len(code.messages), bool))


@pytest.mark.parametrize("place", [-1, 1], ids=["known", "decoded"])
@pytest.mark.parametrize("dim", [64, SHORT + 40, WORTH])
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_the_factor_is_that_of_the_head_and_leaves_the_head_alone(code, dim, place):
    gather = Gather(code, dim, np.dtype("f4"))
    plain = gather.finish(filled(gather, code, dim))
    assert gather.finite
    plain, seen = plain.copy(), []
    factor = (lambda head: 1 / 7) if place < 0 else lambda head: 1 / 7 / float(head[place])
    for _ in range(2):  # what was looked up for the first serves for the second
        scaling = Scaling(HEAD, lambda head: seen.append(head.copy()) or factor(head), known=(1 / 7, place))
        found = gather.finish(filled(gather, code, dim), scaling)
        assert gather.finite
        assert np.array_equal(found[:, :HEAD], plain[:, :HEAD]) and np.array_equal(seen[-1], plain[0, :HEAD])
        np.testing.assert_allclose(found[:, HEAD:], plain[:, HEAD:] * factor(seen[-1]), rtol=1e-5, atol=1e-7)
    assert len(seen) == 2


@pytest.mark.parametrize("dim", [64, SHORT + 40])
@pytest.mark.parametrize("where", [0, 40])
def test_numbers_that_are_none_are_seen_wherever_they_stand(dim, where):
    code = codes.uncoded(6)
    gather = Gather(code, dim, np.dtype("f4"))
    gather.finish(filled(gather, code, dim, spoil=[where]), Scaling(HEAD, lambda head: 1.0))
    assert not gather.finite
    gather.finish(filled(gather, code, dim))
    assert gather.finite


def test_results_are_written_again_only_when_nobody_has_them():
    code = codes.uncoded(2)
    gather = Gather(code, 64, np.dtype("f4"))
    first = gather.finish(filled(gather, code, 64))
    kept, view = first.copy(), first[0]
    del first
    others = {gather.finish(filled(gather, code, 64)).ctypes.data for _ in range(4)}
    assert view.ctypes.data not in others and len(others) == 1
    assert np.array_equal(view, kept[0])


@pytest.mark.parametrize("length", [5, SHORT + 3, WORTH + 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 17])
def test_one_pass_adds_scales_and_looks(length, count):
    rng = np.random.default_rng(count)
    vectors = [rng.standard_normal(length).astype("f4") for _ in range(count)]
    weights, out = rng.standard_normal(count).tolist(), np.ones(length, "f4")
    expected = 0.5 * (1 + sum(w * v.astype(float) for w, v in zip(weights, vectors, strict=True)))
    assert settled_sum(out, weights, vectors, False, 0.5)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    vectors[-1][-1] = np.inf
    assert not settled_sum(out, weights, vectors, True, 0.5)
    vectors[-1][-1] = 3e38
    assert not settled_sum(out, [10.0] * count, vectors, True, 1.0)  # beyond float32


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_few_numbers_are_added_up_by_hand_to_the_same_bits(dtype, fresh):
    rng = np.random.default_rng(1)
    vectors = [rng.standard_normal(FEW).astype(dtype) for _ in range(3)]
    weights, outs = rng.standard_normal(3).tolist(), [np.ones(FEW, dtype) for _ in range(2)]
    assert _by_hand(Sum(outs[0], weights, vectors, fresh, 0.3))
    _by_numpy(Sum(outs[1], weights, vectors, fresh, 0.3))
    assert outs[0].tobytes() == outs[1].tobytes()


@pytest.mark.parametrize("weight", [1j, np.complex128(2.0), 1e39, np.nan])
@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_finite_or_real_are_left_to_others(weight):
    out = np.full(2, 7.0, "f4")
    assert not _by_hand(Sum(out, [1.0, weight], [np.ones(2, "f4")] * 2))
    assert out.tolist() == [7, 7]
    assert settled_sum(out, [1.0, weight], [np.ones(2, "f4")] * 2) == isinstance(weight, complex)
    assert not isinstance(weight, complex) or out.tolist() == [1 + weight.real] * 2


def test_terms_of_known_weights_are_those_of_the_messages_that_came():
    """They are kept from round to round; with copies, the messages that are added up differ."""
    code, dim = codes.fractional_repetition(4, s=1), 5
    gather = Gather(code, dim, np.dtype("f8"))
    for used in ([0, 2], [1, 3], [0, 2], [1, 2]):
        payloads = [np.full(dim, 10.0**m) for m in used]
        gather.clear()
        gather.add([Message(m, m, 0, 0.0, payload.view(np.uint8)) for m, payload in zip(used, payloads, strict=True)])
        got = np.isin(np.arange(4), used)
        np.testing.assert_allclose(gather.finish(code.decoder.weights(got)), [sum(payloads)], rtol=1e-12)


def test_terms_of_weights_that_are_not_known_are_those_of_the_round():
    code, dim = codes.cyclic_repetition(5, s=1), 4
    gather, weights = Gather(code, dim, np.dtype("f8")), np.arange(1.0, 6.0)
    for factor in (1.0, 2.0):
        gather.clear()
        gather.add([Message(m, m, 0, 0.0, np.ones(dim).view(np.uint8)) for m in range(5)])
        assert gather.finish(factor * weights[None]).tolist() == [[factor * 15] * dim]


@pytest.mark.parametrize("length", [3, 20, SHORT])
def test_of_complex_weights_the_real_part_counts_for_real_vectors(length):
    out = np.ones(length)
    assert settled_sum(out, [2 + 3j, 1.0], [np.ones(length)] * 2, False, 0.5) and out.tolist() == [2.0] * length


@pytest.mark.parametrize("code", [codes.uncoded(2), codes.cyclic_repetition(3, s=1)], ids=lambda code: code.name)
def test_what_was_looked_up_for_a_round_serves_only_where_messages_lie_as_they_did(code):
    gather, dim = Gather(code, SHORT, np.dtype("f4")), SHORT
    count, rng = len(code.messages), np.random.default_rng(0)
    places = [[np.empty(dim, "f4") for _ in range(count)] for _ in range(2)]  # all of them stay
    for turn in (0, 0, 1, 0, 1):
        gather.clear()
        for m in range(count):
            places[turn][m][:] = rng.standard_normal(dim)
            gather.add([Message(m, m, 0, 0.0, places[turn][m].view(np.uint8))])
        weights = code.decoder.weights(np.ones(count, bool))
        found = gather.finish(weights)
        assert gather.finite
        np.testing.assert_allclose(found[0], weights[0] @ np.stack(places[turn]), rtol=1e-4, atol=1e-5)


def test_what_was_looked_up_holds_no_memory():
    gather = Gather(codes.uncoded(2), SHORT, np.dtype("f4"))
    vectors = [np.ones(SHORT, "f4") for _ in range(2)]
    gone = [weakref.ref(vector) for vector in vectors]
    gather.add([Message(m, m, 0, 0.0, vector.view(np.uint8)) for m, vector in enumerate(vectors)])
    found = gather.finish(np.ones((1, 2)))
    assert gather.finite and gather._lately
    gather.clear()
    del vectors
    assert (found == 2).all() and [one() for one in gone] == [None, None]
