"""Gather: payloads to the gradient. Adds them up as they arrive where their weights are known, else in one pass at the end.

Always in the same order: which bits come out depends on what arrived, and not on when. Plain numbers are added here; payloads
of other codecs are checked once, against what the code says, and added by their codec, those of one codec in one pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import block_slices
from ..errors import Invalid
from ..quantizers.base import Codec, sealed
from ..scheme import decoders
from ..scheme.code import Code
from . import frame
from .message import Message
from .payload import number_type, payload_sizes
from .sums import Pass, Sum, Sums, address, finite, weighted_sum

AT_ONCE, CODED_AT_ONCE = 4, 16
"""Plain vectors, and payloads of codecs, added in one pass: one at a time, the sum would be read and written as often."""

BUFFERS = 3
"""Results that are kept to be written again: memory that is new costs as much as a pass over it."""
Rows = list[list[float]]
"""Weights of messages, one row for each of the places that `_places_of` tells."""
Terms = dict[tuple[int, int], tuple[list[int], dict[int, float]]]
"""For each (track, block): messages, and their weights."""
REMEMBERED = 64
"""Sets of messages whose terms are kept."""
OURS = 2
"""References to a result that only the gather has: its list, and the question."""


@dataclass(frozen=True)
class Scaling:
    """What a gradient is multiplied by from coordinate `head` on, while it is added up: a, over the number that is decoded at a
    coordinate before that, or a where place is -1; known is (a, place).

    of: gives that factor, and hears the numbers before `head` once they are decoded, or the first of them. looks: how many it
    wants to hear, by default all.
    """

    head: int
    of: Callable[[Any], float]
    looks: int | None = None
    known: tuple[float, int] = (1.0, -1)


class Gather:
    """The payloads of one round at a time.

    Memory besides the payloads, which stay where the engine has them: (tracks, dim) for the result. Where weights are known in
    advance, messages have places, copies the same one; some neighbours are added once they and all before them are there, but
    the last of them at the end: then the factor is known, and whether all is finite is seen in the same pass.
    """

    def __init__(self, code: Code, dim: int, dtype: np.dtype[Any]) -> None:
        self._code, self._dim, self._dtype = code, dim, dtype
        self._numbers = number_type(code, dtype)
        self._sizes = payload_sizes(code, dim, dtype).tolist()
        self._slices = block_slices(dim, code.blocks)
        self._senders = code.messages.worker.tolist()
        self._blocks, self._mixed = code.messages.block.tolist(), code.messages.mixes > 1
        self._plain, self._codecs = code.messages.plain.tolist(), code.messages.codec
        self._all_plain = all(self._plain)
        self._known_terms: dict[tuple[int, ...], Terms] = {}
        self._lately: dict[Any, Sums] = {}
        self._kinds = kinds(code.messages.codec)
        self._at_once = AT_ONCE if self._all_plain else CODED_AT_ONCE
        self._buffers: list[NDArray[Any]] = []
        self._unsealed = [not sealed(codec) for codec in self._codecs]
        known = known_weights(code)
        self._known: Rows | None = None if known is None else known[0].tolist()
        self._place = list(range(len(self._senders))) if known is None else known[1].tolist()
        self._places = 0 if known is None else max(self._place) + 1
        self.clear()

    def clear(self) -> None:
        """Forget the payloads: a new round starts."""
        self._vectors: dict[int, Any] = {}
        self._checked: dict[int, tuple[Message, Any]] = {}
        self._at: dict[int, int] = {}
        self._next = 0
        self._begun: set[tuple[int, int]] = set()
        self._total: Any = None
        self._settled = Pass(True)

    def check(self, message: Message) -> None:
        """Refuse a message that is not what the code says, or was changed on its way."""
        index, size = message.index, len(message.payload)
        if not 0 <= index < len(self._senders) or self._senders[index] != message.worker:
            raise Invalid(f"{self._code.name} has no message {index} of worker {message.worker}.")
        if size != self._sizes[index]:
            raise Invalid(f"Message {index} has {self._sizes[index]} bytes of payload, but {size} came.")
        if self._unsealed[index] and message.checksum is not None and frame.checksum(message.payload) != message.checksum:
            raise Invalid(f"The payload of message {index} does not agree with its checksum.")
        if not self._plain[index]:
            self._checked[index] = message, self._read(message)

    def add(self, messages: Sequence[Message]) -> None:
        """Take checked messages. Where weights are known, of equal ones only the first, and add those whose turn it is; else
        nothing is added before the end, and a message takes the place of an earlier one."""
        for message in messages:
            place = self._place[message.index]
            if self._known is None or place not in self._at:
                self._at[place] = message.index
                self._vectors[message.index] = self._vector(message)
        while self._next + self._at_once < self._places and all(place in self._at for place in self._turn()):
            self._advance()

    def finish(self, weights: NDArray[Any], scaling: Scaling | None = None) -> NDArray[Any]:
        """(tracks, dim) the decoded gradient, which may still be added up: `finite` waits. Its memory is not used again while
        anybody has it. weights: (tracks, M)."""
        while self._next + self._at_once < self._places:
            self._advance()
        last = sorted(self._vectors) if self._known is None else self._there()
        rows = weights.tolist() if self._known is None else self._known
        total = self._begin(rows)
        settle = self._settle_plain if self._all_plain else self._settle_coded
        self._settled = settle(rows, last, scaling or Scaling(0, lambda head: 1.0))
        return total

    @property
    def finite(self) -> bool:
        """Whether the last result is, once it is there."""
        return self._settled.fine()

    def coming(self) -> NDArray[Any] | None:
        """Where the result of the round is, or will be; None where that is not known yet."""
        return self._total if self._known is None else self._begin(self._known)

    def broken(self, messages: Sequence[Message]) -> list[int]:
        """The workers in whose numbers there is NaN or infinity; codecs refuse to send such."""
        plain = [message for message in messages if self._plain[message.index]]
        return sorted({m.worker for m in plain if not finite(m.payload.view(self._numbers))})

    def _turn(self) -> range:
        """The places that are added next."""
        return range(self._next, min(self._next + self._at_once, self._places))

    def _there(self) -> list[int]:
        """The messages whose turn it is, as far as they have come."""
        return [self._at[place] for place in self._turn() if place in self._at]

    def _advance(self) -> None:
        assert self._known is not None
        self._flush(self._known, self._there())
        self._next += self._at_once

    def _begin(self, rows: Rows) -> NDArray[Any]:
        """The sum (tracks, dim), in memory that was used before if nobody has it any more; codecs add to what is there."""
        if self._total is None:
            shape = (1 if self._mixed else len(rows), self._dim)
            free = [one for one in range(len(self._buffers)) if sys.getrefcount(self._buffers[one]) == OURS]
            total = self._buffers.pop(free[0]) if free else np.empty(shape, self._dtype)
            total = total if total.shape == shape else np.empty(shape, self._dtype)
            self._buffers = [*self._buffers, total][-BUFFERS:]
            if not self._all_plain:
                total.fill(0)
            self._total = total
        return self._total  # type: ignore[no-any-return]

    def _flush(self, rows: Rows, messages: list[int]) -> None:
        """Add messages to the sum, block by block, in one pass over each."""
        total = self._begin(rows)
        for (track, block), (used, weights) in self._terms(rows, messages).items():
            for alike in self._alike(used):
                fresh = (track, block) not in self._begun
                self._begun.add((track, block))
                self._add(total[track, self._slices[block]], alike, [weights[m] for m in alike], fresh)
        for m in messages:
            del self._vectors[m]

    def _terms(self, rows: Rows, messages: list[int]) -> Terms:
        """For each (track, block): the messages that go into it, and their weights. As a rule the same as in the round before
        where weights are known."""
        if rows is not self._known:
            return self._found_terms(rows, messages)
        key = tuple(messages)
        if key not in self._known_terms:
            if len(self._known_terms) >= REMEMBERED:
                self._known_terms.clear()
            self._known_terms[key] = self._found_terms(rows, messages)
        return self._known_terms[key]

    def _found_terms(self, rows: Rows, messages: list[int]) -> Terms:
        found: Terms = {}
        for number, row in enumerate(rows):
            used = [m for m in messages if row[m] != 0]
            for track, block in self._places_of(number):
                here = [m for m in used if self._mixed or self._blocks[m] == block]
                found[track, block] = here, {m: row[m] for m in here}
        return found

    def _settle_plain(self, rows: Rows, last: list[int], scaling: Scaling) -> Pass:
        """Add the last messages, and look whether all is finite: in one pass, unless the factor depends on what other blocks or
        tracks do not have, or on what was added before."""
        terms, head = self._terms(rows, last), self._total[0, : scaling.head]
        vectors = {m: self._vectors.pop(m) for m in last}
        if scaling.known[1] < 0 or (len(terms) == 1 and not self._begun):
            every = self._whole_sums(rows, terms, vectors, scaling).begin()
            return Pass(True, partial(_told, every, scaling, head), (self._total, vectors))
        fine = Sums(self._sums(terms, vectors, slice(0, scaling.head))).begin().fine()
        rest = Sums(self._sums(terms, vectors, slice(scaling.head, self._dim), (scaling.of(head), -1)))
        return Pass(fine, rest.begin().fine)

    def _whole_sums(self, rows: Rows, terms: Terms, vectors: dict[int, Any], scaling: Scaling) -> Sums:
        """Sums of whole blocks; where weights are known, those of a round before in which all lay where it lies now."""
        sums = partial(self._sums, terms, vectors, slice(0, self._dim), scaling.known, scaling.head)
        if rows is not self._known or self._begun:
            return Sums(sums())
        key = *vectors, *map(address, (self._total, *vectors.values())), scaling.head, scaling.known
        found = self._lately.get(key) or Sums(sums(), hold=False)
        if not found.short:
            if len(self._lately) >= REMEMBERED:
                self._lately.clear()
            self._lately[key] = found
        return found

    def _sums(
        self, terms: Terms, vectors: dict[int, Any], among: slice, known: tuple[float, int] = (1.0, -1), head: int = 0
    ) -> list[Sum]:
        """What adds messages to those coordinates that are among some. known: of a `Scaling`, for those from `head` on."""
        found = []
        for (track, block), (used, weights) in terms.items():
            where = self._slices[block]
            begin, end = max(where.start, among.start), min(where.stop, among.stop)
            if begin < end:
                some = [vectors[m][begin - where.start : end - where.start] for m in used]
                out, fresh = self._total[track, begin:end], (track, block) not in self._begun
                found.append(Sum(out, list(weights.values()), some, fresh, known[0], max(0, head - begin), known[1]))
        return found

    def _settle_coded(self, rows: Rows, last: list[int], scaling: Scaling) -> Pass:
        """The same for codecs, which know no factor."""
        self._flush(rows, last)
        factor = scaling.of(self._total[0, : scaling.head])
        if factor != 1:
            self._total[:, scaling.head :] *= factor
        return Pass(finite(self._total))

    def _places_of(self, row: int) -> list[tuple[int, int]]:
        """The (track, block) places that a row of weights is for: all blocks of a track, or one where messages mix blocks."""
        return [(0, row)] if self._mixed else [(row, block) for block in range(len(self._slices))]

    def _add(self, out: NDArray[Any], alike: list[int], weights: list[float], fresh: bool) -> None:
        """out = the weighted sum of messages of one codec, or += if not fresh; out is zero where it is fresh and coded."""
        vectors = [self._vectors[m] for m in alike]
        if self._plain[alike[0]]:
            weighted_sum(out, weights, vectors, fresh)
            return
        total = out if out.dtype == np.float32 else np.zeros(len(out), np.float32)  # codecs add in float32
        self._codecs[alike[0]].accumulate(total, vectors, weights)
        if total is not out:
            out += total

    def _alike(self, messages: list[int]) -> list[list[int]]:
        """The messages of each codec."""
        found: dict[int, list[int]] = {}
        for m in messages:
            found.setdefault(self._kinds[m], []).append(m)
        return list(found.values())

    def _vector(self, message: Message) -> Any:
        """Numbers, or what the codec made of the payload when it was checked: of this very message, not of a copy of it."""
        if self._plain[message.index]:
            return message.payload.view(self._numbers)
        known, found = self._checked.pop(message.index, (None, None))
        return found if known is message else self._read(message)

    def _read(self, message: Message) -> Any:
        where = self._slices[self._blocks[message.index]]
        return self._codecs[message.index].check(message.payload, where.stop - where.start)


def _told(settled: Pass, scaling: Scaling, head: NDArray[Any]) -> bool:
    """Wait for a sum whose factor was known, and let others know what it depends on; whether all is finite."""
    fine = settled.fine()
    scaling.of(head)
    return fine


def kinds(codecs: Sequence[Codec]) -> list[int]:
    """A number for each codec, the same for equal ones: their payloads are added together."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(_key(codec), len(numbers)) for codec in codecs]


def _key(codec: Codec) -> Any:
    try:
        hash(codec)
    except TypeError:
        return id(codec)
    return codec


def known_weights(code: Code) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """The decoder's weights where they are known in advance; not where copies are quantised, for then their mean is better."""
    known = decoders.known_weights(code.decoder)
    if known is not None and not code.messages.plain.all() and len(np.unique(known[1])) < len(known[1]):
        return None
    return known
