"""Expressions: known names and literals, and nothing that could run."""

import pytest

from unstraggle import Invalid, parse_code, parse_latency
from unstraggle.latency import Exponential, ShiftedExponential

HOSTILE = [
    "__import__('os').system('true')",
    "cyclic_repetition(10, s=2).__class__",
    "cyclic_repetition(*[10, 2])",
    "cyclic_repetition(**{'n': 10, 's': 2})",
    "(lambda: 1)()",
    "[c for c in (1,)]",
    "uncoded(open('x'))",
    "uncoded(n := 3)",
    "uncoded(f'{3}')",
    "uncoded(9**9**9)",
    "codes.uncoded(3)",
    "uncoded",
    "3",
    "uncoded(3); uncoded(4)",
    "uncoded(3",
    "",
    "(" * 5000,
    "uncoded(" * 3000 + ")" * 3000,
    "uncoded(3)" + " " * 20_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_only_calls_of_known_names_with_literals(text):
    with pytest.raises(Invalid):
        parse_code(text)


def test_nested_codes_and_lists():
    code = parse_code("hybrid(cluster(uncorrelated_mmc(5, load=5, orders=[3, 5]), times=2))")
    assert code.n == 10 and code.threshold == 13
    assert parse_code(" blocks([1, 2], uncoded(4), cyclic_repetition(4, s=1)) ").blocks == pytest.approx((1 / 3, 2 / 3))


def test_latency_models():
    assert parse_latency("ShiftedExponential(rate=10, shift=0.01)") == ShiftedExponential(10, 0.01)
    assert parse_latency("Exponential(2)") == Exponential(2.0)
    with pytest.raises(Invalid, match="must be a call"):
        parse_latency("3")
