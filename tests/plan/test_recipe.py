"""Planners call constructors: no text is made only to be parsed."""

import re
from itertools import islice
from pathlib import Path

import pytest

import unstraggle
from unstraggle import parse_code
from unstraggle.plan.designs import all_vectors, different_designs, shared_designs
from unstraggle.testing import same_code


def test_planners_know_nothing_of_expressions():
    sources = sorted((Path(unstraggle.__file__).parent / "plan").glob("*.py"))
    assert len(sources) > 15
    assert [path.name for path in sources if re.search(r"parse_code|study\.expression", path.read_text())] == []


@pytest.mark.parametrize("design", [*shared_designs(6, 3), *islice(different_designs(6, 3, all_vectors(3)), 20)], ids=str)
def test_designs_are_named_like_their_codes(design):
    code = design.build()
    assert design.name == code.name and same_code(parse_code(design.name), code)
