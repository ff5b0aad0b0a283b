"""Quantizer: the role. Coded: what quantisers share that are a payload format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..errors import Invalid
from .decoding import accumulate, as_list, decode
from .encoding import as_vector, encode
from .layout import BLOCK, Format
from .wire import Payload, read

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Model = Literal["paper", "qsgd"]

PIECE = 1 << 20
"""Coordinates of which the variance is computed at a time."""


@runtime_checkable
class Quantizer(Protocol):
    """A vector to bytes and back. The mean of decode(encode(x, seed)) over seeds is x."""

    @property
    def bits(self) -> int:
        """Bits a coordinate, without norms and header."""
        ...

    def size(self, length: int) -> int:
        """Bytes of the payload of a vector of this length."""
        ...

    def encode(self, x: ArrayLike, seed: int, *, out: Bytes | None = None, gain: float = 1.0, threads: int = 1) -> Bytes:
        """The payload of gain * x; the same arguments give the same bytes. out: at least size(len(x)) bytes to use again."""
        ...

    def decode(self, payload: Any, *, out: Floats | None = None, threads: int = 1) -> Floats:
        """The vector of a payload, in `out` if given."""
        ...

    def accumulate(self, out: Floats, payloads: Any, weights: ArrayLike, *, threads: int = 1) -> Floats:
        """out += weight * decode(payload), or the sum over lists of both, in one pass. A bad payload leaves out as it is."""
        ...

    def variance(self, x: ArrayLike, *, relative: bool = False) -> float:
        """E |decode(encode(x)) - x|^2, exactly; relative: divided by |x|^2."""
        ...

    def omega(self, dim: int, model: Model = "paper") -> float:
        """A bound of the relative variance of vectors of this length."""
        ...


class Coded(ABC):
    """A quantiser that is a payload format and a formula for its error."""

    @property
    @abstractmethod
    def format(self) -> Format: ...

    @abstractmethod
    def square_error(self, x: NDArray[np.float64], step: NDArray[np.float64]) -> float:
        """Expected square error of coordinates whose levels are `step` apart, summed."""

    def size(self, length: int) -> int:
        return self.format.size(length)

    def encode(self, x: ArrayLike, seed: int, *, out: Bytes | None = None, gain: float = 1.0, threads: int = 1) -> Bytes:
        return encode(self.format, x, seed, out, gain, threads)

    def decode(self, payload: Any, *, out: Floats | None = None, threads: int = 1) -> Floats:
        return decode(self._own(payload, threads), out=out, threads=threads)

    def accumulate(self, out: Floats, payloads: Any, weights: ArrayLike, *, threads: int = 1) -> Floats:
        found = [self._own(payload, threads) for payload in as_list(payloads, weights)]
        return accumulate(out, found, np.atleast_1d(weights), threads=threads)

    def variance(self, x: ArrayLike, *, relative: bool = False) -> float:
        vector = as_vector(x)
        steps = read(self.encode(vector, 0)).steps.astype(np.float64)
        error = sum(self.square_error(part, step) for part, step in _pieces(vector, steps, self.format.bucket))
        square = sum(float(part @ part) for part, _ in _pieces(vector, steps, self.format.bucket))
        return error / square if relative and square else error

    def _own(self, payload: Any, threads: int) -> Payload:
        found = read(payload, threads)
        if found.format != self.format:
            raise Invalid(
                f"{self} decodes its own payloads, but got {found.format}. Use unstraggle.quantizers.decode for any payload."
            )
        return found


def _pieces(x: Floats, steps: NDArray[np.float64], bucket: int) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Coordinates, and the step of each."""
    for at in range(0, len(x), PIECE):
        part = x[at : at + PIECE].astype(np.float64)
        place = (at + np.arange(len(part))) // (bucket or len(x))
        yield part, steps[place] if len(steps) else np.zeros(len(part))


def require_bucket(what: str, bucket: Any) -> None:
    """A multiple of the block, or None."""
    if bucket is None:
        return
    why = f"Use bucket=None for one norm, or a multiple of {BLOCK}."
    require_count(what, "bucket", bucket, BLOCK, (2**32 - 1) * BLOCK, why)
    if bucket % BLOCK:
        near = max(BLOCK, round(bucket / BLOCK) * BLOCK)
        raise Invalid(
            f"{what} needs a bucket that is a multiple of {BLOCK}, but got bucket={bucket}. Use bucket={near}, or None."
        )


def require_dim(dim: Any, bucket: int | None, model: str) -> int:
    """Coordinates that share a norm."""
    if model not in ("paper", "qsgd"):
        raise Invalid(f'omega knows the models "paper" and "qsgd", but got model={model!r}.')
    size = require_count("omega", "dim", dim, 0, 2**63, "Give the number of coordinates.")
    return min(size, bucket or size)
