"""cite: every scheme has its papers, composed codes have those of all their parts, and CITATION.cff agrees with the package."""

import re
from pathlib import Path

import pytest

import unstraggle as us
from unstraggle import Invalid, cite, codes
from unstraggle.app.citations import OWN, entries, keys, papers_of

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES

ROOT = Path(__file__).parents[2]


def test_every_paper_of_a_scheme_has_an_entry_and_every_entry_is_used():
    used = {key for name in codes.SCHEMES for key in papers_of(name)} | {"li2024distributed", OWN}
    assert used == set(entries())


@pytest.mark.parametrize("key", entries())
def test_entries_are_bibtex(key):
    entry = entries()[key]
    assert entry.startswith("@") and entry.endswith("}") and entry.count("{") == entry.count("}")
    fields = dict(re.findall(r"^  (\w+)\s*= \{(.*)\},$", entry, re.MULTILINE))
    assert {"title", "author"} <= set(fields) and len(fields) == entry.count("\n") - 1
    assert key == OWN or key.startswith(fields["author"].split(",")[0].lower() + fields["year"])


def test_composed_codes_cite_all_their_parts():
    text = cite(us.parse_code("blocks([0.5, 0.5], uncoded(4), cluster(cyclic_repetition(2, s=1), times=2))"))
    assert re.findall(r"@\w+\{(\w+),", text) == [
        "wang2021optimization",
        "ozfatura2019gradient",
        "tandon2017gradient",
        "raviv2018gradient",
        OWN,
    ]
    assert keys("quantize(fractional_repetition(4, s=1), bits=4)") == ("alistarh2017qsgd", "tandon2017gradient")
    assert "li2024distributed" in keys("quantize(stochastic(4, p=0.3), bits=1, force=True)")
    assert keys("uncoded(4)") == () and f"version = {{{us.__version__}}}" in cite("uncoded(4)")


@pytest.mark.parametrize("text", [*EXAMPLES, *APPROXIMATE_EXAMPLES])
def test_all_example_codes_can_be_cited(text):
    assert re.findall(r"^@\w+\{(\w+),", cite(text), re.MULTILINE) == [*keys(text), OWN]
    assert set(papers_of(text.split("(")[0])) <= set(keys(text))


def test_plans_can_be_cited():
    plan = us.plan.redundancy(us.latency.ShiftedExponential(rate=10, shift=0.01), n=6)
    assert keys(plan) == keys(plan.code) != ()


def test_bad_input():
    with pytest.raises(Invalid, match="cite takes a Code"):
        cite(3)
    with pytest.raises(Invalid, match="Did you mean"):
        cite("cyclic_repetion(3, s=1)")


def test_citation_file_agrees_with_the_package():
    text = (ROOT / "CITATION.cff").read_text()
    assert (
        f"\nversion: {us.__version__}\n" in text and text.startswith("cff-version: 1.2.0\n") and "license: Apache-2.0" in text
    )
    for key in ("ozfatura2019gradient", "wang2021optimization", "song2026communication"):
        title = re.search(r"title\s*= \{(.*)\}", entries()[key])[1]
        assert title in text
