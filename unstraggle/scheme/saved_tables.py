"""Tables, rules and decoders as numbers under names, and back: what `saved` puts into a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import Invalid
from .decoders import Fixed, LeastSquares, Linear, OneStep, Part, Span
from .handing import OnRequest
from .rule import Need

Arrays = dict[str, NDArray[Any]]

NUMBERS = "biufc"
"""Kinds of arrays that are saved: truth values, whole, real and complex numbers."""


def put(arrays: Arrays, prefix: str, values: dict[str, Any], names: Sequence[str]) -> None:
    for name in names:
        value, key = values[name], f"{prefix}.{name}"
        if isinstance(value, csr_array):
            ordered = value.sorted_indices()
            arrays.update({f"{key}.data": ordered.data, f"{key}.indices": ordered.indices, f"{key}.indptr": ordered.indptr})
            value, key = np.array(ordered.shape), f"{key}.shape"
        arrays[key] = np.asarray(value)
        if arrays[key].dtype.kind not in NUMBERS:
            raise Invalid(f"A code can be saved where its decoder has numbers only, but {key} is {type(value).__name__}.")


def piece(arrays: Arrays, number: int, part: Part) -> dict[str, Any]:
    """One part of the decoder: its numbers go to the tables, its kind and rule are returned."""
    decoder = part.decoder
    if not isinstance(decoder, Linear):
        raise Invalid(
            f"This code cannot be saved, for its decoder {type(decoder).__name__} is not a Linear one. "
            "Save what it is made from, or let the decoder be a frozen dataclass that is a kind of Linear."
        )
    values = {**{field.name: getattr(decoder, field.name) for field in fields(decoder)}, "of": part.messages}
    names = [name for name in values if name != "rule"]
    put(arrays, f"decoder.{number}", values, names)
    return {"kind": type(decoder).__name__, "rule": _rule_words(decoder.rule), "fields": names}


def part(arrays: Arrays, number: int, words: dict[str, Any], decoders: Sequence[type[Linear]]) -> Part:
    prefix = f"decoder.{number}"
    kind = _kind(words["kind"], decoders)
    given = {name: _value(arrays, f"{prefix}.{name}") for name in words["fields"]}
    messages = np.asarray(given.pop("of"))
    unknown = set(given) - {field.name for field in fields(kind)}
    if unknown or messages.ndim != 1 or messages.dtype.kind not in "iu":
        raise Invalid(f"A saved decoder {words['kind']} does not fit this version: {sorted(unknown) or 'no list of messages'}.")
    decoder = kind(rule=_rule(words["rule"], len(messages)), **given)
    if decoder.size != len(messages) or decoder.target.shape[-1:] != decoder.rows.shape[1:] or decoder.target.ndim > 2:
        raise Invalid(f"A saved decoder has rows {decoder.rows.shape} for {len(messages)} messages and {decoder.target.shape}.")
    return Part(messages.astype(np.int64), decoder)


def _kind(name: Any, decoders: Sequence[type[Linear]]) -> type[Linear]:
    kinds: list[type[Linear]] = [Span, LeastSquares, Fixed, OneStep, OnRequest, *decoders]
    known = {kind.__name__: kind for kind in kinds}
    if name not in known:
        raise Invalid(f"The saved decoder {name!r} is not of this library. Give its class: Code.read(path, decoders=[...]).")
    return known[name]


def require_split(pieces: Sequence[Part], count: int) -> None:
    """Every message belongs to one part."""
    listed = np.concatenate([piece.messages for piece in pieces]) if pieces else np.empty(0)
    if not np.array_equal(np.sort(listed), np.arange(count)):
        raise Invalid(f"A saved decoder needs each of the {count} messages in one of its parts.")


def _value(arrays: Arrays, key: str) -> Any:
    """A sparse table, an array, or a number."""
    if f"{key}.indptr" in arrays:
        return sparse(arrays, key)
    value = arrays[key]
    return value.item() if value.ndim == 0 else value


def sparse(arrays: Arrays, key: str) -> csr_array[Any]:
    parts = [arrays[f"{key}.{name}"] for name in ("data", "indices", "indptr")]
    rows, columns = arrays[f"{key}.shape"].tolist()
    table = csr_array(tuple(parts), shape=(int(rows), int(columns)))
    table.check_format(full_check=True)  # places outside the table would be read all the same
    return table


def _rule_words(rule: Need | None) -> Any:
    if rule is None:
        return None
    return {"count": int(rule.count), "of": [_rule_words(each) if isinstance(each, Need) else each for each in rule.of]}


def _rule(words: Any, size: int) -> Need | None:
    if words is None:
        return None
    rule = Need(_whole(words["count"]), tuple(_children(words["of"], size)))
    if not all(0 <= message < size for message in rule.messages):
        raise Invalid(f"A saved rule names messages that are not among the {size} of its part.")
    return rule


def _children(words: Sequence[Any], size: int) -> Iterator[Any]:
    for each in words:
        if isinstance(each, dict):
            yield _rule(each, size)
        else:
            yield tuple(map(_whole, each)) if isinstance(each, list) else _whole(each)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Invalid(f"A saved rule needs whole numbers, but has {value!r}.")
    return value
