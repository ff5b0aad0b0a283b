"""Codes with quantised messages: bits on the table, a design for them, and a refusal where the gradient would drown."""

import pickle

import numpy as np
import pytest

from unstraggle import Invalid, Messages, codes, parse_code, plan
from unstraggle.codes.modify import quantization_error
from unstraggle.plan.bits import variance
from unstraggle.plan.error import delta, least_bound, lemma_bound, mean_squared_error
from unstraggle.quantizers import QSGD, ErrorFeedback, Identity, Plain, Sign, decode
from unstraggle.scheme.code import combine
from unstraggle.scheme.noise import survivor_sets
from unstraggle.testing import check_code

P5 = [0.1, 0.3, 0.5, 0.7, 1.0]


def test_joint_design_is_ready_to_run():
    answer = plan.bits(P5, budget=25, dim=4000, omega="qsgd")
    code = codes.optimally_structured(P5, bits=answer.params["bits"], dim=4000, omega="qsgd")
    assert code.messages.bits.tolist() == answer.bits[:4].tolist(), "the last worker is never heard and gets no message"
    assert list(code.messages.codec) == [QSGD(b) for b in answer.bits[:4]]
    assert [m.codec for i in range(5) for m in code.program(i).messages] == [QSGD(b) for b in answer.bits[:4]]
    noise = variance("qsgd", 4000, answer.bits)
    assert lemma_bound(code, P5, noise) == pytest.approx(25 / answer.objective) == pytest.approx(least_bound(P5, 5, noise))
    assert parse_code(code.name).messages.bits.tolist() == code.messages.bits.tolist()


def test_omega_of_the_joint_design():
    p, sent = P5[:4], np.array([4, 2, 1, 32])
    plain = codes.optimally_structured(p)
    paper, qsgd, small = (
        codes.optimally_structured(p, bits=sent, dim=4000, **how) for how in ({}, {"omega": "qsgd"}, {"bucket": 512})
    )
    for code, model, size in ((paper, "paper", 4000), (qsgd, "qsgd", 4000), (small, "paper", 512)):
        noise = np.array([QSGD(4).omega(size, model), QSGD(2).omega(size, model), Sign().omega(size), 0.0])
        same = codes.optimally_structured(p, omega=noise)
        assert np.array_equal(code.messages.coef.toarray(), same.messages.coef.toarray())
        assert lemma_bound(code, p, noise) == pytest.approx(16 / delta(p, noise))
    assert small.messages.codec[2] == Sign(512) and small.messages.codec[3] == Plain()
    given = codes.optimally_structured(p, bits=sent, omega=0.0)
    assert np.array_equal(given.messages.coef.toarray(), plain.messages.coef.toarray()), "numbers count, whatever the bits"
    assert codes.optimally_structured(p, bits=32, dim=10).messages.plain.all()


def test_authors_levels_can_only_lose():
    p = np.linspace(0.5, 0.99, 20)
    ours, theirs = (plan.bits(p, budget=80, dim=10**5, levels_offset=offset) for offset in (0, -1))
    assert theirs.budget == 80 and theirs.objective < ours.objective
    assert theirs.utility == pytest.approx((1 - p) / (p + variance("paper", 10**5, theirs.bits)))
    for method in ("fast", "greedy", "equal", "relaxation"):
        assert plan.bits(p, budget=80, dim=10**5, levels_offset=-1, method=method).budget == 80
    for wrong in ({"levels_offset": 1}, {"levels_offset": -1, "omega": [1.0, 0.5]}):
        with pytest.raises(Invalid, match="levels_offset"):
            plan.bits([0.5], budget=2, dim=10, **wrong)


def test_bits_for_all_for_workers_and_for_messages():
    code = codes.uncoded_mmc(3, load=2)
    assert set(codes.quantize(code, 8).messages.bits) == {8}
    per_worker = codes.quantize(code, [2, 4, 8], bucket=512)
    assert per_worker.messages.bits.tolist() == np.array([2, 4, 8])[code.messages.worker].tolist()
    per_message = codes.quantize(code, [2, 3, 4, 5, 6, 1])
    assert per_message.messages.bits.tolist() == [2, 3, 4, 5, 6, 1] and per_message.messages.codec[5] == Sign()
    back = codes.quantize(per_message, 32)
    assert back.messages.plain.all() and back.messages.codec[0] == Plain()
    assert check_code(per_worker).worst_error < 1e-9, "tables, rule and decoder are as before"


