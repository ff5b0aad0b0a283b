"""Every public code keeps the contract that is shipped for strangers."""

import numpy as np
import pytest

from unstraggle import parse_code
from unstraggle.testing import check_code

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example


@pytest.mark.parametrize("expression", EXAMPLES)
def test_code_keeps_its_promises(expression):
    report = check_code(example(expression))
    assert report.sets >= 50 and report.worst_error <= 1e-7


@pytest.mark.parametrize("expression", EXAMPLES + APPROXIMATE_EXAMPLES)
def test_name_is_an_expression_for_the_same_code(expression):
    code = example(expression)
    again = parse_code(code.name)
    assert again.name == code.name and again.n == code.n
    assert np.array_equal(again.messages.coef.toarray(), code.messages.coef.toarray())
    assert np.array_equal(again.ready(), code.ready())


@pytest.mark.parametrize("expression", EXAMPLES)
def test_code_prints_as_a_small_table(expression):
    text = str(example(expression))
    assert "threshold" in text and "noise gain" in text and "load" in text
