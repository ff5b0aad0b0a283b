"""Quantisers on CUDA tensors, with the same bytes as on the CPU. Needs torch and triton.

Quantisers come here by themselves when they are given CUDA tensors: encode(x) gives bytes on the device of x, and accumulate
adds payloads, on this device or of the host, to a sum on the device. Vectors with one norm that is tiny, huge or that of a
single coordinate take the way over the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from . import encoding
from .cpu import key_of, steps_key
from .layout import HEADER, LANES, MASK, Format, Kind
from .wire import Payload, check_steps, check_sum, header, read_header

try:
    torch: Any = import_module("torch")
    launch: Any = import_module(".cuda_launch", __package__)
except ImportError as missing:
    raise ImportError(
        f"Quantizers on CUDA tensors need torch and triton ({missing}). Use pip install 'unstraggle[torch]' triton."
    ) from missing

AT_ONCE = 8
"""Messages that are added in one pass."""
ALIGNED = 16
"""Bytes that a thread loads at once."""


@dataclass(frozen=True, eq=False)
class DevicePayload(Payload):
    """A payload on a device that was read and found whole. most: its largest step."""

    buffer: Any
    most: float = 0.0

    @property
    def steps(self) -> Any:
        return self.buffer[HEADER : HEADER + 4 * self.format.buckets(self.length)].view(torch.float32)

    @property
    def words(self) -> Any:
        return self.buffer[self.format.start(self.length) :].view(torch.int32)


def encode(format: Format, x: Any, seed: int, out: Any = None, gain: float = 1.0) -> Any:
    """The payload of a vector in a given format, as a tensor of bytes on its device."""
    x = _vector(x)
    size = format.size(len(x))
    target = torch.empty(size, dtype=torch.uint8, device=x.device) if out is None else _room(out, size, x.device)
    payload = DevicePayload(format, len(x), seed, _aligned(target))
    with _device_of(x):
        checksum = _copy(payload, x, gain) if format.kind is Kind.IDENTITY else _quantise(payload, x, gain)
    if checksum is None:
        target.copy_(torch.from_numpy(encoding.encode(format, x.cpu().numpy(), seed, None, gain, 1)))
        return target
    payload.buffer[:HEADER] = _upload(header(format, len(x), seed, checksum), x.device)
    return target if payload.buffer is target else target.copy_(payload.buffer)


def read(payload: Any) -> DevicePayload:
    """Check a payload on its device. Raises `Invalid` for whatever is not a whole, unchanged payload."""
    if payload.dtype != torch.uint8 or payload.ndim != 1:
        raise Invalid(f"A payload is a vector of bytes, but got {payload.dtype} of shape {tuple(payload.shape)}.")
    buffer = _aligned(payload.detach().contiguous())
    format, length, seed, checksum = read_header(bytes(buffer[:HEADER].cpu().numpy()), len(buffer))
    found = DevicePayload(format, length, seed, buffer)
    with _device_of(buffer):
        least, most, computed = _summary(found, launch.checksums(found.words, format.bits, key_of(seed)))
    check_sum(computed, checksum)
    check_steps(least, most)
    return replace(found, most=most)


def decode(payload: Payload, out: Any = None) -> Any:
    """The vector of a payload that was read, as a float32 tensor on the device of the payload, or in out."""
    if out is None:
        out = torch.empty(payload.length, dtype=torch.float32, device=payload.buffer.device)
    found = [_on(payload, _target(out, payload.length).device)]
    with _device_of(out):
        _add(found, np.ones(1), out, True)
    return out


def accumulate(out: Any, payloads: Sequence[Payload], weights: NDArray[np.float64]) -> Any:
    """out += sum of weights[i] * decode(payloads[i]) for payloads that were read, up to eight of one format in a pass."""
    found = [_on(payload, _target(out, payload.length).device) for payload in payloads]
    if not _finite(np.array([payload.most for payload in found]) * np.abs(weights)):
        raise Invalid(f"accumulate needs weights times norms within float32, but got {weights.tolist()}. Scale them down.")
    with _device_of(out):
        for run in _runs(found):
            _add(found[run], weights[run], out, False)
    return out


def _runs(found: list[DevicePayload]) -> Iterator[slice]:
    """Neighbours of one format, in order."""
    start = 0
    for at in range(1, len(found) + 1):
        if at == len(found) or at - start == AT_ONCE or found[at].format != found[start].format:
            yield slice(start, at)
            start = at


def _vector(x: Any) -> Any:
    if x.ndim != 1 or x.is_complex() or x.dtype == torch.bool:
        raise Invalid(
            f"A quantizer encodes a vector of real numbers, but got shape {tuple(x.shape)} of {x.dtype}. "
            "Use x.ravel(), and torch.view_as_real for complex numbers."
        )
    return _aligned(x.detach().to(torch.float32).contiguous())


def _aligned(tensor: Any) -> Any:
    """The tensor, or a copy of it at an address from which whole vectors of lanes can be loaded."""
    return tensor if tensor.data_ptr() % ALIGNED == 0 else tensor.clone()


def _room(out: Any, size: int, device: Any) -> Any:
    if not (torch.is_tensor(out) and out.device == device and out.dtype == torch.uint8 and out.ndim == 1 and len(out) >= size):
        raise Invalid(f"encode needs out= as a tensor of {size} bytes or more on {device}, but got {_shown(out)}.")
    if not out.is_contiguous():
        raise Invalid("encode needs out= contiguous, but got a tensor with gaps. Use torch.empty.")
    return out[:size]


def _target(out: Any, length: int) -> Any:
    if not torch.is_tensor(out) or out.dtype != torch.float32 or tuple(out.shape) != (length,) or not out.is_contiguous():
        raise Invalid(
            f"A payload of {length} coordinates needs out= as a contiguous float32 tensor of this length on its device, "
            f"but got {_shown(out)}. Use torch.empty({length}, device=...), or payload.cpu() for a sum on the host."
        )
    return out


def _shown(out: Any) -> str:
    return f"{out.dtype}{tuple(out.shape)}" if hasattr(out, "dtype") else type(out).__name__


def _on(payload: Payload, device: Any) -> DevicePayload:
    """A payload that was read, on a device."""
    if isinstance(payload, DevicePayload):
        return payload if payload.buffer.device == device else replace(payload, buffer=payload.buffer.to(device))
    most = float(payload.steps.max(initial=0))
    return DevicePayload(payload.format, payload.length, payload.seed, _upload(payload.buffer, device), most)


def _upload(data: bytes | NDArray[np.uint8], device: Any) -> Any:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy()).to(device, non_blocking=True)


def _device_of(tensor: Any) -> AbstractContextManager[Any]:
    """Kernels run on the current device: make it that of the tensor."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _quantise(payload: DevicePayload, x: Any, gain: float) -> int | None:
    """Write steps and words. Gives the checksum, or None where the vector must take the way over the host."""
    _clear_gap(payload)
    words = launch.write(payload, x)
    least, most, checksum = _summary(payload, words)
    if least < 0:
        if not launch.mend(payload, x):
            return None
        words = launch.checksums(payload.words, payload.format.bits, key_of(payload.seed))
    if gain != 1:
        payload.steps.mul_(float(np.float32(gain)))
    if least < 0 or gain != 1:
        least, most, checksum = _summary(payload, words)
    return checksum if _finite(np.array(most * payload.format.levels)) else None


