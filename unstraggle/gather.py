"""Gather: payloads to the gradient. Adds them up as they arrive where their weights are known, else in one pass at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import block_slices
from .code import Code
from .engines import frame
from .engines.base import Message
from .engines.payload import number_type, payload_sizes
from .errors import Invalid
from .sums import weighted_sum


class Gather:
    """The payloads of one round at a time.

    Memory besides the payloads, which stay where the engine has them: (tracks, dim) for the result, and where weights are known
    in advance as much again in float64 for the sum so far.
    """

    def __init__(self, code: Code, dim: int, dtype: np.dtype[Any]) -> None:
        self._code, self._dim, self._dtype = code, dim, dtype
        self._numbers = number_type(code, dtype)
        self._sizes = payload_sizes(code, dim, dtype)
        self._slices = block_slices(dim, code.blocks)
        self._senders = code.messages.worker.tolist()
        self._blocks = code.messages.block.tolist()
        self._plain = (code.messages.bits == 32).tolist()
        self._known = known_weights(code)
        self._total = None if self._known is None else np.zeros((len(self._known[0]), dim))
        self.clear()

    def clear(self) -> None:
        """Forget the payloads: a new round starts."""
        self._vectors: dict[int, NDArray[Any]] = {}
        self._seen: set[int] = set()
        self._begun: set[tuple[int, int]] = set()

    def check(self, message: Message) -> None:
        """Refuse a message that is not what the code says, or was changed on its way."""
        if not 0 <= message.index < len(self._senders) or self._senders[message.index] != message.worker:
            raise Invalid(f"{self._code.name} has no message {message.index} of worker {message.worker}.")
        if len(message.payload) != self._sizes[message.index]:
            raise Invalid(
                f"Message {message.index} has {self._sizes[message.index]} bytes of payload, but {len(message.payload)} came."
            )
        if self._plain[message.index]:
            if message.checksum is not None and frame.checksum(message.payload) != message.checksum:
                raise Invalid(f"The payload of message {message.index} does not agree with its checksum.")
        else:
            from .quantizers import read

            read(message.payload)

    def add(self, messages: Sequence[Message]) -> None:
        """Take checked messages; those that came together are added in one pass."""
        fresh = {message.index: self._vector(message) for message in messages if self._is_new(message.index)}
        if self._known is None or self._total is None:
            self._vectors |= fresh
        else:
            self._sum(self._total, self._known[0], fresh)

    def _is_new(self, m: int) -> bool:
        """Whether a message is needed: where weights are known, of equal ones only the first."""
        if self._known is None:
            return True
        name = int(self._known[1][m])
        new = name not in self._seen
        self._seen.add(name)
        return new

    def finish(self, weights: NDArray[Any]) -> NDArray[Any]:
        """(tracks, dim) the decoded gradient. weights: (tracks, M)."""
        if self._total is None:
            return self._sum(np.zeros((len(weights), self._dim), self._dtype), weights, self._vectors)
        for track, row in enumerate(self._total):
            for block, where in enumerate(self._slices):
                if (track, block) not in self._begun:
                    row[where] = 0.0
        return self._total.astype(self._dtype)

    def _sum(self, out: NDArray[Any], weights: NDArray[Any], vectors: dict[int, NDArray[Any]]) -> NDArray[Any]:
        """Add vectors to out (tracks, dim), block by block. The first to a block replace what a former round left there."""
        for track, row in enumerate(weights):
            for block, where in enumerate(self._slices):
                used = [m for m in vectors if self._blocks[m] == block and row[m] != 0]
                if used:
                    fresh = (track, block) not in self._begun
                    self._begun.add((track, block))
                    weighted_sum(out[track, where], row[used].tolist(), [vectors[m] for m in used], fresh)
        return out

    def _vector(self, message: Message) -> NDArray[Any]:
        if self._plain[message.index]:
            return message.payload.view(self._numbers)
        from .quantizers import decode

        return decode(message.payload)


def known_weights(code: Code) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """The decoder's weights where they are known in advance; not where copies are quantised, for then their mean is better."""
    known = code.decoder.known()
    if known is not None and (code.messages.bits != 32).any() and len(np.unique(known[1])) < len(known[1]):
        return None
    return known
