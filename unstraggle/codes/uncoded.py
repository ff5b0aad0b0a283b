"""No redundancy: every worker computes its own partition, the master waits for all."""

from __future__ import annotations

import numpy as np

from ..code import Code
from ..rule import all_of
from .table import cyclic_tasks, one_message, require_workers


def uncoded(n: int) -> Code:
    """Plain synchronous training, the baseline that waits for the slowest worker.

    >>> uncoded(4).threshold
    4
    """
    n = require_workers("uncoded", n)
    return one_message(f"uncoded({n})", cyclic_tasks(n, 1), np.eye(n), all_of(tuple(range(n))))
