"""Placement: codes that differ from round to round, over data that stays where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import Invalid
from .code import Code

Change = Callable[[int, Any], Code]
"""change(round, seen): the code of a round, from its number and the `Estimate` of the one before it (None at first)."""


def require_placed(placement: Code, code: Code) -> Code:
    """A code for one round, if workers hold what it needs and send as many messages, each as long as before."""
    if (code.n, code.k, code.blocks) != (placement.n, placement.k, placement.blocks) or code.data is not None:
        raise Invalid(
            f"A code that changes from round to round keeps workers, partitions and blocks: {placement.name} has "
            f"n={placement.n}, k={placement.k}, but {code.name} n={code.n}, k={code.k}."
        )
    mine, theirs = code.messages, placement.messages
    same = np.array_equal(mine.worker, theirs.worker) and np.array_equal(mine.block, theirs.block)
    if not same or mine.mixes != theirs.mixes or not mine.plain.all():
        raise Invalid(
            f"A code that changes from round to round keeps who sends message m, which is plain: those of {code.name} are not "
            f"like those of {placement.name}. Put the rows of its table in the same order."
        )
    _require_held(placement, code)
    return code


def _require_held(placement: Code, code: Code) -> None:
    held = {*zip(placement.tasks.worker.tolist(), placement.tasks.part.tolist(), strict=True)}
    wanted = {*zip(code.tasks.worker.tolist(), code.tasks.part.tolist(), strict=True)}
    if wanted - held:
        worker, part = min(wanted - held)
        raise Invalid(f"{code.name}: worker {worker} computes partition {part}, which {placement.name} does not give it.")
    queued = np.bincount(code.tasks.worker, minlength=code.n)
    most = np.bincount(placement.tasks.worker, minlength=code.n)
    if (queued > most).any():
        worker = int(np.argmax(queued - most))
        raise Invalid(f"{code.name}: worker {worker} has {queued[worker]} tasks, but {placement.name} gives it {most[worker]}.")
