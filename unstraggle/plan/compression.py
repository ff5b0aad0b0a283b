"""Does quantising pay? Time on the link saved, against time to quantise, time to decode, and the noise that is added."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_count
from ..codes.quantized import Model, require_bits, require_dim
from ..doors import door
from ..errors import Invalid
from ..quantizers import Codec, Plain, of_bits
from ..scheme.code import FULL_BITS

MEASURED, REPEATS = 1 << 20, 5
"""Coordinates on which speeds are measured at most, and how often; the shortest time counts."""

Speeds = Mapping[int, tuple[float, float]]
"""Coordinates/s that are encoded, and that are checked, decoded and added up, for each number of bits."""


@dataclass(frozen=True)
class Choice:
    """A number of bits: bytes of a message, seconds of a round, relative variance omega, and cost = seconds (1 + omega).

    break_even: bytes/s of the link below which these bits cost less than 32; 0 where they never do, infinite where always.
    """

    bits: int
    size: int
    seconds: float
    omega: float
    break_even: float

    @property
    def cost(self) -> float:
        """Seconds, times the steps that the noise makes necessary: in proportion to the time to a target."""
        return self.seconds * (1 + self.omega)


@dataclass(frozen=True)
class Compression:
    """The answer: bits to use (32: do not quantise), all choices, and the link below which quantising pays at all."""

    dim: int
    bandwidth: float
    choices: tuple[Choice, ...]

    @property
    def best(self) -> Choice:
        """The choice of least cost; of equal ones that with more bits."""
        return min(self.choices, key=lambda choice: (choice.cost, -choice.bits))

    @property
    def bits(self) -> int:
        return self.best.bits

    @property
    def break_even(self) -> float:
        """Bytes/s above which not quantising is best."""
        return max((choice.break_even for choice in self.choices if choice.bits != FULL_BITS), default=0.0)

    @property
    def verdict(self) -> str:
        if self.bits == FULL_BITS:
            return f"Do not quantise: it pays below {_rate(self.break_even)}, and the link has {_rate(self.bandwidth)}."
        saved = 1 - self.best.cost / self.choices[-1].cost
        return f"Use {self.bits} bits: saves {saved:.0%} of the time to a target; pays below {_rate(self.break_even)}."

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        rows = [vars(choice) | {"cost": choice.cost} for choice in self.choices]
        return {"verdict": self.verdict, "bits": self.bits, "break_even": self.break_even, "choices": rows}

    def __str__(self) -> str:
        lines = [self.verdict, f"  {'bits':>4}{'bytes':>13}{'seconds':>11}{'omega':>11}{'cost':>11}  pays below"]
        for c in self.choices:
            below = "-" if c.bits == FULL_BITS else _rate(c.break_even)
            lines.append(f"  {c.bits:>4}{c.size:>13,}{c.seconds:>11.4g}{c.omega:>11.4g}{c.cost:>11.4g}  {below}")
        return "\n".join(lines)


@door
def compression(
    dim: int,
    bandwidth: float,
    *,
    bits: Sequence[int] = (2, 3, 4, 5, 6, 8, 12, 16),
    bucket: int | None = 512,
    messages: int = 1,
    compute: float = 0.0,
    speeds: Speeds | None = None,
    omega: Model = "qsgd",
) -> Compression:
    """Which bits per coordinate to send over a link of `bandwidth` bytes/s, or that quantising does not pay.

    A round takes compute + encode + messages * (size / bandwidth + decode) seconds: workers encode side by side, and `messages`
    come through the link and are decoded one after another. The steps to a target grow by 1 + omega, where omega bounds the
    relative variance of the quantiser ([C] Theorem 2 with orthogonal partial gradients): cost = seconds * (1 + omega) is to be
    least. speeds: (encode, decode) coordinates/s for each of the bits and for 32; measured here and now where not given.

    >>> fast = {4: (5e8, 8e8), 8: (5e8, 8e8), 32: (np.inf, 2e9)}
    >>> print(compression(10**7, bandwidth=1e7, bits=[4, 8], speeds=fast).verdict)
    Use 8 bits: saves 74% of the time to a target; pays below 1.08 GB/s.
    >>> compression(10**7, bandwidth=1e11, bits=[4, 8], speeds=fast).bits
    32
    """
    size = require_dim("compression", dim)
    tried = sorted({*require_bits("compression", list(bits), len(bits)).tolist(), FULL_BITS})
    messages = require_count("compression", "messages", messages, 1, 10**9, "Give how many come through the link.")
    _require(bandwidth, compute)
    fixed, volume, noise = {}, {}, {}
    for number in tried:
        codec = of_bits(number, bucket)
        encode, decode = _speed(speeds, number, codec, size)
        fixed[number] = compute + size / encode + messages * size / decode
        volume[number] = messages * codec.size(size)
        noise[number] = codec.omega(size, omega)
    links = {b: _break_even(fixed[FULL_BITS], volume[FULL_BITS], fixed[b], volume[b], noise[b]) for b in tried}
    seconds = {b: fixed[b] + volume[b] / bandwidth for b in tried}
    return Compression(
        size, float(bandwidth), tuple(Choice(b, volume[b] // messages, seconds[b], noise[b], links[b]) for b in tried)
    )


def measured_speed(codec: Codec, length: int = MEASURED) -> tuple[float, float]:
    """(encode, decode) coordinates/s of a codec on this machine, one thread; decode checks and adds, as the master does.

    Plain float32 numbers need no encoding and are weighted and added.
    """
    x = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
    total = np.zeros_like(x)
    if isinstance(codec, Plain):
        return np.inf, length / _seconds(lambda: np.add(total, np.float32(0.5) * x, out=total))
    payload = codec.encode(x, 0)
    encode = _seconds(lambda: codec.encode(x, 1))
    return length / encode, length / _seconds(lambda: codec.accumulate(total, [codec.check(payload, length)], [1.0]))


def _seconds(run: Callable[[], Any]) -> float:
    """Shortest of several times, after one run that compiles and is not counted."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def _speed(speeds: Speeds | None, bits: int, codec: Codec, dim: int) -> tuple[float, float]:
    if speeds is None:
        return measured_speed(codec, min(dim, MEASURED))
    encode, decode = speeds.get(bits, (0.0, 0.0))
    if not (encode > 0 and decode > 0):
        raise Invalid(
            f"compression needs speeds (encode, decode) > 0 coordinates/s for {bits} bits, but got {speeds.get(bits)!r}. "
            "Leave speeds out to measure them."
        )
    return encode, decode


