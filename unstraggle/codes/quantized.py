"""What codes with quantised messages share: numbers of bits, the quantisers' variances, and tables with bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..errors import Invalid
from ..scheme.code import FULL_BITS, Code, Messages

Model = Literal["paper", "qsgd"]

SENT = (*range(1, 17), FULL_BITS)
"""Bits a coordinate that a message can have: one for signs, 2 to 16 for levels, 32 for float32 as it is."""


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
            f"{scheme} needs 1 to 16 bits a coordinate, or 32 for messages as they are, but got bits={wrong.flat[0]}. "
            "plan.bits(..., most=16) allocates bits that can be sent."
        )
    return column.astype(np.int64)


def variances(bits: NDArray[np.int64], dim: ArrayLike, bucket: int | None, model: Model) -> NDArray[np.float64]:
    """Bounds of the relative variance of the quantisers for so many bits and coordinates, one for each.

    >>> variances(np.array([2, 4, 32]), 1000, None, "paper").round(3)
    array([250.   ,   5.102,   0.   ])
    """
    from ..quantizers import QSGD, of_bits  # numba: not for those who never quantise

    like = QSGD(bucket=bucket)
    pairs = list(zip(*(column.tolist() for column in np.broadcast_arrays(bits, dim)), strict=True))
    known = {(b, d): of_bits(b, like).omega(d, model) for b, d in set(pairs)}
    return np.array([known[pair] for pair in pairs])


def with_bits(code: Code, bits: NDArray[np.int64], bucket: int | None = None) -> Code:
    """The same code with so many bits a coordinate of each message, (M,), and the quantiser that makes them."""
    from ..quantizers import QSGD

    table = code.messages
    messages = Messages(table.worker, table.after, table.coef, table.block, bits)
    return replace(code, messages=messages, quantizer=None if (bits == FULL_BITS).all() else QSGD(bucket=bucket))


def require_dim(scheme: str, dim: Any) -> int:
    """Coordinates of a gradient."""
    return require_count(scheme, "dim", dim, 1, 10**15, "Give the number of coordinates of the gradient.")


def common_quantizer(scheme: str, codes: Sequence[Code]) -> Any:
    """The quantiser of codes that are joined; None where none of them quantises."""
    found = [code.quantizer for code in codes if code.quantizer is not None]
    if any(getattr(each, "bucket", None) != getattr(found[0], "bucket", None) for each in found):
        raise Invalid(
            f"{scheme} needs codes with the same buckets, but got {', '.join(dict.fromkeys(map(str, found)))}. "
            f"Join them first: quantize({scheme}(...), bits=[...], bucket=...)."
        )
    return found[0] if found else None
