"""Cyclic repetition: the exact gradient from any n - s workers, for any n and s."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .. import encoders
from ..checks import require_stragglers
from ..encoders.support import cyclic_mask
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.names import seeded
from ..scheme.rule import Need
from .facts import scheme
from .shared import cyclic_tasks, one_message

Construction = Literal["fourier", "random", "null_space"]


@scheme(
    "one",
    "cyclic_repetition(12, s=2)",
    sent="m_i = Σ_{t=0..s} B[i, i+t] g_{i+t}  (mod n)",
    decoded="g = Σ_{i∈A} a_i m_i,  where the weights a solve  Σ_{i∈A} a_i B[i, :] = (1, ..., 1);  any n - s messages do",
    papers=("tandon2017gradient", "raviv2018gradient"),
    tried=(
        "cyclic_repetition(9, s=4)",
        "cyclic_repetition(24, s=7)",
        "cyclic_repetition(10, s=3, construction='random')",
        "cyclic_repetition(12, s=11)",
    ),
)
def cyclic_repetition(n: int, s: int, construction: Construction | None = None, seed: int = 0) -> Code:
    """Worker i combines partitions i, ..., i + s (mod n); any n - s messages give the sum. [A] calls it GC.

    construction: "fourier" (well conditioned for s <= 2 or n <= 20, the default there), "null_space" (random, the best of 12
    draws; the default elsewhere) or "random" (Tandon et al., for comparison: its median noise gain is several times higher).

    Where s + 1 divides n, `fractional_repetition` tolerates as much, finishes earlier and amplifies nothing.

    >>> cyclic_repetition(40, s=9).threshold
    31
    """
    n, s = require_stragglers("cyclic_repetition", n, s)
    matrix = cyclic_matrix(n, s, construction, seed)
    chosen = (f", construction={construction!r}" if construction else "") + seeded(seed)
    rule = Need(n - s, tuple(range(n)))
    return one_message(f"cyclic_repetition({n}, s={s}{chosen})", cyclic_tasks(n, s + 1), matrix, rule)


def cyclic_matrix(n: int, s: int, construction: Construction | None = None, seed: int = 0) -> NDArray[np.float64]:
    """(n, n) coefficients on the cyclic mask of load s + 1."""
    if construction is None:
        construction = "fourier" if s <= 2 or n <= 20 else "null_space"
    if construction == "fourier":
        return encoders.fourier(n, s)
    if construction == "random":
        return encoders.random(n, s, seed)
    if construction == "null_space":
        return encoders.null_space(cyclic_mask(n, s + 1), seed)
    raise Invalid(f'construction must be "fourier", "random" or "null_space", but got {construction!r}.')
