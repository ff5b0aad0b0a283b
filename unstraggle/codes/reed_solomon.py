"""Reed-Solomon gradient codes (Halbawi et al., ISIT 2018): any assignment of partitions to workers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..checks import require_stragglers
from ..encoders import polynomial
from ..encoders.support import cyclic_mask, require_mask, threshold
from ..errors import Invalid
from ..scheme.code import Code, Tasks
from ..scheme.rule import Need
from .facts import scheme
from .shared import one_message


@scheme(
    "one",
    "reed_solomon(12, s=2)",
    sent="m_i ∝ F(x_i),  F(x) = Σ_j f_j(x) g_j,  x_i the n-th roots of unity,\n"
    "f_j(x_i) = 0 where worker i lacks partition j,  f_j(0) = 1",
    decoded="g = F(0), interpolated from 1 + deg F messages;  deg F = the most workers that lack a partition",
    papers=("halbawi2018improving",),
    tried=(
        "reed_solomon(8, s=3)",
        "reed_solomon(10, s=3, field='real')",
        "reed_solomon(mask=[[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]])",
    ),
)
def reed_solomon(
    n: int | None = None, s: int | None = None, *, mask: Any = None, field: Literal["complex", "real"] = "complex"
) -> Code:
    """Worker i combines the partitions of row i of `mask` (by default cyclic); one more message than the most that miss a
    partition always suffices.

    field="complex" sends two real numbers per coordinate; field="real" is limited to 12 messages, where float64 still decodes.
    Like the Fourier code it loses digits on contiguous survivor sets when s is large: see `noise_gain`.

    >>> reed_solomon(mask=[[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]]).threshold
    2
    """
    if mask is None:
        if n is None or s is None:
            raise Invalid(
                "reed_solomon needs n and s, or a mask: reed_solomon(10, s=3) or reed_solomon(mask=[[1, 0], [0, 1]])."
            )
        n, s = require_stragglers("reed_solomon", n, s)
        held, name = cyclic_mask(n, s + 1), f"reed_solomon({n}, s={s}"
    else:
        held, name = require_mask(mask), f"reed_solomon(mask={np.asarray(mask).astype(int).tolist()}"
    chosen = "" if field == "complex" else f", field={field!r}"
    rule = Need(threshold(held), tuple(range(len(held))))
    return one_message(f"{name}{chosen})", _tasks(held), polynomial(held, field), rule)


def _tasks(mask: Any) -> Tasks:
    """Worker i starts with partition i and goes round; n workers share data worth n units of work."""
    n, k = mask.shape
    worker, step = np.divmod(np.arange(n * k), k)
    part = (worker + step) % k
    held = mask[worker, part]
    return Tasks(worker[held], part[held], work=n / k)
