"""Every public code keeps the contract that is shipped for strangers."""

import numpy as np
import pytest

from unstraggle import parse_code
from unstraggle.testing import check_code

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example
from ..folding import folded


@pytest.mark.parametrize("expression", EXAMPLES)
def test_code_keeps_its_promises(expression):
    report = check_code(example(expression))
    assert report.sets >= 50 and report.worst_error <= 1e-7


UNBIASED = {
    "ignore_stragglers(4, p=[0.1, 0.2, 0.3, 0.4])": [0.1, 0.2, 0.3, 0.4],
    "stochastic(8, p=0.3)": 0.3,
    "stochastic(13, p=0.3, copies=4, placement='balanced')": 0.3,
    "optimally_structured([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
}


@pytest.mark.parametrize("expression", APPROXIMATE_EXAMPLES)
def test_approximate_code_keeps_its_promises(expression):
    p = UNBIASED.get(expression, 0.2)
    report = check_code(example(expression), p=p, unbiased=expression in UNBIASED)
    assert report.sets == 500 and 0 < report.mean_squared_error < 3 and "keeps its promises" in str(report)


def test_names_are_expressions_for_the_same_codes():
    with folded() as case:
        for expression in EXAMPLES + APPROXIMATE_EXAMPLES:
            with case(expression):
                check_name(example(expression))


def check_name(code):
    again = parse_code(code.name)
    assert again.name == code.name and again.n == code.n
    assert np.array_equal(again.messages.coef.toarray(), code.messages.coef.toarray())
    assert np.array_equal(again.ready(), code.ready())


def test_codes_print_as_small_tables():
    with folded() as case:
        for expression in EXAMPLES:
            with case(expression):
                text = str(example(expression))
                assert "threshold" in text and "noise gain" in text and "load" in text
