"""Recovery: is what has arrived so far enough? Incremental, one arrival at a time, by rule or by span."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .decoders import Decoder, Linear
from .rule import Need

By = Literal["rule", "span"]

Load = Literal["all", "cluster_stop"]
"""Which messages are sent: all until the round ends, or a cluster stops as soon as it is recovered."""

SPAN_TOLERANCE = 1e-8
"""The target counts as inside the span when its relative distance from it is below this."""

DEPENDENT = 1e-10
"""A row of length 1 adds nothing when it lies this close to the span of those before it."""


class Progress(Protocol):
    """What is known of one part: add a message of it, ask whether it is recovered."""

    met: bool

    def add(self, message: int) -> None: ...


class Tally:
    """A rule with counters: an arrival costs a step for each gate that it completes."""

    def __init__(self, rule: Need, size: int) -> None:
        flat = rule.flat(size)
        self._size = size
        self._missing = flat.counts.tolist()
        self._parents: list[list[int]] = [[] for _ in range(size + len(flat.counts))]
        owner = np.repeat(np.arange(len(flat.counts)), np.diff(flat.start))
        for child, node in zip(flat.children.tolist(), owner.tolist(), strict=True):
            self._parents[child].append(node)
        self.met = False

    def add(self, message: int) -> None:
        """Count a message; each message may be added once."""
        completed = [message]
        while completed:
            for node in self._parents[completed.pop()]:
                self._missing[node] -= 1
                if self._missing[node] == 0:
                    completed.append(self._size + node)
        self.met = self._missing[-1] <= 0


class SpanProgress:
    """An orthonormal basis of the arrived rows: an arrival costs one projection, nothing is solved again.

    Classical Gram-Schmidt, done twice, which keeps the basis orthogonal to working precision.
    """

    def __init__(self, part: Linear) -> None:
        self._ids, self._rows = part.ids, part.distinct
        self._seen = np.zeros(len(self._rows), dtype=bool)
        self._basis = np.empty((min(self._rows.shape), self._rows.shape[1]), dtype=self._rows.dtype)
        self._rank = 0
        self._rest: NDArray[Any] = part.target.astype(self._rows.dtype)
        self._goal = SPAN_TOLERANCE * float(np.linalg.norm(part.target))
        self.met = False

    def add(self, message: int) -> None:
        """Take one row into the basis and out of what is left of the target."""
        row = self._ids[message]
        if self.met or self._seen[row] or self._rank == len(self._basis):
            return
        self._seen[row] = True
        basis, vector = self._basis[: self._rank], self._rows[row]
        for _ in range(2):
            vector = vector - (basis.conj() @ vector) @ basis
        length = np.linalg.norm(vector)
        if length <= DEPENDENT:
            return
        self._basis[self._rank] = vector / length
        self._rest = self._rest - (self._basis[self._rank].conj() @ self._rest) * self._basis[self._rank]
        self._rank += 1
        self.met = bool(np.linalg.norm(self._rest) <= self._goal)


class Tracker:
    """Progress of all parts of a code during one round."""

    def __init__(self, decoder: Decoder, by: By) -> None:
        parts = decoder.parts()
        self.part = np.full(decoder.size, -1)
        self._place = np.zeros(decoder.size, dtype=np.int64)
        for number, part in enumerate(parts):
            self.part[part.messages] = number
            self._place[part.messages] = np.arange(len(part.messages))
        self._progress = [_progress(part.decoder, by) for part in parts]

    def add(self, message: int) -> None:
        """Tell the message's part that it arrived."""
        self._progress[self.part[message]].add(int(self._place[message]))

    @property
    def parts_met(self) -> NDArray[np.bool_]:
        """(parts,) which parts are recovered."""
        return np.array([progress.met for progress in self._progress])

    @property
    def met(self) -> bool:
        """Whether all of them are."""
        return all(progress.met for progress in self._progress)


def require_by(decoder: Decoder, by: str) -> By:
    """Check the notion of recovered: a known one, and a rule where a rule is asked for."""
    if by not in ("rule", "span"):
        raise Invalid(f'by must be "rule" (the threshold of the paper) or "span" (linear algebra), but got {by!r}.')
    if by == "rule" and decoder.rule is None:
        raise Invalid('This code has no threshold rule, so by="rule" cannot decide. Use by="span".')
    return by  # type: ignore[return-value]


def _progress(part: Linear, by: By) -> Progress:
    if by == "span":
        return SpanProgress(part)
    assert part.rule is not None
    return Tally(part.rule, part.size)
