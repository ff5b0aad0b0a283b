"""Markdown from values: tables, numbers as people write them, and files that are written only when they change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the first column to the left, the others as they are.

    >>> print(table(["a", "b"], [["1", "x | y"]]))
    | a | b |
    |---|---|
    | 1 | x \\| y |
    """
    lines = [_line(head), "|" + "---|" * len(head), *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def number(value: Any, digits: int = 4) -> str:
    """A value in a cell: thousands apart, so many significant digits, yes and no, a dash for what is not there.

    >>> [number(value) for value in (1234567, 0.123456, 12345.6, 2.0, True, None, "x", 1e-9)]
    ['1,234,567', '0.1235', '12,346', '2', 'yes', '-', 'x', '1e-09']
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def plus_minus(mean: float, half: float) -> str:
    """A mean and its half width, two digits of the latter, on one line.

    >>> plus_minus(12.1401, 1.0768), plus_minus(0.1, 0.0049), plus_minus(1.0, 0.0)
    ('12.1\\xa0±\\xa01.1', '0.1000\\xa0±\\xa00.0049', '1\\xa0±\\xa00')
    """
    places = max(0, 1 - math.floor(math.log10(half))) if half > 0 else 0
    return f"{mean:.{places}f}\xa0±\xa0{half:.{places}f}"


def words(name: str) -> str:
    """A name of a program as words.

    >>> words("us_a_message")
    'us per message'
    """
    return name.replace("_a_", "_per_").replace("_", " ")


def save(path: Path, text: str) -> None:
    """Write a text unless it is there already, so that a second build has less to do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
