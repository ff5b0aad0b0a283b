"""Checks of what people pass: numbers in their range, and names, of which an unknown one is refused with the nearest."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .errors import Invalid


def suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them where none is near.

    >>> suggestion("lokal", ["local", "ray"])
    'Did you mean local?'
    >>> suggestion("cloud", ["mpi", "ray"])
    'Known: mpi, ray.'
    >>> suggestion("cyclc", ["cyclic_repetition", "uncoded"])
    'Did you mean cyclic_repetition?'
    """
    names = list(known)
    starts = {one[: len(name)]: one for one in reversed(names)}
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    near = near or [starts[start] for start in difflib.get_close_matches(name, starts, n=1, cutoff=0.7)]
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(names)}."


def require_known(kind: str, name: str, known: Iterable[str]) -> str:
    """The name, if it is known. kind: what it names, for the message."""
    names = list(known)
    if name not in names:
        raise Invalid(f"Unknown {kind} {name!r}. {suggestion(name, names)}")
    return name


def require_count(scheme: str, name: str, value: Any, least: int, most: int, why: str) -> int:
    """An integer in a range, or an error that says which."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise Invalid(f"{scheme} needs an integer {name} with {least} <= {name} <= {most}, but got {name}={value!r}. {why}")
    return int(value)


def sparse(name: str, table: Any) -> Any:
    """A table (rows, columns) of numbers as a new sparse one."""
    from scipy.sparse import csr_array  # here: workers start without it

    try:
        found = csr_array(table, copy=True)
    except (TypeError, ValueError) as error:
        raise Invalid(f"{name} needs a table (rows, columns) of numbers, but got {type(table).__name__}: {error}.") from error
    if len(found.shape) != 2:
        raise Invalid(f"{name} needs a table (rows, columns) of numbers, but got shape {found.shape}.")
    return found


def require_workers(scheme: str, n: Any) -> int:
    """A number of workers."""
    return require_count(scheme, "n", n, 1, 10**6, "Give the number of workers.")


def require_stragglers(scheme: str, n: Any, s: Any) -> tuple[int, int]:
    """A number of workers and how many of them may be missing."""
    n = require_workers(scheme, n)
    return n, require_count(scheme, "s", s, 0, n - 1, "At least one worker must be heard, so s is at most n - 1.")


def require_load(scheme: str, n: Any, load: Any) -> tuple[int, int]:
    """A number of workers and of partitions a worker computes."""
    n = require_workers(scheme, n)
    return n, require_count(scheme, "load", load, 1, n, "A worker computes each of the n partitions at most once.")


def parsed_json(text: str | bytes) -> Any:
    """What a JSON text holds; a ValueError where it is none, or is nested deeper than Python can follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None


def require_writable(kind: str, path: Any) -> Path:
    """A path to which a file can be written, or an error now and not after much work. kind: of the file, for the message."""
    try:
        file = Path(path)
        there = file.exists()
        if there and not file.is_file():
            raise Invalid(f"The {kind} {file} is not a file. Give another path.")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
        if not there:
            file.unlink()  # whoever reads it expects more than an empty file
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, Invalid) else Invalid(f"The {kind} needs a path, but got {path!r}.") from error
    except OSError as error:
        raise Invalid(f"The {kind} {path} cannot be written: {error.strerror}. Give another path.") from error
    return file
