"""What the scheme files share: checks of n, s and load, cyclic task queues, and one-message codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..code import Code, Messages, Tasks
from ..decoders import Span
from ..errors import Invalid
from ..rule import Need


def require_count(scheme: str, name: str, value: Any, least: int, most: int, why: str) -> int:
    """An integer in a range, or an error that says which."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise Invalid(f"{scheme} needs an integer {name} with {least} <= {name} <= {most}, but got {name}={value!r}. {why}")
    return int(value)


def require_workers(scheme: str, n: Any) -> int:
    """A number of workers."""
    return require_count(scheme, "n", n, 1, 10**6, "Give the number of workers.")


def require_stragglers(scheme: str, n: Any, s: Any) -> tuple[int, int]:
    """A number of workers and how many of them may be missing."""
    n = require_workers(scheme, n)
    return n, require_count(scheme, "s", s, 0, n - 1, "At least one worker must be heard, so s is at most n - 1.")


def require_load(scheme: str, n: Any, load: Any) -> tuple[int, int]:
    """A number of workers and of partitions a worker computes."""
    n = require_workers(scheme, n)
    return n, require_count(scheme, "load", load, 1, n, "A worker computes each of the n partitions at most once.")


def cyclic_tasks(n: int, load: int) -> Tasks:
    """Worker i computes partitions i, i + 1, ..., i + load - 1 (mod n), in this order."""
    worker, step = np.divmod(np.arange(n * load), load)
    return Tasks(worker, (worker + step) % n)


def one_message(name: str, tasks: Tasks, coef: NDArray[Any], rule: Need) -> Code:
    """Every worker sends row i of `coef` once all its tasks are done."""
    n = len(coef)
    messages = Messages(np.arange(n), np.bincount(tasks.worker, minlength=n), coef)
    return Code(name, n, tasks, messages, Span(messages.coef, rule))
