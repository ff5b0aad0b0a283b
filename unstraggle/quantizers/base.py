"""Codec: the role. Unbiased: one that says how noisy it is. Coded: what codecs share that are a payload format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..doors import door
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
class Codec(Protocol):
    """How a message becomes bytes, and bytes become a sum. Workers encode; the master checks each payload once, and adds.

    Every message has a codec of its own, a deep copy in the process of its worker, so that it may remember what it sent. It
    travels there by pickle. A codec with `sealed = True` finds every change of its payloads by itself; those of others get the
    checksum of the frame where they cross a network. One without `omega` (see `Unbiased`) is taken to lose as much as it sends.
    """

    @property
    def bits(self) -> int:
        """Bits per coordinate, rounded up, without norms and header."""
        ...

    def size(self, length: int) -> int:
        """Bytes of the payload of a vector of this length."""
        ...

    def encode(self, x: Any, seed: int) -> Any:
        """The payload of a vector: bytes, or an array of uint8. The same seed again replaces what it encoded before: a worker
        that is asked twice sends the same bytes, and remembers them once."""
        ...

    def check(self, payload: Any, length: int) -> Any:
        """What `accumulate` takes, of a payload that this codec made of so many coordinates; raises `Invalid` for others."""
        ...

    def accumulate(self, out: Floats, payloads: Sequence[Any], weights: Sequence[float]) -> Floats:
        """out += the sum of weights[i] times the vector of payloads[i], in this order. payloads: as `check` gave them."""
        ...


@runtime_checkable
class Unbiased(Codec, Protocol):
    """A codec whose vectors have the mean x over seeds, with a variance that it knows."""

    def variance(self, x: ArrayLike, *, relative: bool = False) -> float:
        """E |decoded - x|^2, exactly; relative: divided by |x|^2."""
        ...

    def omega(self, dim: int, model: Model = "paper") -> float:
        """A bound of the relative variance of vectors of this length."""
        ...


@door
def omega_of(codec: Codec, dim: int, model: Model = "paper") -> float:
    """The codec's bound of its relative error; 1 for one that states none, as if nothing had been sent."""
    bound = getattr(codec, "omega", None)
    return 1.0 if bound is None else float(bound(dim, model))


def sealed(codec: Codec) -> bool:
    """Whether the codec finds every change of its payloads by itself."""
    return bool(getattr(codec, "sealed", False))


class Coded(ABC):
    """A codec that is a payload format and a formula for its error. It takes CUDA tensors, too."""

    sealed: ClassVar[bool] = True

    @property
    @abstractmethod
    def format(self) -> Format: ...

    @abstractmethod
    def square_error(self, x: NDArray[np.float64], step: NDArray[np.float64]) -> float:
        """Expected square error of coordinates whose levels are `step` apart, summed."""

    def size(self, length: int) -> int:
        return self.format.size(length)

    def encode(self, x: ArrayLike, seed: int, *, out: Bytes | None = None, gain: float = 1.0, threads: int = 1) -> Bytes:
        """The payload of gain * x; the same arguments give the same bytes. out: at least size(len(x)) bytes to use again."""
        return encode(self.format, x, seed, out, gain, threads)

    def check(self, payload: Any, length: int, *, threads: int = 1) -> Payload:
        """The payload, read once: of this kind, with these bits and buckets, of so many coordinates, and unchanged."""
        found = self._own(payload, threads)
        if found.length != length:
            raise Invalid(f"{self} needs a payload of {length} coordinates, but got one of {found.length}.")
        return found

    def decode(self, payload: Any, *, out: Floats | None = None, threads: int = 1) -> Floats:
        """The vector of a payload, in `out` if given."""
        return decode(self._own(payload, threads), out=out, threads=threads)

    def accumulate(self, out: Floats, payloads: Any, weights: ArrayLike, *, threads: int = 1) -> Floats:
        """out += weight * decode(payload), or the sum over lists of both, in one pass. A bad payload leaves out as it is."""
        found = [self._own(payload, threads) for payload in as_list(payloads, weights)]
        return accumulate(out, found, np.atleast_1d(weights), threads=threads)

    def variance(self, x: ArrayLike, *, relative: bool = False) -> float:
        """E |decode(encode(x)) - x|^2, exactly; relative: divided by |x|^2."""
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
