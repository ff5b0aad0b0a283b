"""Recovery: is what has arrived so far enough? Incremental, one arrival at a time, by rule or by span.

What does not change from round to round is prepared once for a code: `recovery_of(code, by).begin()` starts a round.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .code import Code
from .decoders import RANK, TOLERANCE, Decoder, LeastSquares, is_exact, parts_of
from .rule import Need

By = Literal["rule", "span"]

Sending = Literal["all", "cluster_stop"]
"""Which messages are sent: all until the round ends, or a cluster stops as soon as it is recovered."""


class Progress(Protocol):
    """What is known of one part: add a message of it, ask whether it is recovered."""

    met: bool

    def add(self, message: int) -> None: ...


class Gates:
    """A rule, ready to be counted: which gates each message and each gate is a child of, and how many children each needs."""

    def __init__(self, rule: Need, size: int) -> None:
        flat = rule.flat(size)
        self.size, self.needed = size, flat.counts.tolist()
        parents: list[list[int]] = [[] for _ in range(size + len(flat.counts))]
        owner = np.repeat(np.arange(len(flat.counts)), np.diff(flat.start))
        for child, node in zip(flat.children.tolist(), owner.tolist(), strict=True):
            parents[child].append(node)
        self.parents = tuple(map(tuple, parents))

    def begin(self) -> Tally:
        return Tally(self)


class Tally:
    """A rule with counters: an arrival costs a step for each gate that it completes."""

    def __init__(self, gates: Gates) -> None:
        self._parents, self._size = gates.parents, gates.size
        self._missing = gates.needed.copy()
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


class Basis:
    """The rows of a part, ready to be projected."""

    def __init__(self, part: LeastSquares) -> None:
        self.ids, self.rows = part.ids.tolist(), part.distinct
        self.target: NDArray[Any] = np.atleast_2d(part.target).astype(self.rows.dtype)
        self.goal = TOLERANCE * float(np.linalg.norm(part.target))

    def begin(self) -> SpanProgress:
        return SpanProgress(self)


class SpanProgress:
    """An orthonormal basis of the arrived rows: an arrival costs one projection, nothing is solved again.

    Classical Gram-Schmidt, done twice, which keeps the basis orthogonal to working precision.
    """

    def __init__(self, part: Basis) -> None:
        self._ids, self._rows, self._goal = part.ids, part.rows, part.goal
        self._seen = np.zeros(len(self._rows), dtype=bool)
        self._basis = np.empty((min(self._rows.shape), self._rows.shape[1]), dtype=self._rows.dtype)
        self._rank = 0
        self._rest = part.target
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
        if length <= RANK:
            return
        self._basis[self._rank] = vector / length
        self._rest = self._rest - np.outer(self._rest @ self._basis[self._rank].conj(), self._basis[self._rank])
        self._rank += 1
        self.met = bool(np.linalg.norm(self._rest) <= self._goal)


class Asked:
    """A part whose decoder is no least squares: it is asked after every arrival."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self._got = decoder, np.zeros(decoder.size, dtype=bool)
        self.met = False

    def begin(self) -> Asked:
        return Asked(self._decoder)

    def add(self, message: int) -> None:
        self._got[message] = True
        self.met = bool(is_exact(self._decoder, self._got))


class Recovery:
    """The parts of a code and what it takes to recover them, prepared once."""

    def __init__(self, decoder: Decoder, by: By) -> None:
        parts = parts_of(decoder)
        self.part, place = np.full(decoder.size, -1), np.zeros(decoder.size, dtype=np.int64)
        for number, part in enumerate(parts):
            self.part[part.messages] = number
            place[part.messages] = np.arange(len(part.messages))
        self.where = list(zip(self.part.tolist(), place.tolist(), strict=True))
        self.prepared = [_prepared(part.decoder, by) for part in parts]

    def begin(self) -> Tracker:
        """The progress of a new round."""
        return Tracker(self)


class Tracker:
    """Progress of all parts of a code during one round."""

    def __init__(self, recovery: Recovery) -> None:
        self.part, self._where = recovery.part, recovery.where
        self._progress: list[Progress] = [part.begin() for part in recovery.prepared]
        self._open = len(self._progress)

    def add(self, message: int) -> None:
        """Tell the message's part that it arrived."""
        part, place = self._where[message]
        progress = self._progress[part]
        if not progress.met:
            progress.add(place)
            self._open -= progress.met

    @property
    def parts_met(self) -> NDArray[np.bool_]:
        """(parts,) which parts are recovered."""
        return np.array([progress.met for progress in self._progress])

    @property
    def met(self) -> bool:
        """Whether all of them are."""
        return self._open == 0


@lru_cache(maxsize=64)
def recovery_of(code: Code, by: By) -> Recovery:
    """What it takes to recover the parts of a code; kept for the next round."""
    return Recovery(code.decoder, require_by(code.decoder, by))


def require_by(decoder: Decoder, by: str) -> By:
    """Check the notion of recovered: a known one, and a rule where a rule is asked for."""
    if by not in ("rule", "span"):
        raise Invalid(f'by must be "rule" (the threshold of the paper) or "span" (linear algebra), but got {by!r}.')
    if by == "rule" and decoder.rule is None:
        raise Invalid('This code has no threshold rule, so by="rule" cannot decide. Use by="span".')
    return by  # type: ignore[return-value]


def _prepared(part: Any, by: By) -> Gates | Basis | Asked:
    if by == "rule":
        assert part.rule is not None
        return Gates(part.rule, part.size)
    return Basis(part) if isinstance(part, LeastSquares) else Asked(part)
