"""Names that people type: an unknown one is refused with the nearest that is known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

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
