"""Decoders: from the set of arrived messages to weights, gradient = sum of weight[m] * payload[m].

Every decoder is linear. Message m stands for `rows[m]`, and the gradient for `target`: for a gradient code the rows are the
coefficients on the partial gradients and the target is all ones; for Lagrange coding they are values of polynomials.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from scipy.sparse import csr_array

from ..checks import sparse
from ..doors import door
from ..errors import Invalid, NotRecovered
from .rule import Need, all_of

TOLERANCE = 1e-6
"""Largest relative error of the decoded coefficients that still counts as exact: the one answer to "is it exact?"."""

RANK = 1e-10
"""A row of length 1 adds nothing to others when it lies this close to their span: what is closer is rounding."""

SMALL = 2**16
"""Numbers up to which a table of coefficients is written out."""

CACHED_SETS = 1024
"""Survivor sets whose weights a decoder remembers."""


class Part(NamedTuple):
    """An independent piece of a code: these messages, and only these, recover one of its summands or blocks.

    decoder: a `Linear` one, or for a code that is one piece a decoder of one's own.
    """

    messages: NDArray[np.int64]
    decoder: Any


@runtime_checkable
class Decoder(Protocol):
    """What a code needs: weights and residual for arrived sets, and a rule where there is one.

    A decoder may have more: see `Divided`, `KnowsWeights` and `Approximates`.
    """

    @property
    def size(self) -> int:
        """Messages, M."""
        ...

    @property
    def rule(self) -> Need | None:
        """Arrived sets that promise an exact gradient; None where only the residual tells."""
        ...

    def weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        """(..., M) arrived to (..., tracks, M) weights; raises `NotRecovered` where it only decodes exactly and cannot."""
        ...

    def residual(self, got: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(..., M) arrived to (...) relative error of the decoded coefficients: its word on what is exact (`TOLERANCE`)."""
        ...


@runtime_checkable
class Divided(Protocol):
    """A decoder whose messages fall into parts that decode by themselves, so that a cluster can stop early."""

    def parts(self) -> tuple[Part, ...]:
        """The parts: disjoint sets of messages, each with a decoder of rows and a target."""
        ...


