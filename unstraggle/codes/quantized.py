"""What codes with quantised messages share: numbers of bits, the quantisers' variances, and tables with codecs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..errors import Invalid
from ..quantizers.base import Codec
from ..quantizers.bits import of_bits
from ..scheme.code import FULL_BITS, Code

Model = Literal["paper", "qsgd"]

SENT = (*range(1, 17), FULL_BITS)
"""Bits per coordinate that a message can have: one for signs, 2 to 16 for levels, 32 for float32 as it is."""


def require_bits(scheme: str, bits: Any, *sizes: int) -> NDArray[np.int64]:
    """Whole numbers of bits that can be sent: one for all, or a column of one of the sizes.

    >>> require_bits("example", [4, 32], 2)
    array([ 4, 32])
    """
    column = np.asarray(bits)
    if column.dtype.kind not in "iu" or column.shape not in [(), *((size,) for size in sizes)]:
        wanted = " or ".join(str(size) for size in dict.fromkeys(sizes))
        raise Invalid(f"{scheme} needs whole bits for all messages, or {wanted} of them, but got bits={bits!r}.")
    wrong = column[~np.isin(column, SENT)]
    if wrong.size:
        raise Invalid(
            f"{scheme} needs 1 to 16 bits per coordinate, or 32 for messages as they are, but got bits={wrong.flat[0]}. "
            "plan.bits(..., most=16) allocates bits that can be sent."
        )
    return column.astype(np.int64)


def variances(bits: NDArray[np.int64], dim: ArrayLike, bucket: int | None, model: Model) -> NDArray[np.float64]:
    """Bounds of the relative variance of the quantisers for so many bits and coordinates, one for each.

    >>> variances(np.array([2, 4, 32]), 1000, None, "paper").round(3)
    array([250.   ,   5.102,   0.   ])
    """
    pairs = list(zip(*(column.tolist() for column in np.broadcast_arrays(bits, dim)), strict=True))
    known = {(b, d): of_bits(b, bucket).omega(d, model) for b, d in set(pairs)}
    return np.array([known[pair] for pair in pairs])


def with_bits(code: Code, bits: NDArray[np.int64], bucket: int | None = None) -> Code:
    """The same code with so many bits per coordinate of each message, (M,)."""
    codecs = {number: of_bits(number, bucket) for number in set(bits.tolist())}
    return with_codecs(code, [codecs[number] for number in bits.tolist()])


def with_codecs(code: Code, codec: Codec | Iterable[Codec]) -> Code:
    """The same code with another codec for its messages, or one for each."""
    table = code.messages
    return replace(code, messages=table.changed(codec=codec))


def per_message(scheme: str, code: Code, codec: Any) -> list[Codec]:
    """A codec for each message of a code, of one for all, one for each worker or one for each message."""
    several = [codec] if isinstance(codec, Codec) else list(codec) if isinstance(codec, Iterable) else []
    sizes = {1: [0] * len(code.messages)} if isinstance(codec, Codec) else {}
    sizes |= {len(code.messages): list(range(len(code.messages))), code.n: code.messages.worker.tolist()}
    if len(several) not in sizes or not all(isinstance(each, Codec) for each in several):
        raise Invalid(
            f"{scheme} needs a codec such as QSGD(bits=4), or one for each of the {code.n} workers or {len(code.messages)} "
            f"messages, but got codec={codec!r}."
        )
    return [several[at] for at in sizes[len(several)]]


def require_dim(scheme: str, dim: Any) -> int:
    """Coordinates of a gradient."""
    return require_count(scheme, "dim", dim, 1, 10**15, "Give the number of coordinates of the gradient.")
