"""Gather: the factor and the look for numbers that are none ride along, and memory is used again."""

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.blocks import block_slices
from unstraggle.runtime.gather import Gather, Scaling
from unstraggle.runtime.message import Message
from unstraggle.runtime.sums import FEW, LONG, SHORT, _by_hand, _by_numpy, settled_sum

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


@pytest.mark.parametrize("dim", [64, SHORT + 40])
@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_the_factor_is_that_of_the_head_and_leaves_the_head_alone(code, dim):
    gather = Gather(code, dim, np.dtype("f4"))
    plain = gather.finish(filled(gather, code, dim)).copy()
    seen = []
    scaling = Scaling(HEAD, lambda head: seen.append(head.copy()) or 1 / 7)
    found = gather.finish(filled(gather, code, dim), scaling)
    assert np.array_equal(found[:, :HEAD], plain[:, :HEAD]) and np.array_equal(seen[0], plain[0, :HEAD])
    np.testing.assert_allclose(found[:, HEAD:], plain[:, HEAD:] / 7, rtol=1e-5, atol=1e-7)
    assert gather.finite


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


@pytest.mark.parametrize("length", [5, SHORT + 3, LONG + 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6])
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
    assert _by_hand(outs[0], weights, vectors, fresh, 0.3)
    _by_numpy(outs[1], weights, vectors, fresh, 0.3)
    assert outs[0].tobytes() == outs[1].tobytes()


@pytest.mark.parametrize("weight", [1j, np.complex128(2.0), 1e39, np.nan])
@pytest.mark.filterwarnings("error")
def test_numbers_that_are_not_finite_or_real_are_left_to_others(weight):
    out = np.full(2, 7.0, "f4")
    assert not _by_hand(out, [1.0, weight], [np.ones(2, "f4")] * 2, True, 1.0)
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
