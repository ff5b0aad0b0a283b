"""Need: decodability as a tree of k-of-n gates, for arrival times and for arrived sets alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid

Leaf = int | tuple[int, ...]
"""A message, or a tuple of copies of one message (several workers may send it; the first copy counts)."""


@door
@dataclass(frozen=True)
class Need:
    """At least `count` of the children `of`: messages, tuples of copies of a message, or further needs.

    The time of a tree is a nested order statistic, its truth value drives the live master.

    >>> rule = Need(2, (0, 1, (2, 3)))          # two of three messages; the third may come from two workers
    >>> float(rule.time(np.array([5.0, 1.0, 9.0, 2.0])))
    2.0
    >>> bool(rule.met(np.array([False, False, True, True])))
    False
    """

    count: int
    of: tuple[Leaf | Need, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(self.of):
            raise Invalid(
                f"Need(count, of) needs 1 <= count <= len(of), but got count={self.count} of {len(self.of)} children. "
                "Lower count or list more messages."
            )
        if any(isinstance(child, tuple) and not child for child in self.of):
            raise Invalid("Need(count, of) got an empty tuple of copies. Leave out messages that nobody sends.")

    def time(self, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the need is met: (..., M) arrival times to (...). The plain NumPy form; see kernels.py for the fast one."""
        times = np.concatenate(_child_times(self.of, arrivals), axis=-1)
        if self.count == 1:
            return np.asarray(times.min(axis=-1))
        return np.asarray(np.partition(times, self.count - 1, axis=-1)[..., self.count - 1])

    def met(self, got: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the need is met: (..., M) booleans to (...)."""
        return np.asarray(self.time(np.where(got, 0.0, np.inf)) < np.inf)

    @property
    def messages(self) -> frozenset[int]:
        """All messages that appear in the tree."""
        found: set[int] = set()
        for child in self.of:
            found |= {child} if isinstance(child, int) else child.messages if isinstance(child, Need) else set(child)
        return frozenset(found)

    @property
    def threshold(self) -> int:
        """How many distinct messages always suffice, whichever they are (copies of a message count once)."""
        return _worst(self)[1] + 1

    def renumber(self, new: NDArray[np.int64]) -> Need:
        """The same tree with message m called new[m]."""
        return Need(self.count, tuple(_renumber(child, new) for child in self.of))

    def flat(self, size: int) -> Flat:
        """The tree as arrays, children before parents; node i is called size + i."""
        counts: list[int] = []
        children: list[list[int]] = []
        _flatten(self, size, counts, children)
        ends = np.cumsum([0] + [len(c) for c in children])
        return Flat(np.array(counts), ends.astype(np.int64), np.array([c for row in children for c in row]))


@dataclass(frozen=True, eq=False)
class Flat:
    """A `Need` as arrays: node i needs counts[i] of children[start[i]:start[i + 1]]; the last node is the root."""

    counts: NDArray[np.int64]
    start: NDArray[np.int64]
    children: NDArray[np.int64]


def all_of(needs: tuple[Leaf | Need, ...]) -> Need:
    """The need for every one of the children."""
    return Need(len(needs), needs)


def _child_times(of: tuple[Leaf | Need, ...], arrivals: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """One (..., children) array for each kind of child; copies of the same number are gathered at once."""
    singles = [child for child in of if isinstance(child, int)]
    copies: dict[int, list[tuple[int, ...]]] = {}
    for child in of:
        if isinstance(child, tuple):
            copies.setdefault(len(child), []).append(child)
    times = [arrivals[..., singles]] if singles else []
    times += [arrivals[..., np.array(group)].min(axis=-1) for group in copies.values()]
    times += [child.time(arrivals)[..., None] for child in of if isinstance(child, Need)]
    return times


def _worst(child: Leaf | Need) -> tuple[int, int]:
    """(messages below, most messages that can be there without meeting the child)."""
    if not isinstance(child, Need):
        return 1, 0
    below = [_worst(c) for c in child.of]
    gains = sorted((size - short for size, short in below), reverse=True)
    return sum(size for size, _ in below), sum(short for _, short in below) + sum(gains[: child.count - 1])


def _renumber(child: Leaf | Need, new: NDArray[np.int64]) -> Leaf | Need:
    if isinstance(child, Need):
        return child.renumber(new)
    return int(new[child]) if isinstance(child, int) else tuple(int(new[m]) for m in child)


def _flatten(child: Any, size: int, counts: list[int], children: list[list[int]]) -> int:
    """Append the child's subtree and return its index: messages keep theirs."""
    if isinstance(child, int):
        return child
    count, of = (child.count, child.of) if isinstance(child, Need) else (1, child)
    below = [_flatten(c, size, counts, children) for c in of]
    counts.append(count)
    children.append(below)
    return size + len(counts) - 1
