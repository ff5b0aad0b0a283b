"""QSGD: random rounding to uniform levels between minus the norm and the norm."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count
from ..doors import door
from .base import Coded, Model, require_bucket, require_dim
from .layout import Format, Kind


@door
@dataclass(frozen=True)
class QSGD(Coded):
    """Unbiased random rounding to s = 2^(bits - 1) - 1 levels on each side of zero (Alistarh et al. 2017; [C]).

    bits: 2 to 16. bucket: coordinates that share a norm, a multiple of 512; None: all of them share one. Buckets cost 32 bits
    each and make the variance of long vectors far smaller. With one norm, few bits and many coordinates the noise drowns the
    vector (see `omega`): use buckets or more bits then.

    >>> quantizer = QSGD(bits=4, bucket=512)
    >>> payload = quantizer.encode([3.0, 0.0, -4.0], seed=7)
    >>> quantizer.decode(payload).shape
    (3,)
    """

    bits: int = 4
    bucket: int | None = None

    def __post_init__(self) -> None:
        require_count("QSGD", "bits", self.bits, 2, 16, "Use Sign for one bit and Plain for 32.")
        require_bucket("QSGD", self.bucket)

    @property
    def format(self) -> Format:
        return Format(Kind.QSGD, int(self.bits), int(self.bucket or 0))

    def square_error(self, x: NDArray[np.float64], step: NDArray[np.float64]) -> float:
        """step^2 f (1 - f), where f is what x lies above the level below it, in steps; summed."""
        above = np.modf(np.abs(x) / np.where(step > 0, step, 1.0))[0]
        return float(np.sum(step**2 * above * (1 - above)))

    def omega(self, dim: int, model: Model = "paper") -> float:
        """d / (4 s^2) as in [C]; with model="qsgd" at most sqrt(d) / s, far smaller for few bits. d: smaller of dim and bucket.

        >>> QSGD(bits=2).omega(100_000), round(QSGD(bits=2).omega(100_000, model="qsgd"), 1)
        (25000.0, 316.2)
        """
        size, levels = require_dim(dim, self.bucket, model), self.format.levels
        bound = size / (4 * levels**2)
        return bound if model == "paper" else min(bound, sqrt(size) / levels)
