"""Payloads as bytes: a header that says what they are, and a reader that refuses whatever is not one.

| byte | type | what |
|---|---|---|
| 0 | 4 bytes | 89 55 53 51, "\\x89USQ" |
| 4 | uint8 | version, 1 |
| 5 | uint8 | kind: 0 float32 as it is, 1 levels, 2 signs |
| 6 | uint8 | bits per coordinate: 32, 2 to 16, 1 |
| 7 | uint8 | 0 |
| 8 | uint32 | blocks of 512 coordinates that share a step; 0 for all |
| 12 | uint32 | CRC-32 of these 48 bytes, with zero in this place |
| 16 | uint64 | coordinates |
| 24 | uint64 | seed |
| 32 | uint64 | checksum of everything that follows the header |
| 40 | uint64 | 0 |
| 48 | float32 each | steps: the distance of two levels, for signs the norm; then zeros up to a multiple of 64 bytes |
| then | uint32 each | words, see `layout` |

Everything is little-endian.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from . import cpu
from .layout import BLOCK, HEADER, Format, Kind

MAGIC = b"\x89USQ"
VERSION = 1
FIELDS = struct.Struct("<4sBBBBIIQQQQ")
BITS: dict[int, range] = {Kind.IDENTITY: range(32, 33), Kind.QSGD: range(2, 17), Kind.SIGN: range(1, 2)}
CHANGED = "It was changed on its way: send it again."


@dataclass(frozen=True, eq=False)
class Payload:
    """A payload that was read and found whole. Quantisers take it where they take bytes, and do not check it again."""

    format: Format
    length: int
    seed: int
    buffer: NDArray[np.uint8]

    @property
    def steps(self) -> NDArray[np.float32]:
        return steps_of(self.buffer, self.format, self.length)

    @property
    def words(self) -> NDArray[np.uint8]:
        return self.buffer[self.format.start(self.length) :]


def steps_of(buffer: NDArray[np.uint8], format: Format, length: int) -> NDArray[np.float32]:
    """The steps of a payload, as a view."""
    return buffer[HEADER : HEADER + 4 * format.buckets(length)].view("<f4")


def write_header(buffer: NDArray[np.uint8], format: Format, length: int, seed: int, checksum: int) -> None:
    """Complete a payload whose steps and words are there. checksum: of the words."""
    steps = buffer[HEADER : format.start(length)]
    steps[4 * format.buckets(length) :] = 0
    whole = cpu.joined(cpu.checksum(steps, 1, cpu.steps_key(seed)), checksum)
    buffer[:HEADER] = np.frombuffer(header(format, length, seed, whole), np.uint8)


def header(format: Format, length: int, seed: int, checksum: int) -> bytes:
    """The first bytes of a payload. checksum: of all the others."""
    fields = [MAGIC, VERSION, format.kind, format.bits, 0, format.bucket // BLOCK, 0, length, seed, checksum, 0]
    fields[6] = zlib.crc32(FIELDS.pack(*fields))
    return FIELDS.pack(*fields)


@door
def read(payload: Any, threads: int = 1) -> Payload:
    """Check a payload and give what it says. Raises `Invalid` for whatever is not a whole, unchanged payload.

    Nothing is allocated for its contents: the bytes must be there before they are believed.

    >>> from unstraggle.quantizers import QSGD
    >>> message = read(QSGD(bits=4).encode([3.0, 4.0], seed=0))
    >>> message.format.bits, message.length
    (4, 2)
    """
    if isinstance(payload, Payload):
        return payload
    if on_device(payload):
        found_there: Payload = on_cuda().read(payload)
        return found_there
    buffer = as_bytes(payload)
    format, length, seed, checksum = read_header(buffer[:HEADER].tobytes(), len(buffer))
    steps, words = buffer[HEADER : format.start(length)], buffer[format.start(length) :]
    parts = cpu.checksum(steps, 1, cpu.steps_key(seed)), cpu.checksum(words, format.bits, cpu.key_of(seed), threads)
    check_sum(cpu.joined(*parts), checksum)
    found = Payload(format, length, seed, buffer)
    if len(found.steps):
        check_steps(float(found.steps.min()), float(found.steps.max()))
    return found


def on_device(tensor: Any) -> bool:
    """Whether this is a CUDA tensor, which the functions of `cuda` take."""
    return bool(getattr(tensor, "is_cuda", False))


def on_cuda() -> Any:
    """The module for CUDA tensors, which needs torch and triton."""
    return import_module(".cuda", __package__)


def as_bytes(payload: Any) -> NDArray[np.uint8]:
    """A bytes-like object as an array, without a copy."""
    try:
        return np.frombuffer(payload, np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise Invalid(
            f"A payload is bytes or a contiguous array of bytes, but got {type(payload).__name__} ({error})."
        ) from None


def read_header(head: bytes, size: int) -> tuple[Format, int, int, int]:
    """Format, length, seed and checksum from the first bytes of a payload of `size` bytes."""
    if len(head) < HEADER:
        raise Invalid(f"A payload has at least {HEADER} bytes, but got {len(head)}. It was cut off: send it again.")
    magic, version, kind, bits, zero, bucket, crc, length, seed, checksum, nothing = FIELDS.unpack(head)
    if magic != MAGIC:
        raise Invalid(f"A payload starts with {MAGIC!r}, but got {magic!r}. Decode only what a quantizer encoded.")
    if version != VERSION:
        raise Invalid(
            f"This release reads payloads of version {VERSION}, but got {version}. Use the same release on both sides."
        )
    if bits not in BITS.get(kind, ()) or zero or nothing or (bucket and kind == Kind.IDENTITY):
        raise Invalid(f"A payload has a known kind and its bits, but got kind={kind}, bits={bits}. {CHANGED}")
    format = Format(Kind(kind), bits, bucket * BLOCK)
    if size != format.size(length):
        what = "cut off" if size < format.size(length) else "followed by something else"
        raise Invalid(
            f"A payload of {length} coordinates, {bits} bits each, has {format.size(length)} bytes, but got {size}. "
            f"It was changed or {what}: send it again."
        )
    if header(format, length, seed, checksum) != head:
        raise Invalid(f"The header of a payload must agree with its CRC, but got {crc:#010x}. {CHANGED}")
    return format, length, seed, checksum


def check_sum(computed: int, checksum: int) -> None:
    if computed != checksum:
        raise Invalid(f"A payload must have the checksum {checksum:#018x}, but has {computed:#018x}. {CHANGED}")


def check_steps(least: float, most: float) -> None:
    if not (least >= 0 and most < np.inf):
        raise Invalid(f"The steps of a payload are finite and not negative, but got {least} to {most}. {CHANGED}")
