"""Names of codes: the expression that makes a code, or, in angle brackets, words that say that none does."""

from __future__ import annotations

from typing import Any


def no_expression(words: str) -> str:
    """The name of a code that no expression makes. It cannot be parsed, nor can that of a code around it: save such a code.

    >>> no_expression("uncoded(4), work as measured")
    '<uncoded(4), work as measured>'
    """
    return f"<{words}>"


def number(value: Any) -> str:
    """A number as an expression reads it, all its digits.

    >>> number(4.0), number(0.1 + 0.2)
    ('4', '0.30000000000000004')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def seeded(seed: int) -> str:
    """What a name says of a seed: nothing where it is the usual one."""
    return f", seed={seed}" if seed else ""
