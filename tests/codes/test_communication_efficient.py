"""Ye and Abbe's code: messages that mix blocks, as data. Any n - s of them, each 1/m of the gradient, give it exactly."""

from itertools import combinations

import numpy as np
import pytest

from unstraggle import Invalid, Master, Messages, Tasks, codes, noise_gain
from unstraggle.engines import Local, Virtual
from unstraggle.latency import Exponential
from unstraggle.problems import LeastSquares
from unstraggle.scheme.code import Code, combine
from unstraggle.scheme.decoders import Span
from unstraggle.testing import example_payloads

from ..problems import least_squares


@pytest.mark.parametrize("n, s, blocks", [(5, 1, 2), (6, 2, 2), (7, 0, 3), (6, 3, 3), (5, 2, 1)])
def test_every_set_of_survivors_gives_the_gradient(n, s, blocks):
    code = codes.communication_efficient(n, s=s, blocks=blocks)
    payloads, gradient = example_payloads(code, dim=12)
    assert {len(payload) for payload in payloads.values()} == {12 // blocks} and code.load == pytest.approx(s + blocks)
    for heard in combinations(range(n), n - s):
        weights = code.decoder.weights(np.isin(np.arange(n), heard))
        decoded = combine(code, weights if blocks > 1 else weights[0], {m: payloads[m] for m in heard}, 12)
        np.testing.assert_allclose(decoded, gradient, rtol=1e-9, atol=1e-9)


def test_one_message_less_is_not_enough():
    code = codes.communication_efficient(6, s=1, blocks=2)
    assert not code.decoder.decode(np.arange(6) >= 2).exact()


def test_live_with_half_the_bytes():
    """On real processes: `exact` is true because the gradient is, and a message has half the bytes of the gradient."""
    code = codes.communication_efficient(4, s=1, blocks=2)
    problem = least_squares(code, dim=24)
    with Master(code, Local(problem)) as master:
        for step in range(5):
            params = np.full(24, 0.1 * step)
            estimate = master.gradient(params)
            np.testing.assert_allclose(estimate.gradient, problem.gradient(params), rtol=1e-9, atol=1e-9)
            assert estimate.exact and estimate.bytes == estimate.messages * 24 * 8 // 2


def test_what_does_not_decode_is_not_called_exact():
    code = codes.communication_efficient(4, s=1, blocks=2)
    problem = least_squares(code, dim=24)
    delays = np.array([0.1, 0.2, 50.0, 60.0])
    with Master(code, Virtual(problem, Exponential(rate=1.0)), on_shortfall="approximate", patience=2.0) as master:
        for _ in range(6):
            master.gradient(np.ones(24), delays=np.ones(4))
        estimate = master.gradient(np.ones(24), delays=delays)
    assert not estimate.exact and estimate.residual > 0.1


def test_quantised_messages_may_mix_too():
    code = codes.quantize(codes.communication_efficient(5, s=1, blocks=2), bits=12, bucket=512)
    problem = least_squares(code, dim=24)
    with Master(code, Virtual(problem, Exponential(rate=1.0), rng=0)) as master:
        estimate = master.gradient(np.ones(24))
    error = np.linalg.norm(estimate.gradient - problem.gradient(np.ones(24)))
    assert error < 0.1 * np.linalg.norm(problem.gradient(np.ones(24)))


def test_more_blocks_amplify_more():
    gains = [noise_gain(codes.communication_efficient(10, s=2, blocks=blocks)).median for blocks in (1, 2, 4)]
    assert gains[0] < gains[1] < gains[2]


def test_what_cannot_be_is_refused():
    with pytest.raises(Invalid, match="1 <= blocks <= 3"):
        codes.communication_efficient(5, s=2, blocks=4)
    code = codes.communication_efficient(5, s=1, blocks=2)
    problem = LeastSquares.split(np.ones((10, 7)), np.ones(10), code.shares.tolist())
    with pytest.raises(Invalid, match="mixes 2 equal blocks of the gradient, but got dim=7"):
        Master(code, Virtual(problem, Exponential(rate=1.0)))
    with pytest.raises(Invalid, match=r"those of communication_efficient.* mix blocks"):
        codes.cluster(code, times=2)
    messages = Messages([0], [1], np.ones((1, 2)), mixes=2)
    with pytest.raises(Invalid, match="need as many equal blocks"):
        Code("uneven", 1, Tasks([0, 0], [0, 0], [0, 1]), messages, Span(messages.coef), blocks=(0.3, 0.7))
