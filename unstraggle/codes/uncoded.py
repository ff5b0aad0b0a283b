"""No redundancy: every worker computes its own partition, the master waits for all."""

from __future__ import annotations

import numpy as np

from ..checks import require_workers
from ..scheme.code import Code
from ..scheme.rule import all_of
from .facts import scheme
from .shared import cyclic_tasks, one_message


@scheme(
    "one",
    "uncoded(12)",
    sent="m_i = g_i",
    decoded="g = m_0 + m_1 + ... + m_{n-1}",
    papers=(),
    tried=(
        "uncoded(5)",
        "uncoded(1)",
    ),
)
def uncoded(n: int) -> Code:
    """Plain synchronous training, the baseline that waits for the slowest worker.

    >>> uncoded(4).threshold
    4
    """
    n = require_workers("uncoded", n)
    return one_message(f"uncoded({n})", cyclic_tasks(n, 1), np.eye(n), all_of(tuple(range(n))))