def test_joined_codes_keep_their_quantisers():
    one, other = codes.quantize(codes.uncoded(3), 4, 512), codes.uncoded(3)
    for joined in (codes.cluster(one, other), codes.stack(one, other), codes.blocks([1, 1], one, other)):
        assert joined.messages.bits.tolist() == [4, 4, 4, 32, 32, 32]
        assert joined.messages.codec[0] == QSGD(4, 512) and joined.messages.codec[5] == Plain()
    hybrid = codes.hybrid(codes.quantize(codes.uncorrelated_mmc(5, load=5, orders=[3, 5]), 8, 512))
    assert set(hybrid.messages.codec) == {QSGD(8, 512)}
    both = codes.cluster(one, codes.quantize(codes.uncoded(3), 4))
    assert both.messages.codec == (QSGD(4, 512),) * 3 + (QSGD(4),) * 3, "each message has its own buckets"


REFUSED = [
    ("cyclic_repetition(10, s=3, construction='random')", 4),
    ("cyclic_repetition(10, s=3, construction='random')", 8),
    ("cyclic_repetition(40, s=9)", 8),
    ("correlated_mmc(10, load=10, order=6)", 4),
    ("uncorrelated_mmc(10, load=10, orders=[6, 8, 10])", 2),
]
PASSING = [
    ("uncoded(5)", 2),
    ("fractional_repetition(12, s=3)", 1),
    ("fractional_repetition(12, s=3)", 4),
    ("uncoded_mmc(12, load=4)", 2),
    ("cyclic_repetition(6, s=2)", 4),
    ("cluster(correlated_mmc(5, load=5, order=3), times=3)", 2),
    ("cyclic_repetition(10, s=3, construction='random')", 16),
    ("stochastic(8, p=0.3)", 1),
    ("optimal_decoding(10, degree=3)", 1),
]


@pytest.mark.parametrize("expression, bits", REFUSED)
def test_codes_that_would_drown_the_gradient_are_refused(expression, bits):
    code = parse_code(expression)
    with pytest.raises(Invalid, match=r"less noise than gradient.*fractional_repetition.*force=True"):
        codes.quantize(code, bits, bucket=512)
    forced = codes.quantize(code, bits, bucket=512, force=True)
    coded, plain = quantization_error(forced, 10**6)
    assert coded > 1 and coded > 3 * plain and set(forced.messages.bits) == {bits}
    assert parse_code(forced.name).name == forced.name


@pytest.mark.parametrize("expression, bits", PASSING)
def test_codes_that_hardly_amplify_noise_pass(expression, bits):
    code = codes.quantize(parse_code(expression), bits, bucket=512)
    again = parse_code(code.name)
    assert again.name == code.name and set(again.messages.bits) == {bits} and again.messages.codec == code.messages.codec


def measured_error(code, dim, rounds=40):
    """Root mean square of what quantising adds to the decoded gradient, over its norm, with real payloads."""
    partials = np.random.default_rng(0).standard_normal((code.k, dim))
    messages, gradient = code.messages.coef @ partials, partials.sum(axis=0)
    squares = []
    for seed, got in zip(range(rounds), survivor_sets(code, 60), strict=False):
        sent = {m: decode(code.messages.codec[m].encode(messages[m], seed * 1000 + m)) for m in np.flatnonzero(got).tolist()}
        squares.append(((combine(code, code.decoder.weights(got)[0], sent, dim) - gradient) ** 2).sum())
    return float(np.sqrt(np.mean(squares)) / np.linalg.norm(gradient))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    "expression",
    ["fractional_repetition(6, s=2)", "cyclic_repetition(6, s=2)", "cyclic_repetition(8, s=3, construction='random')"],
)
def test_the_criterion_is_at_most_half_as_much_again_as_what_is_measured(expression, bits):
    """omega is a bound, 1.1 to 1.3 times the true error for Gaussian vectors; survivor sets make the rest."""
    code = codes.quantize(parse_code(expression), bits, bucket=512, force=True)
    assert 1 / 1.5 <= measured_error(code, 2048) / quantization_error(code, 2048)[0] <= 1.1