@runtime_checkable
class KnowsWeights(Protocol):
    """A decoder whose weights do not depend on what else arrives, so that messages are added up as they come."""

    def known(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """(tracks, M) weights and (M,) ids: of messages with equal ids only the first counts. None where it does not know."""
        ...


class Decoded(NamedTuple):
    """What a decoder makes of an arrived set: weights (tracks, M), and the relative error of the coefficients they give.

    gain: how much larger the relative rounding error of the gradient is than that of the messages.
    """

    weights: NDArray[Any]
    residual: float
    gain: float = 1.0

    def exact(self, eps: float = 0.0) -> bool:
        """The decoder's word on whether the gradient is exact, from messages whose numbers have a relative error of eps."""
        return self.residual + self.gain * eps <= tolerance(eps)


@runtime_checkable
class Approximates(Protocol):
    """A decoder that has weights for every arrived set, also where `weights` raises, and knows their error at once."""

    def decode(self, got: NDArray[np.bool_]) -> Decoded:
        """(M,) arrived to weights that come as close to the gradient as it can."""
        ...


@lru_cache(maxsize=16)
def tolerance(eps: float = 0.0) -> float:
    """What still counts as exact for numbers of a relative error of eps: half of their digits.

    >>> [f"{tolerance(float(np.finfo(kind).eps)):.2g}" for kind in ("f4", "f8")]
    ['0.00035', '1e-06']
    """
    return max(TOLERANCE, float(np.sqrt(eps)))


def is_exact(decoder: Decoder, got: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether arrived sets (..., M) give the exact gradient: (...) by the word of their decoder."""
    return np.asarray(decoder.residual(got) <= TOLERANCE)


def parts_of(decoder: Decoder) -> tuple[Part, ...]:
    """The parts of a decoder; itself where it does not say how it is divided."""
    return decoder.parts() if isinstance(decoder, Divided) else (Part(np.arange(decoder.size), decoder),)


def known_weights(decoder: Decoder) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """The weights of a decoder that knows them in advance, see `KnowsWeights`; None for all others."""
    return decoder.known() if isinstance(decoder, KnowsWeights) else None


def decode(decoder: Decoder, got: NDArray[np.bool_]) -> Decoded:
    """Weights for an arrived set (M,), exact or not, and what they are worth."""
    if issubclass(type(decoder), Approximates):  # which is remembered, other than of an instance
        return cast(Approximates, decoder).decode(got)
    return Decoded(decoder.weights(got), float(decoder.residual(got)))


@dataclass(frozen=True, eq=False)
class Linear(ABC):
    """What all decoders of one part share: rows (M, q) sparse, target (q,), and the rule for recovery, if there is one.

    Where messages mix blocks of coordinates, there is a target for each block, (blocks, q), and weights have a row for each.
    """

    rows: csr_array[Any]
    rule: Need | None = None
    target: NDArray[np.float64] = field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", sparse("rows", self.rows))
        if self.target is None:
            object.__setattr__(self, "target", np.ones(self.rows.shape[1]))

    @property
    def size(self) -> int:
        return int(self.rows.shape[0])

    def parts(self) -> tuple[Part, ...]:
        return (Part(np.arange(self.size), self),)

    def weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        """(..., M) arrived to (..., tracks, M) weights, zero where nothing arrived."""
        sets = got.reshape(-1, self.size)
        weights = np.array([self._weights(one) for one in sets])
        return weights.reshape(*got.shape[:-1], -1, self.size)

    def residual(self, got: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Relative error of the decoded coefficients, 0 where exact: (..., M) to (...)."""
        sets = got.reshape(-1, self.size)
        errors = np.array([self._error(self._weights(one)) for one in sets])
        return np.asarray(np.linalg.norm(errors, axis=-1) / np.linalg.norm(self.target)).reshape(got.shape[:-1])

    def decode(self, got: NDArray[np.bool_]) -> Decoded:
        """(M,) arrived to weights that come as close to the target as the decoder can; exact or not.

        The last answer is kept, and not to be written to: as a rule the next round asks for the same.
        """
        key = got.tobytes()
        if (known := self._last.get(key)) is not None:
            return known
        found = self._decoded(got)
        found.weights.flags.writeable = False
        self._last.clear()
        self._last[key] = found
        return found

    @cached_property
    def _last(self) -> dict[bytes, Decoded]:
        return {}

    def _decoded(self, got: NDArray[np.bool_]) -> Decoded:
        weights, length = self._weights(got), float(np.linalg.norm(self.target))
        targets = len(np.atleast_2d(self.target))
        gain = float(np.linalg.norm(weights[:targets] * self.lengths) / length)
        return Decoded(weights, float(np.linalg.norm(self._error(weights)) / length), gain)

    def known(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """(tracks, M) weights where they do not depend on what else arrives, and (M,) ids: of messages with equal ids only the
        first counts. None where they depend on it.
        """
        return None

    @abstractmethod
    def _weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        """(M,) arrived to (tracks, M) weights."""

    def _error(self, weights: NDArray[Any]) -> NDArray[Any]:
        """(targets * q,) how far the decoded coefficients are from the targets."""
        targets = np.atleast_2d(self.target)
        return np.asarray(weights[: len(targets)] @ self._table - targets).ravel()

    @cached_property
    def _table(self) -> Any:
        """The rows, written out where they are few: one product with a sparse table takes longer to set up than to compute."""
        return self.rows.toarray() if self.rows.shape[0] * self.rows.shape[1] <= SMALL else self.rows

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """(M,) equal for copies of a message: rows with the same coefficients."""
        seen: dict[tuple[bytes, bytes], int] = {}
        rows, ends = self.rows, self.rows.indptr
        keys = ((rows.indices[a:b].tobytes(), rows.data[a:b].tobytes()) for a, b in pairwise(ends))
        return np.array([seen.setdefault(key, len(seen)) for key in keys])

    @cached_property
    def distinct(self) -> NDArray[Any]:
        """(ids, q) the distinct rows, each scaled to length 1."""
        _, first = np.unique(self.ids, return_index=True)
        dense = self.rows[first].toarray()
        return np.asarray(dense / np.linalg.norm(dense, axis=1, keepdims=True))

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """(M,) length of each row."""
        return np.sqrt(np.asarray(abs(self.rows).power(2).sum(axis=1)).ravel())


@door
@dataclass(frozen=True, eq=False)
class LeastSquares(Linear):
    """The weights that come closest to the target, for any arrived set; of these the ones that amplify noise least.

    Exact as soon as the target lies in the span of the arrived rows. Use it where a late gradient is worse than a wrong one.
    """

    def _weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        copies = np.bincount(self.ids[got], minlength=len(self.distinct))
        solution = self._solve(copies > 0)
        weights = np.zeros((len(solution), self.size), dtype=solution.dtype)
        weights[:, got] = solution[:, self.ids[got]] / copies[self.ids[got]] / self.lengths[got]
        return weights

    def known(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """Where distinct messages are orthogonal, so that no weight changes with what else arrived: repetition, and no code."""
        rows = self.distinct
        if len(rows) > rows.shape[1] or not np.allclose(rows @ rows.conj().T, np.eye(len(rows)), atol=1e-12):
            return None
        solution = self._solve(np.ones(len(rows), dtype=bool))
        return solution[:, self.ids] / self.lengths, self.ids

    @cached_property
    def _cache(self) -> OrderedDict[bytes, NDArray[Any]]:
        return OrderedDict()

    def _solve(self, have: NDArray[np.bool_]) -> NDArray[Any]:
        """(targets, ids) weights of the distinct rows at hand, by complete orthogonal factorisation; the latest are kept."""
        key = np.packbits(have).tobytes()
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        targets = np.atleast_2d(self.target)
        solution = np.zeros((len(targets), len(have)), dtype=self.distinct.dtype)
        if have.any():
            rows = self.distinct[have].T
            solution[:, have] = lstsq(rows, targets.T, cond=RANK, lapack_driver="gelsy", check_finite=False)[0].T
        self._cache[key] = solution
        if len(self._cache) > CACHED_SETS:
            self._cache.popitem(last=False)
        return solution


@door
@dataclass(frozen=True, eq=False)
class Span(LeastSquares):
    """Exact decoding: raises `NotRecovered` unless the target lies in the span of the arrived rows."""

    def weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        residual = self.residual(got)
        if (residual > TOLERANCE).any():
            raise NotRecovered(
                f"Exact decoding needs the sum of all partial gradients in the span of what arrived, but {_count(got)} "
                f"messages leave a relative error of {residual.max():.2g}. Wait for more messages, or decode with LeastSquares."
            )
        return super().weights(got)


@door
@dataclass(frozen=True, eq=False)
class Fixed(Linear):
    """Weights known in advance, one row a track; a message that did not arrive counts as zero (approximate codes)."""

    fixed: NDArray[Any] = field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = np.ones(self.size) if self.fixed is None else np.asarray(self.fixed)
        if fixed.shape[-1] != self.size or not np.isfinite(fixed).all():
            raise Invalid(f"Fixed needs one finite weight for each of {self.size} messages, but got shape {fixed.shape}.")
        object.__setattr__(self, "fixed", np.atleast_2d(fixed))

    def known(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        return self.fixed, np.arange(self.size)

    def residual(self, got: NDArray[np.bool_]) -> NDArray[np.float64]:
        """All sets at once: their weights are known."""
        sums = np.asarray((got * self.fixed[0]).reshape(-1, self.size) @ self.rows)
        errors = np.linalg.norm(sums - self.target, axis=-1) / np.linalg.norm(self.target)
        return np.asarray(errors.reshape(got.shape[:-1]))

    def _weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        return np.asarray(self.fixed * got)


@dataclass(frozen=True, eq=False)
class OneStep(Linear):
    """Every message that arrived counts the same, scale * M / (number of them): one step towards the sum (Charles et al. 2017).

    scale: 1 / (copies of a partition, times their coefficients). Without idle workers M is n.
    """

    scale: float = 1.0

    def _weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        return np.asarray(got[None] * (self.scale * self.size / max(1, int(got.sum()))))


@door
@dataclass(frozen=True, eq=False)
class Parts:
    """The decoder of a direct sum: every part decodes its own messages."""

    pieces: tuple[Part, ...]

    @property
    def size(self) -> int:
        return sum(len(piece.messages) for piece in self.pieces)

    def parts(self) -> tuple[Part, ...]:
        return self.pieces

    @cached_property
    def rule(self) -> Need | None:
        rules = [piece.decoder.rule.renumber(piece.messages) for piece in self.pieces if piece.decoder.rule]
        return all_of(tuple(rules)) if len(rules) == len(self.pieces) else None

    def weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        return self._joined([piece.decoder.weights(got[..., piece.messages]) for piece in self.pieces])

    def decode(self, got: NDArray[np.bool_]) -> Decoded:
        found = [decode(piece.decoder, got[piece.messages]) for piece in self.pieces]
        weights = self._joined([one.weights for one in found])
        residual, gain = (float(self._together([one[which] for one in found])) for which in (1, 2))
        return Decoded(weights, residual, gain)

    def known(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        found = [one for piece in self.pieces if (one := known_weights(piece.decoder)) is not None]
        if len(found) < len(self.pieces):
            return None
        ids, first = np.zeros(self.size, dtype=np.int64), 0
        for piece, (_, own) in zip(self.pieces, found, strict=True):
            ids[piece.messages] = first + own
            first = int(ids.max()) + 1
        return self._joined([weights for weights, _ in found]), ids

    def _joined(self, pieces: list[NDArray[Any]]) -> NDArray[Any]:
        """Weights of the parts, each in its place."""
        shape = np.broadcast_shapes(*(piece.shape[:-1] for piece in pieces))
        weights = np.zeros((*shape, self.size), dtype=np.result_type(*pieces))
        for piece, part in zip(pieces, self.pieces, strict=True):
            weights[..., part.messages] = piece
        return weights

    def residual(self, got: NDArray[np.bool_]) -> NDArray[np.float64]:
        return self._together([piece.decoder.residual(got[..., piece.messages]) for piece in self.pieces])

    def _together(self, residuals: Sequence[Any]) -> NDArray[np.float64]:
        """The relative error of all parts from those of each."""
        return np.asarray(np.sqrt(np.tensordot(self._shares, np.square(residuals), axes=1)))

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """(parts,) how much of the square of the whole target each part has."""
        squares = [np.linalg.norm(getattr(piece.decoder, "target", 1.0)) ** 2 for piece in self.pieces]
        return np.asarray(np.array(squares) / sum(squares))


def direct_sum(pieces: Iterable[tuple[NDArray[np.int64], Decoder]]) -> Parts:
    """Join decoders of disjoint sets of messages; parts of parts become parts."""
    flat = [Part(messages[p.messages], p.decoder) for messages, decoder in pieces for p in parts_of(decoder)]
    return Parts(tuple(flat))


def _count(got: NDArray[np.bool_]) -> str:
    counts = got.sum(axis=-1)
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
