"""Payloads of a code's messages: their type and size, and how a worker makes one from numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import block_slices
from ..errors import Invalid
from ..quantizers.base import Codec, Coded, sealed
from ..quantizers.plain import Plain
from ..quantizers.wire import as_bytes
from ..scheme.program import Outgoing
from . import frame

if TYPE_CHECKING:
    from ..scheme.code import Code


SHORT = 4096
"""Bytes that are copied sooner than one makes a view of them."""


def number_type(code: Code, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of numbers in plain messages: the problem's, or its complex twin for complex codes."""
    if not np.iscomplexobj(code.messages.coef.data):
        return dtype
    return np.dtype(np.complex64 if dtype == np.float32 else np.complex128)


def payload_sizes(code: Code, dim: int, dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """(M,) bytes of each message's payload."""
    lengths = [part.stop - part.start for part in block_slices(dim, code.blocks)]
    item = number_type(code, dtype).itemsize
    sizes = np.array([lengths[block] * item for block in code.messages.block.tolist()], dtype=np.int64)
    for m in np.flatnonzero(~code.messages.plain).tolist():
        sizes[m] = code.messages.codec[m].size(lengths[code.messages.block[m]])
    return sizes


def rounding_seed(step: int, message: int) -> int:
    """What seeds the rounding of a message: its step and number, and not the round, so that a resumed run repeats itself."""
    return ((step & 0xFFFFFFFF) << 32) | message


def pack(message: Outgoing, numbers: NDArray[Any], step: int, dtype: np.dtype[Any], checked: bool = True) -> tuple[Any, int]:
    """Bytes of a message, as an array or as `bytes` if short and not `checked`, and their checksum.

    The latter is 0 if not `checked`, and for payloads that have one of their own.
    """
    if not isinstance(message.codec, Plain):
        payload = encoded(message.codec, numbers, rounding_seed(step, message.index))
        return payload, frame.checksum(payload) if checked and not sealed(message.codec) else 0
    values = numbers if isinstance(numbers, np.ndarray) else _host(numbers)
    if not checked and values.dtype == dtype and values.nbytes <= SHORT:
        return values.tobytes(), 0
    payload = np.ascontiguousarray(values, dtype).view(np.uint8)
    return payload, frame.checksum(payload) if checked else 0


def encoded(codec: Codec, numbers: Any, seed: int) -> NDArray[np.uint8]:
    """The payload of numbers as an array of bytes, of the size that the codec promised."""
    found = codec.encode(numbers if isinstance(codec, Coded) else np.asarray(_host(numbers)), seed)
    payload = as_bytes(np.asarray(_host(found)) if hasattr(found, "cpu") else found)
    if len(payload) != (size := codec.size(len(numbers))):
        raise Invalid(f"{codec!r} promises {size} bytes for {len(numbers)} coordinates, but its payload has {len(payload)}.")
    return payload


def _host(values: Any) -> Any:
    """Numbers that lie on an accelerator, in the memory of the host."""
    return values if isinstance(values, np.ndarray) or not hasattr(values, "cpu") else values.cpu()
