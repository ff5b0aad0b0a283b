"""What the scheme files share: cyclic task queues, and codes with one message a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from ..scheme.rule import Need


def cyclic_tasks(n: int, load: int) -> Tasks:
    """Worker i computes partitions i, i + 1, ..., i + load - 1 (mod n), in this order."""
    worker, step = np.divmod(np.arange(n * load), load)
    return Tasks(worker, (worker + step) % n)


def one_message(name: str, tasks: Tasks, coef: NDArray[Any], rule: Need) -> Code:
    """Every worker sends row i of `coef` once all its tasks are done."""
    n = len(coef)
    messages = Messages(np.arange(n), np.bincount(tasks.worker, minlength=n), coef)
    return Code(name, n, tasks, messages, Span(messages.coef, rule))
