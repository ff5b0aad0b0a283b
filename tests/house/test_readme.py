"""What a new user looks for in the README: how to install it, and how much redundant data it takes."""

import re
import tomllib

from unstraggle import codes

from ..pages import ROOT

TEXT = " ".join((ROOT / "README.md").read_text().split())
SCHEMES = ("GC-MMC", "LCC, 2 messages", "hybrid by span")
"""Names in the table of paper A's figure, which is long and stands on its own page."""


def test_an_install_line_with_extras_that_there_are():
    line = re.search(r"## Install .*?``` (pip install .*?)```", TEXT)[1]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r"\[(\w+)\]", line))
    assert "torch" in named and named <= extras.keys() and "`pip install .`" in line


def test_how_much_redundant_data_it_takes():
    """It said "a little"."""
    assert "each holds s + 1 of n partitions, so it computes s + 1 times its share" in TEXT
    assert "with one spare among 8 workers, a quarter of the data instead of an eighth" in TEXT
    spare = codes.cyclic_repetition(8, s=1)
    assert spare.load / spare.n == 1 / 4 and codes.uncoded(8).load / 8 == 1 / 8
    assert not any("a little redundant" in text for text in (TEXT, (ROOT / "docs/index.md").read_text()))


def test_the_table_of_a_paper_stands_on_its_page():
    page = (ROOT / "papers/mmc_clustering/README.md").read_text()
    assert all(name in page for name in SCHEMES) and not any(f"| {name}" in TEXT for name in SCHEMES)
    assert "(papers/mmc_clustering/README.md)" in TEXT
