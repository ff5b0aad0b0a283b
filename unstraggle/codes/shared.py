"""What the scheme files share: cyclic queues, one message per worker, groups of equal workers, tasks that are handed out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from ..scheme.handing import Handing, OnRequest
from ..scheme.rule import Need


def cyclic_tasks(n: int, load: int) -> Tasks:
    """Worker i computes partitions i, i + 1, ..., i + load - 1 (mod n), in this order."""
    worker, step = np.divmod(np.arange(n * load), load)
    return Tasks(worker, (worker + step) % n)


def repeated(workers: int) -> Code:
    """A group whose workers all compute the same `workers` partitions and send their sum; the first to finish counts.

    All in the same order, so that the copies of the sum are equal to the bit and the gradient does not depend on who is first.

    >>> repeated(2).tasks.part
    array([0, 1, 0, 1])
    """
    worker, part = np.divmod(np.arange(workers * workers), workers)
    return one_message("group", Tasks(worker, part), np.ones((workers, workers)), Need(1, tuple(range(workers))))


def one_message(name: str, tasks: Tasks, coef: NDArray[Any], rule: Need) -> Code:
    """Every worker sends row i of `coef` once all its tasks are done."""
    n = len(coef)
    messages = Messages(np.arange(n), np.bincount(tasks.worker, minlength=n), coef)
    return Code(name, n, tasks, messages, Span(messages.coef, rule))


def handed(name: str, n: int, load: int, pieces: int, **how: Any) -> Code:
    """Worker i may do shares i, ..., i + load - 1 (mod n), each cut into pieces: its own from the front, others from the end.

    Each sends the sum of what it did when it is asked.
    """
    worker, place = np.divmod(np.arange(n * load * pieces), load * pieces)
    step, piece = np.divmod(place, pieces)
    part = (worker + step) % n * pieces + np.where(step == 0, piece, pieces - 1 - piece)
    tasks = Tasks(worker, part, work=1 / pieces)
    coef = np.zeros((n, n * pieces))
    coef[worker, part] = 1.0
    messages = Messages(np.arange(n), np.full(n, load * pieces), coef)
    decoder = OnRequest(messages.coef, Need(n - load + 1, tuple(range(n))))
    owner = tuple((np.arange(n * pieces) // pieces).tolist())
    return Code(name, n, tasks, messages, decoder, handing=Handing(owner, **how))
