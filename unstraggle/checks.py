"""Checks of what people pass: numbers in their range, and names, of which an unknown one is refused with the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
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
