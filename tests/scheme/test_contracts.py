"""Every public code keeps the contract that is shipped for strangers, and every scheme is among the examples."""

import numpy as np
import pytest

from unstraggle import codes, parse_code
from unstraggle.testing import check_code

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example


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


@pytest.mark.parametrize("expression", EXAMPLES + APPROXIMATE_EXAMPLES)
def test_name_is_an_expression_for_the_same_code(expression):
    code = example(expression)
    again = parse_code(code.name)
    assert again.name == code.name and again.n == code.n
    assert np.array_equal(again.messages.coef.toarray(), code.messages.coef.toarray())
    assert np.array_equal(again.ready(), code.ready())


@pytest.mark.parametrize("scheme", [name for name in codes.__all__ if name.islower()])
def test_every_scheme_has_an_example(scheme):
    examples = APPROXIMATE_EXAMPLES if scheme in codes.APPROXIMATE else EXAMPLES
    assert any(f"{scheme}(" in expression for expression in examples)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_code_prints_as_a_small_table(expression):
    text = str(example(expression))
    assert "threshold" in text and "noise gain" in text and "load" in text
