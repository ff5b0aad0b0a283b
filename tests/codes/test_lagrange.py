"""Lagrange coding on really encoded least-squares data."""

import numpy as np
import pytest

from unstraggle import Invalid, codes
from unstraggle.problems import LeastSquares
from unstraggle.scheme.code import combine
from unstraggle.testing import example_payloads


@pytest.fixture(scope="module")
def paper():
    """K = 40, r = 10: threshold 7."""
    code = codes.lagrange(40, load=10)
    return code, *example_payloads(code, rng=1, dim=15)


def decode(code, payloads, gradient, chosen):
    got = np.isin(np.arange(code.n), chosen)
    decoded = combine(code, code.decoder.weights(got)[0], {m: payloads[m] for m in chosen.tolist()}, len(gradient))
    return np.linalg.norm(decoded - gradient) / np.linalg.norm(gradient)


def test_any_seven_of_forty_recover(paper):
    rng = np.random.default_rng(0)
    random = [rng.permutation(40)[:7] for _ in range(300)]
    contiguous = [(start + np.arange(7)) % 40 for start in range(40)]
    errors = [decode(*paper, chosen) for chosen in random + contiguous]
    assert max(errors) <= 1e-7 and np.median(errors[:300]) <= 1e-12


def test_six_do_not(paper):
    code, rng = paper[0], np.random.default_rng(1)
    for _ in range(50):
        got = np.isin(np.arange(40), rng.permutation(40)[:6])
        assert not code.decoder.rule.met(got) and code.decoder.residual(got) > 1e-6


def test_encoded_partitions_interpolate_the_raw_ones():
    """At the worker's point, with a load of one, the encoded data is one polynomial through all partitions."""
    code = codes.lagrange(3, load=3)
    assert code.data.toarray() == pytest.approx(np.tile(np.eye(3), (3, 1)))
    assert codes.lagrange(10, load=3).data.shape == (30, 10)
    assert codes.lagrange(40, load=10).data.toarray().sum(axis=1) == pytest.approx(np.ones(400)), "constants are kept"


def test_unequal_partitions_are_filled_with_zeros():
    rng = np.random.default_rng(2)
    features, labels, params = rng.standard_normal((43, 6)), rng.standard_normal(43), rng.standard_normal(6)
    code = codes.lagrange(8, load=4)
    problem = LeastSquares.for_code(code, features, labels)
    sums = [sum(problem.grad(params, 4 * worker + step) for step in range(4)) for worker in range(8)]
    weights = code.decoder.weights(np.arange(8) % 3 != 1)[0]
    exact = features.T @ (features @ params - labels)
    assert sum(w * s for w, s in zip(weights, sums, strict=True)) == pytest.approx(exact)


def test_encoding_must_fit_the_problem():
    problem = LeastSquares.split(np.eye(4), np.ones(4), parts=2)
    with pytest.raises(Invalid, match="for 4 partitions, but the problem has 2"):
        problem.encode(codes.lagrange(4, load=2).data)
    with pytest.raises(Invalid, match="features"):
        LeastSquares.split(np.eye(4), np.ones(3), parts=2)


def test_blocks_and_hybrid_refuse_encoded_data():
    code = codes.lagrange(4, load=2)
    with pytest.raises(Invalid, match="encoded data"):
        codes.blocks([1, 1], code, code)
    with pytest.raises(Invalid, match="raw data"):
        codes.hybrid(code)


# Several messages


def test_any_fifteen_of_two_messages_each_recover():
    code = codes.lagrange(40, load=10, messages=2)
    payloads, gradient = example_payloads(code, rng=1, dim=15)
    assert code.threshold == 15 and code.name == "lagrange(40, load=10, messages=2)" and code.data.shape == (400, 40)
    assert code.messages.worker.tolist() == np.repeat(np.arange(40), 2).tolist() and set(code.messages.after) == {5, 10}
    rng = np.random.default_rng(0)
    for _ in range(40):
        chosen = rng.permutation(80)[:15]
        got = np.isin(np.arange(80), chosen)
        decoded = combine(code, code.decoder.weights(got)[0], {m: payloads[m] for m in chosen.tolist()}, 15)
        assert np.linalg.norm(decoded - gradient) <= 1e-4 * np.linalg.norm(gradient)


def test_a_message_for_every_task_is_of_too_high_a_degree_for_float64():
    code = codes.lagrange(40, load=10, messages=10)
    got = np.zeros(400, dtype=bool)
    got[np.random.default_rng(0).permutation(400)[:79]] = True
    assert code.threshold == 79 and code.decoder.rule.met(got) and code.decoder.residual(got) > 1e-3


def test_messages_must_divide_the_load_and_suffice():
    with pytest.raises(Invalid, match="divides load=10"):
        codes.lagrange(40, load=10, messages=4)
    with pytest.raises(Invalid, match="messages <= 10"):
        codes.lagrange(40, load=10, messages=20)
    with pytest.raises(Invalid, match="needs 7 messages, but all workers send 4"):
        codes.lagrange(4, load=1)
