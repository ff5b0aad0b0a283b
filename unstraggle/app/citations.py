"""Citations: the papers behind what a code uses, as BibTeX."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from .. import __version__
from ..errors import Invalid
from ..quantizers import QSGD, Sign
from ..scheme.code import Code

SCHEMES: dict[str, tuple[str, ...]] = {
    "bernoulli": ("charles2017approximate",),
    "blocks": ("wang2021optimization",),
    "cluster": ("ozfatura2019gradient",),
    "correlated_mmc": ("ozfatura2019gradient",),
    "cyclic_repetition": ("tandon2017gradient", "raviv2018gradient"),
    "erasurehead": ("wang2019erasurehead",),
    "expander": ("raviv2018gradient",),
    "fractional_repetition": ("tandon2017gradient",),
    "hybrid": ("ozfatura2019gradient",),
    "ignore_stragglers": ("chen2016revisiting",),
    "lagrange": ("li2018polynomially",),
    "optimal_decoding": ("raviv2018gradient", "glasgow2021approximate"),
    "optimally_structured": ("song2025approximate", "song2026communication"),
    "partial_stragglers": ("tandon2017gradient",),
    "quantize": ("alistarh2017qsgd",),
    "reed_solomon": ("halbawi2018improving",),
    "stack": (),
    "stochastic": ("bitar2020stochastic",),
    "two_track": ("song2025approximate", "song2026communication"),
    "uncoded": (),
    "uncoded_mmc": ("ozfatura2019gradient",),
    "uncorrelated_mmc": ("ozfatura2019gradient",),
}
"""Papers of each scheme. stack is a sum of this library, and waiting for everyone is older than any paper."""

OWN = "unstraggle"


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
    papers = [paper for name in names for paper in SCHEMES.get(name, ())]
    codecs = {type(getattr(codec, "codec", codec)) for codec in found.messages.codec}  # of feedback, the one inside
    if codecs & {QSGD, Sign}:
        papers.append("alistarh2017qsgd")
    if Sign in codecs:
        papers.append("li2024distributed")
    return tuple(dict.fromkeys(papers))


@cache
def entries() -> dict[str, str]:
    """All entries of references.bib by their keys."""
    text = (files(__package__) / "references.bib").read_text(encoding="utf-8").replace("VERSION", __version__)
    return {re.match(r"@\w+\{(\w+),", entry)[1]: entry for entry in text.strip().split("\n\n")}  # type: ignore[index]


def _coded(code: Any) -> Code:
    from ..study.expression import parse_code

    if isinstance(code, str):
        return parse_code(code)
    found = getattr(code, "code", code)
    if not isinstance(found, Code):
        raise Invalid(f"cite takes a Code, an expression such as 'uncoded(4)' or a Plan, but got {type(code).__name__}.")
    return found
