"""of_bits: the codec for so many bits per coordinate."""

from __future__ import annotations

from ..doors import door
from .base import Unbiased
from .plain import PLAIN
from .qsgd import QSGD
from .sign import Sign


@door
def of_bits(bits: int, bucket: int | None = None) -> Unbiased:
    """Sign for 1 bit, QSGD for 2 to 16, Plain for 32. bucket: coordinates that share a norm.

    >>> of_bits(4, bucket=512)
    QSGD(bits=4, bucket=512)
    """
    if bits == PLAIN.bits:
        return PLAIN
    return Sign(bucket) if bits == Sign.bits else QSGD(bits, bucket)
