"""Citations: the papers behind what a code uses, as BibTeX."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from .. import __version__
from ..codes import SCHEMES
from ..doors import door
from ..errors import Invalid
from ..quantizers import QSGD, Sign
from ..scheme.code import Code

OWN = "unstraggle"


@door
def cite(code: Code | str | Any) -> str:
    """BibTeX of the papers whose schemes a code uses, and of this library: of a `Code`, an expression, or a `Plan`.

    >>> print(cite("cluster(correlated_mmc(10, load=10, order=6), times=4)").splitlines()[0])
    @misc{ozfatura2019gradient,
    >>> [line for line in cite("fractional_repetition(6, s=2)").splitlines() if line.startswith("@")]
    ['@inproceedings{tandon2017gradient,', '@software{unstraggle,']
    """
    return "\n\n".join(entries()[key] for key in (*keys(code), OWN)) + "\n"


def keys(code: Code | str | Any) -> tuple[str, ...]:
    """Keys of the papers, in the order in which the code's name has their schemes."""
    found = _coded(code)
    names = re.findall(r"([a-z_]+)\(", found.name)
    papers = [key for name in names if name in SCHEMES for key in papers_of(name)]
    codecs = {type(getattr(codec, "codec", codec)) for codec in found.messages.codec}  # of feedback, the one inside
    if codecs & {QSGD, Sign}:
        papers.append("alistarh2017qsgd")
    if Sign in codecs:
        papers.append("li2024distributed")
    return tuple(dict.fromkeys(papers))


def papers_of(scheme: str) -> tuple[str, ...]:
    """Keys of the papers of one scheme, from its facts.

    >>> papers_of("cyclic_repetition")
    ('tandon2017gradient', 'raviv2018gradient')
    """
    return tuple(_key(paper) if paper.startswith("@") else paper for paper in SCHEMES[scheme].papers)


@cache
def entries() -> dict[str, str]:
    """All entries of references.bib, and those that schemes bring along, by their keys."""
    text = (files(__package__) / "references.bib").read_text(encoding="utf-8").replace("VERSION", __version__)
    brought = [paper.strip() for facts in SCHEMES.values() for paper in facts.papers if paper.startswith("@")]
    return {_key(entry): entry for entry in [*text.strip().split("\n\n"), *brought]}


def _key(entry: str) -> str:
    found = re.match(r"@\w+\{(\w+),", entry)
    if not found:
        raise Invalid(f"A paper needs a BibTeX entry such as @misc{{name2024word, ...}}, but got {entry!r}.")
    return found[1]


def _coded(code: Any) -> Code:
    from ..study.expression import find_code

    if isinstance(code, str):
        return find_code(code)
    found = getattr(code, "code", code)
    if not isinstance(found, Code):
        raise Invalid(f"cite takes a Code, an expression such as 'uncoded(4)' or a Plan, but got {type(code).__name__}.")
    return found