def _copy(payload: DevicePayload, x: Any, gain: float) -> int | None:
    _clear_gap(payload)
    torch.mul(x, float(np.float32(gain)), out=payload.words.view(torch.float32))
    if not bool(torch.isfinite(x).all()):
        return None
    return _summary(payload, launch.checksums(payload.words, 32, key_of(payload.seed)))[2]


def _finite(values: NDArray[np.float64]) -> bool:
    """Whether all are finite as float32."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(values.astype(np.float32)).all())


def _clear_gap(payload: DevicePayload) -> None:
    """Zeros between steps and words."""
    format, length = payload.format, payload.length
    payload.buffer[HEADER + 4 * format.buckets(length) : format.start(length)] = 0


def _summary(payload: DevicePayload, words: Any) -> tuple[float, float, int]:
    """Smallest and largest step, and the checksum of everything, in one copy from the device. words: sums of the words."""
    gap = payload.buffer[HEADER : payload.format.start(payload.length)].view(torch.int32)
    sums = launch.checksums(gap, 1, steps_key(payload.seed), words.clone())
    steps = payload.steps if payload.format.buckets(payload.length) else gap.new_zeros(1, dtype=torch.float32)
    ends = torch.stack(torch.aminmax(steps)).view(torch.int32).to(torch.int64)
    numbers = torch.cat([ends, sums.sum(dim=0, dtype=torch.int64)]).cpu().tolist()
    least, most = np.array(numbers[:2], np.int32).view(np.float32).tolist()
    low, high = (sum(numbers[at : at + LANES]) & MASK for at in (2, 2 + LANES))
    return least, most, high << 32 | low


def _add(found: list[DevicePayload], weights: NDArray[np.float64], out: Any, fresh: bool) -> None:
    if not len(out):
        return
    if found[0].format.kind is not Kind.IDENTITY:
        launch.add(found, weights, out, fresh)
        return
    if fresh:
        out.zero_()
    for payload, weight in zip(found, weights, strict=True):
        out += payload.words.view(torch.float32) * float(np.float32(weight))
