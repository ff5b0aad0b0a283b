"""plan.compression: which bits for a link, or that quantising does not pay, and the link at which that changes."""

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.plan import compression
from unstraggle.plan.compression import measured_speed
from unstraggle.quantizers import QSGD, Plain

SPEEDS = dict.fromkeys(range(1, 17), (4e8, 6e8)) | {32: (np.inf, 2e9)}


def cost(answer, bits):
    return next(choice.cost for choice in answer.choices if choice.bits == bits)


def test_times_and_sizes_are_those_of_a_round():
    answer = compression(10**6, 1e8, bits=[8], messages=3, compute=0.5, speeds=SPEEDS)
    eight, plain = answer.choices
    assert eight.size == QSGD(8, 512).size(10**6) and plain.size == 4 * 10**6
    assert eight.seconds == pytest.approx(0.5 + 1e6 / 4e8 + 3 * (eight.size / 1e8 + 1e6 / 6e8))
    assert plain.seconds == pytest.approx(0.5 + 3 * (4e6 / 1e8 + 1e6 / 2e9)) and plain.omega == 0
    assert eight.omega == QSGD(8, 512).omega(10**6, "qsgd") and eight.cost == eight.seconds * (1 + eight.omega)


@pytest.mark.parametrize("messages, compute", [(1, 0.0), (8, 0.0), (2, 0.01)])
def test_at_the_break_even_bandwidth_both_cost_the_same(messages, compute):
    def ask(bandwidth):
        return compression(10**6, bandwidth, messages=messages, compute=compute, speeds=SPEEDS)

    for choice in ask(1e8).choices[:-1]:
        if 0 < choice.break_even < np.inf:
            there = ask(choice.break_even)
            assert cost(there, choice.bits) == pytest.approx(cost(there, 32), rel=1e-9)
    limit = ask(1e8).break_even
    assert ask(0.99 * limit).bits < 32 and ask(1.01 * limit).bits == 32
    assert "Do not quantise" in str(ask(10 * limit)) and "Use " in ask(limit / 10).verdict


def test_slow_links_get_few_bits_but_not_the_fewest():
    slow, fast = (compression(10**6, bandwidth, speeds=SPEEDS) for bandwidth in (1e5, 5e8))
    assert slow.bits == 6, "b (1 + omega(b)) is least there, with buckets of 512"
    assert slow.bits <= fast.bits < 32
    assert compression(10**6, 1e5, bucket=None, speeds=SPEEDS).bits > slow.bits, "one norm for a million coordinates is noisier"


def test_bits_that_never_pay():
    noisy = compression(10**6, 1.0, bits=[1, 2], bucket=None, speeds=SPEEDS)
    assert noisy.bits == 32 and noisy.break_even == 0 and "no link" in noisy.verdict
    free = compression(10**6, 1e12, bits=[16], speeds={16: (np.inf, 2e9), 32: (np.inf, 1e9)})
    assert free.break_even == np.inf and free.bits == 16


def test_speeds_are_measured_where_not_given():
    encode, decode = measured_speed(QSGD(4, 512), 1 << 16)
    assert 1e6 < encode < 1e11 and 1e6 < decode < 1e11 and measured_speed(Plain(), 1 << 12)[0] == np.inf
    answer = compression(1 << 16, 1e6, bits=[4, 8])
    assert answer.bits == 8 and answer.to_dict()["choices"][0]["bits"] == 4
    text = str(answer).splitlines()
    assert len(text) == 5 and text[1].split() == ["bits", "bytes", "seconds", "omega", "cost", "pays", "below"]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: compression(0, 1e9), "1 <= dim"),
        (lambda: compression(10, 0), "bandwidth > 0"),
        (lambda: compression(10, float("nan")), "bandwidth > 0"),
        (lambda: compression(10, 1e9, bits=[17]), "bits=17"),
        (lambda: compression(10, 1e9, bits=[]), "whole bits"),
        (lambda: compression(10, 1e9, compute=-1.0), "compute >= 0"),
        (lambda: compression(10, 1e9, messages=0), "1 <= messages"),
        (lambda: compression(10, 1e9, speeds={4: (1.0, 1.0)}), "speeds"),
        (lambda: compression(10, 1e9, bucket=100), "multiple of 512"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(Invalid, match=words):
        call()
