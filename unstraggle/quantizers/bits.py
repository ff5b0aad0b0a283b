"""of_bits: the quantiser for so many bits a coordinate."""

from __future__ import annotations

from typing import Any

from .base import Quantizer
from .identity import Identity
from .qsgd import QSGD
from .sign import Sign


def of_bits(bits: int, like: Any = None) -> Quantizer:
    """Sign for 1 bit, QSGD for 2 to 16, Identity for 32; with the buckets of another quantiser, if one is given.

    >>> of_bits(4, like=Sign(bucket=512))
    QSGD(bits=4, bucket=512)
    """
    if bits == Identity.bits:
        return Identity()
    bucket = getattr(like, "bucket", None)
    return Sign(bucket) if bits == Sign.bits else QSGD(bits, bucket)
