"""ErrorFeedback: what rounding lost is added to the next vector."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from ..errors import Invalid
from .base import Bytes, Floats, Model, Quantizer
from .encoding import as_vector


class ErrorFeedback:
    """A worker's quantiser with memory: it encodes v = x + error and keeps error = v - decode(payload).

    If the payload was not used, because it came too late, say `lost(payload)`: then error = v. With scaled=True the payload
    stands for Q(v) / (1 + omega), a contraction with factor omega / (1 + omega), so that the error stays bounded.
    Plain feedback around a quantiser with omega > 1 diverges: use scaled=True, buckets or more bits there. Feedback gives up
    unbiasedness; leave it out where messages are averaged by weights that need it. `error` is the state to checkpoint.

    >>> from unstraggle.quantizers import QSGD
    >>> feedback = ErrorFeedback(QSGD(bits=8))
    >>> payload = feedback.encode([0.5, 0.25, 0.75], seed=0)
    >>> feedback.decode(payload) + feedback.error
    array([0.5 , 0.25, 0.75], dtype=float32)
    """

    def __init__(self, quantizer: Quantizer, *, scaled: bool = False, model: Model = "qsgd") -> None:
        if isinstance(quantizer, ErrorFeedback):
            raise Invalid("ErrorFeedback needs a quantizer without memory, but got an ErrorFeedback. Use its quantizer.")
        self.quantizer, self.scaled, self.model = quantizer, scaled, model
        self.error: Floats | None = None

    def __repr__(self) -> str:
        return f"ErrorFeedback({self.quantizer}, scaled={self.scaled}, model={self.model!r})"

    @property
    def bits(self) -> int:
        return self.quantizer.bits

    def size(self, length: int) -> int:
        return self.quantizer.size(length)

    def encode(self, x: ArrayLike, seed: int, *, out: Bytes | None = None, gain: float = 1.0, threads: int = 1) -> Bytes:
        vector = as_vector(x)
        if self.error is not None and self.error.shape != vector.shape:
            raise Invalid(
                f"ErrorFeedback remembers a vector of {len(self.error)} coordinates, but got {len(vector)}. "
                "Use one ErrorFeedback for each block of coordinates."
            )
        total = vector.copy() if self.error is None else self.error + vector
        scale = gain / (1 + self.omega(len(vector), self.model)) if self.scaled else gain
        payload = self.quantizer.encode(total, seed, out=out, gain=scale, threads=threads)
        self.error = self.quantizer.accumulate(total, payload, -1.0, threads=threads)
        return payload

    def lost(self, payload: Any) -> None:
        """The payload was not used: take back what it stands for."""
        if self.error is None:
            raise Invalid("ErrorFeedback.lost takes a payload that was encoded before, but nothing was encoded yet.")
        self.quantizer.accumulate(self.error, payload, 1.0)

    def decode(self, payload: Any, *, out: Floats | None = None, threads: int = 1) -> Floats:
        return self.quantizer.decode(payload, out=out, threads=threads)

    def accumulate(self, out: Floats, payloads: Any, weights: ArrayLike, *, threads: int = 1) -> Floats:
        return self.quantizer.accumulate(out, payloads, weights, threads=threads)

    def variance(self, x: ArrayLike, *, relative: bool = False) -> float:
        """Of the quantiser, for v = x."""
        return self.quantizer.variance(x, relative=relative)

    def omega(self, dim: int, model: Model = "paper") -> float:
        """Of the quantiser."""
        return self.quantizer.omega(dim, model)
