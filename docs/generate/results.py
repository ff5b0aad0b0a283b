"""Tables from whatever a benchmark's result holds: rows, groups of rows, and loose values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import text

MEAN_AND_HALF = {"step", "to_target", "loss", "accuracy", "measured_s", "work_conserving_over_it"}
"""Pairs under these names are a mean and the half width of its 95 % interval."""

ALIKE = 0.3
"""Rows stand in one table when they share this much of their columns."""

WIDEST = 12
"""Columns of a table; beyond, what is nested in its rows gets tables of its own."""

Rows = list[dict[str, Any]]
Path = tuple[str, ...]
Piece = tuple[Path, str]
"""Where something stands in a result, and its text."""


def tables(body: Mapping[str, Any]) -> Iterator[str]:
    """What a result holds, piece by piece; a title stands where it changes."""
    before = ""
    for path, piece in pieces(body, ()):
        title = ", ".join(text.words(name) for name in path if name != "rows")
        yield piece if title == before else f"**{title}**\n\n{piece}"
        before = title


def pieces(body: Mapping[str, Any], path: Path) -> Iterator[Piece]:
    """Loose values first, then groups with the same names beside each other, then every list of rows and every other group."""
    loose = {key: value for key, value in body.items() if not _nested(value)}
    if loose:
        yield path, "\n".join(f"- {text.words(key)}: {cell(key, value)}" for key, value in loose.items())
    beside, taken = _side_by_side(body, path[-1] if path else "")
    for rows in beside:
        yield from row_tables(rows, path)
    for key, value in body.items():
        here = (*path, key)
        if _is_rows(value):
            for rows in alike(value):
                yield from row_tables(rows, here)
        elif _nested(value) and key not in taken:
            yield from pivoted(value, here) if _is_family(value) else pieces(value, here)


def _side_by_side(body: Mapping[str, Any], head: str) -> tuple[list[Rows], set[str]]:
    """Groups of plain values with the same names: they are rows of one table, and which they are."""
    plain = [{head: text.words(key), **value} for key, value in body.items() if _is_plain(value)]
    groups = [rows for rows in alike(plain) if len(rows) > 1]
    names = {row[head] for rows in groups for row in rows}
    return groups, {key for key in body if text.words(key) in names}


def pivoted(family: Mapping[str, Mapping[str, Any]], path: Path) -> Iterator[Piece]:
    """Several things with the same inner parts: a table per part, with a row or rows per thing."""
    for part in dict.fromkeys(part for inner in family.values() for part in inner):
        rows: Rows = []
        for name, value in ((name, inner[part]) for name, inner in family.items() if part in inner):
            several = value if _is_rows(value) else [value if isinstance(value, dict) else {part: value}]
            rows += [{path[-1]: name, **row} for row in several]
        yield from row_tables(rows, (*path, part))


def alike(rows: Rows) -> list[Rows]:
    """Rows grouped by what they hold, in order of appearance."""
    groups: list[Rows] = []
    for row in rows:
        home = next((group for group in groups if _shared(set(row), set(group[0])) >= ALIKE), None)
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    return groups


def row_tables(rows: Rows, path: Path) -> Iterator[Piece]:
    """Rows as one table, or as one for each thing that is nested in them where one would be too wide; notes below the last."""
    notes = [f"\n- {next(iter(row.values()))}: {row['note']}" for row in rows if "note" in row]
    kept = [{key: value for key, value in row.items() if key != "note"} for row in rows]
    nested = list(dict.fromkeys(key for row in kept for key, value in row.items() if isinstance(value, dict)))
    found = [(path, _table(kept))]
    if len(nested) > 1 and max(len(dict(_flat(row))) for row in kept) > WIDEST:
        found = [((*path, part), _table([_only(row, part, nested) for row in kept])) for part in nested]
    yield from found[:-1]
    yield found[-1][0], found[-1][1] + "\n".join(["", *notes])


def _only(row: Mapping[str, Any], part: str, nested: list[str]) -> dict[str, Any]:
    """A row with its own values and those of one nested part."""
    return {key: value for key, value in row.items() if key not in nested} | dict(row.get(part, {}))


def _table(rows: Rows) -> str:
    flat = [dict(_flat(row)) for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    body = [[cell(key, row[key]) if key in row else "" for key in columns] for row in flat]
    return text.table([text.words(column) for column in columns], body)


def cell(key: str, value: Any) -> str:
    """A value as text: pairs with ±, long lists by their ends, counts by number as they are."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {text.number(each)}" for name, each in value.items())
    if not isinstance(value, list):
        return text.number(value)
    if key in MEAN_AND_HALF and len(value) == 2:
        return text.plus_minus(*value)
    if len(value) > 4:
        return f"{text.number(value[0])} ... {text.number(value[-1])} ({len(value)} values)"
    return ", ".join(text.number(each) for each in value) or "none"


def _flat(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}: ")
        else:
            yield before + key, value


def _nested(value: Any) -> bool:
    return (isinstance(value, dict) and not _is_counts(value)) or _is_rows(value)


def _is_counts(value: dict[str, Any]) -> bool:
    """How many there are of each number: short enough for a cell."""
    return all(key.isdigit() and not isinstance(each, dict | list) for key, each in value.items())


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _is_plain(value: Any) -> bool:
    """A dictionary without anything nested in it."""
    return isinstance(value, dict) and _nested(value) and not any(_nested(each) for each in value.values())


def _is_family(value: Any) -> bool:
    """Several dictionaries of which the first two share a name."""
    inner = list(value.values()) if isinstance(value, dict) else []
    return (
        len(inner) > 1 and all(isinstance(each, dict) and _nested(each) for each in inner) and bool({*inner[0]} & {*inner[1]})
    )


def _shared(some: set[str], other: set[str]) -> float:
    return len(some & other) / len(some | other)
