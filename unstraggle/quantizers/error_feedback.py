"""ErrorFeedback: what rounding lost is added to the next vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..doors import door
from ..errors import Invalid
from .base import Codec, Floats, Model, omega_of, sealed
from .encoding import as_vector


@door
class ErrorFeedback:
    """A codec with memory around one without: it encodes v = x + error and keeps error = v - what the payload says.

    The memory is of what was encoded, used or not. A loop that knows that a payload was not used can say `lost(payload)`: then
    error = v. The same seed again replaces what was encoded with it, and what was remembered. With scaled=True the payload
    stands for Q(v) / (1 + omega), a contraction with factor omega / (1 + omega), so that the error stays bounded. Plain
    feedback around a quantiser with omega > 1 diverges: use scaled=True, buckets or more bits there. Feedback gives up
    unbiasedness; leave it out where messages are averaged by weights that need it. `error` is the state to checkpoint.

    >>> from unstraggle.quantizers import QSGD
    >>> feedback = ErrorFeedback(QSGD(bits=8))
    >>> payload = feedback.encode([0.5, 0.25, 0.75], seed=0)
    >>> feedback.decode(payload) + feedback.error
    array([0.5 , 0.25, 0.75], dtype=float32)
    """

    def __init__(self, codec: Codec, *, scaled: bool = False, model: Model = "qsgd") -> None:
        if isinstance(codec, ErrorFeedback) or not isinstance(codec, Codec):
            raise Invalid(f"ErrorFeedback needs a codec without memory, such as QSGD(4), but got {codec!r}.")
        if scaled and not hasattr(codec, "omega"):
            raise Invalid(f"ErrorFeedback(scaled=True) needs a codec with omega, but got {codec!r}. Leave scaled out.")
        self.codec, self.scaled, self.model = codec, scaled, model
        self.error: Floats | None = None
        self._before: Floats | None = None
        self._seed: int | None = None

    def __repr__(self) -> str:
        return f"ErrorFeedback({self.codec}, scaled={self.scaled}, model={self.model!r})"

    @property
    def bits(self) -> int:
        return self.codec.bits

    @property
    def sealed(self) -> bool:
        return sealed(self.codec)

    def size(self, length: int) -> int:
        return self.codec.size(length)

    def encode(self, x: ArrayLike, seed: int) -> Any:
        vector, before = as_vector(x), self._before if seed == self._seed else self.error
        if before is not None and before.shape != vector.shape:
            raise Invalid(
                f"ErrorFeedback remembers a vector of {len(before)} coordinates, but got {len(vector)}. "
                "Use one ErrorFeedback for each block of coordinates."
            )
        total = vector.copy() if before is None else before + vector
        payload = self.codec.encode(self._scaled(total), seed)
        self.error = self.codec.accumulate(total, [self.codec.check(payload, len(total))], [-1.0])
        self._before, self._seed = before, seed
        return payload

    def _scaled(self, total: Floats) -> Floats:
        return total * np.float32(1 / (1 + self.omega(len(total), self.model))) if self.scaled else total

    def lost(self, payload: Any) -> None:
        """The payload was not used: take back what it stands for."""
        if self.error is None:
            raise Invalid("ErrorFeedback.lost takes a payload that was encoded before, but nothing was encoded yet.")
        self.codec.accumulate(self.error, [self.codec.check(payload, len(self.error))], [1.0])

    def check(self, payload: Any, length: int) -> Any:
        return self.codec.check(payload, length)

    def accumulate(self, out: Floats, payloads: Sequence[Any], weights: Sequence[float]) -> Floats:
        return self.codec.accumulate(out, payloads, weights)

    def decode(self, payload: Any) -> Floats:
        """The vector of a payload; nothing is remembered. Of codecs that can decode without being told the length."""
        found: Floats = self.codec.decode(payload)  # type: ignore[attr-defined]
        return found

    def omega(self, dim: int, model: Model = "paper") -> float:
        """Of the codec inside; 1 where it states none."""
        return omega_of(self.codec, dim, model)