def _break_even(plain: float, plain_volume: int, fixed: float, volume: int, omega: float) -> float:
    """The bytes/s x at which (fixed + volume / x) (1 + omega) = plain + plain_volume / x, seconds and bytes of a round."""
    extra, saved = (1 + omega) * fixed - plain, plain_volume - (1 + omega) * volume
    if saved <= 0:
        return 0.0 if extra >= 0 else np.inf
    return np.inf if extra <= 0 else saved / extra


def _require(bandwidth: Any, compute: Any) -> None:
    if not (np.isfinite(bandwidth) and bandwidth > 0):
        raise Invalid(f"compression needs a finite bandwidth > 0 bytes/s, but got bandwidth={bandwidth!r}.")
    if not (np.isfinite(compute) and compute >= 0):
        raise Invalid(f"compression needs compute >= 0, the seconds of the rest of a round, but got compute={compute!r}.")


def _rate(bandwidth: float) -> str:
    """Bytes/s as one reads them.

    >>> _rate(1.25e9), _rate(0.0), _rate(np.inf)
    ('1.25 GB/s', 'no link', 'any link')
    """
    if bandwidth in (0, np.inf):
        return "any link" if bandwidth else "no link"
    power = int(np.clip(np.floor(np.log10(bandwidth) / 3), 0, 4))
    return f"{bandwidth / 1000**power:.3g} {['B', 'kB', 'MB', 'GB', 'TB'][power]}/s"