def test_one_bit_stochastic_gradient_coding():
    """The error is that of SGC plus (d - 1) |m_i|^2 for every message that arrives."""
    code = codes.quantize(codes.stochastic(6, p=0.3), bits=1)
    assert all(code.messages.codec[m] == Sign() for m in range(6))
    partials = np.random.default_rng(1).standard_normal((6, 40))
    messages, rng = code.messages.coef @ partials, np.random.default_rng(2)
    squares = []
    for round in range(1000):
        heard = np.flatnonzero(rng.random(6) >= 0.3)
        total = sum((decode(Sign().encode(messages[m], 6 * round + m)) for m in heard), np.zeros(40))
        squares.append(((total - partials.sum(axis=0)) ** 2).sum())
    expected = mean_squared_error(code, 0.3, partials, quantiser_variance=Sign().omega(40)).mean_squared_error
    assert abs(np.mean(squares) - expected) < 4 * np.std(squares) / np.sqrt(len(squares))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: codes.quantize(codes.uncoded(3), 0), "bits=0"),
        (lambda: codes.quantize(codes.uncoded(3), 20), "bits=20"),
        (lambda: codes.quantize(codes.uncoded(3), [4, 4]), "or 3 of them"),
        (lambda: codes.quantize(codes.uncoded(3), 4.5), "whole bits"),
        (lambda: codes.quantize(codes.uncoded(3), 4, bucket=500), "multiple of 512"),
        (lambda: codes.quantize(codes.uncoded(3), 4, dim=0), "1 <= dim"),
        (lambda: codes.quantize(codes.reed_solomon(6, s=2), 8), "real coefficients"),
        (lambda: codes.quantize(codes.uncoded(3)), "or a codec"),
        (lambda: codes.quantize(codes.uncoded(3), 4, codec=QSGD(4)), "or a codec"),
        (lambda: codes.quantize(codes.uncoded(3), bucket=512, codec=QSGD(4)), "or a codec"),
        (lambda: codes.quantize(codes.uncoded(3), codec=4), "but got codec=4"),
        (lambda: codes.quantize(codes.uncoded(3), codec=[QSGD(4)]), "3 workers or 3 messages"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(Invalid, match=words):
        make()


def test_messages_have_a_codec_each_and_their_bits_are_what_the_codecs_say():
    table = Messages([0, 1, 2], [1, 1, 1], np.eye(3), codec=[QSGD(4), Plain(), ErrorFeedback(Sign())])
    assert table.bits.tolist() == [4, 32, 1] and table.plain.tolist() == [False, True, False]
    assert not table.bits.flags.writeable
    for codec, words in ((4, "but got 4"), ([QSGD(4)], "each of the 2 rows"), ([QSGD(4), "QSGD"], "'QSGD'")):
        with pytest.raises(Invalid, match=words):
            Messages([0, 1], [1, 1], np.eye(2), codec=codec)
    with pytest.raises(Invalid, match="real coefficients"):
        Messages([0], [1], [[1.0j]], codec=QSGD(4))


def test_any_codec_goes_on_a_code_with_a_name_that_parses():
    code = codes.quantize(codes.fractional_repetition(4, s=1), codec=ErrorFeedback(QSGD(4, 512), scaled=True))
    assert all(isinstance(codec, ErrorFeedback) for codec in code.messages.codec) and set(code.messages.bits) == {4}
    again = parse_code(code.name)
    assert again.name == code.name and repr(again.messages.codec) == repr(code.messages.codec)
    several = codes.quantize(codes.uncoded(3), codec=[QSGD(4), Sign(), Identity()])
    assert several.messages.bits.tolist() == [4, 1, 32] and several.messages.plain.tolist() == [False] * 3
    assert parse_code(several.name).messages.codec == several.messages.codec
    there = pickle.loads(pickle.dumps(code))
    assert repr(there.messages.codec) == repr(code.messages.codec) and there.messages.bits.tolist() == [4] * 4


def test_every_worker_gets_a_codec_of_its_own():
    code = codes.quantize(codes.uncoded(2), codec=ErrorFeedback(QSGD(4)))
    one, two = (code.program(worker).messages[0].codec for worker in range(2))
    one.encode(np.ones(4), seed=0)
    assert one.error is not None and two.error is None and code.messages.codec[0].error is None
    assert code.program(0).messages[0].codec.error is None, "a worker that starts again has forgotten"


def test_codecs_that_state_no_omega_are_taken_to_lose_everything():
    class Silent(Identity):
        omega = None

    assert quantization_error(codes.quantize(codes.uncoded(4), codec=Silent()), 100) == (1, 1)
    with pytest.raises(Invalid, match="less noise than gradient"):
        codes.quantize(codes.cyclic_repetition(10, s=3, construction="random"), codec=Silent())
