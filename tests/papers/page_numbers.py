"""Numbers on the pages of papers/: how they are read, and which are left over when those of the results are taken away.

A fact is what a result says, in the words of the page: it has to be there. A setting is a number that is not measured: a
parameter, a claim of the paper, a name, an equation. Tables are compared with the results whole; code and links have tests in
tests/house.
"""

import importlib.util
import re
from pathlib import Path

PAPERS = Path(__file__).parents[2] / "papers"
SPEC = importlib.util.spec_from_file_location("papers_tables", PAPERS / "tables.py")
tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tables)

NUMBER = re.compile(r"(?<![\w.^])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
NOT_TEXT = re.compile(r"<!-- table.*?<!-- end -->|`[^`]*`|\]\([^)]*\)|https?://\S+", re.DOTALL)


def read(paper):
    return (PAPERS / paper / "README.md").read_text()


def left_over(page, facts, settings):
    """Numbers of a page's text that are neither a fact, which must be there, nor a setting."""
    text = " ".join(NOT_TEXT.sub(" ", page).split())
    missing = [fact for fact in facts if fact not in text]
    assert not missing
    for words in sorted([*facts, *settings], key=len, reverse=True):
        text = text.replace(words, " ")
    return [(number, text[max(0, at - 40) : at + 20]) for number, at in ((m[0], m.start()) for m in NUMBER.finditer(text))]
