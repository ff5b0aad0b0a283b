"""The entries of the catalogue, made from the facts that stand in the files of the schemes."""

from __future__ import annotations

from dataclasses import dataclass

from unstraggle import Code, parse_code
from unstraggle.codes import SCHEMES
from unstraggle.codes.facts import GROUPS, Facts

N = 12
"""Workers of all examples."""

P = tuple(round(0.1 + 0.05 * worker, 2) for worker in range(N))
"""Straggle probabilities of the approximate examples: workers that differ, as in [C]."""


@dataclass(frozen=True)
class Entry(Facts):
    """The facts of a scheme, and its example as a code."""

    def code(self, p: tuple[float, ...] = P) -> Code:
        """The example, designed for these straggle probabilities where it needs them."""
        return parse_code(self.expression(p))


ENTRIES = tuple(Entry(**vars(facts)) for group in GROUPS for facts in SCHEMES.values() if facts.group == group)
"""One entry a public scheme, in the order of the page."""

__all__ = ["ENTRIES", "GROUPS", "Entry", "N", "P"]
