"""Handing: codes whose table says what workers may do. Who does what is decided while the round runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .decoders import Decoded, Linear

if TYPE_CHECKING:
    from .code import Code

OVERDUE = 1.5
"""A task is overdue for a helper when it was given longer ago than so many times the helper's own time for such a task.

At 1.0, workers of equal speed would begin what is about to end; at 2.0 and more, helpers come late.
"""


@dataclass(frozen=True)
class Handing:
    """How the tasks of a round are handed out.

    owner: the worker of each partition that does it by preference: its own first, so that data stays warm; then that of the
    worker with the most left. helpers: when nothing is left, tasks that are overdue are given to others as well. reserve:
    tasks that a worker has before it, besides the one that it is at, where orders take long. in_order: every worker goes
    through its queue without being told, and is told only which of its tasks count.
    """

    owner: tuple[int, ...] = field(repr=False)
    helpers: bool = True
    reserve: int = 0
    in_order: bool = False


@dataclass(frozen=True, eq=False)
class OnRequest(Linear):
    """Sums that workers send when they are asked; every partition is in one of them, as the round has handed it out.

    Of a set of workers it says whether they hold all partitions between them. What each sum holds, the round knows.
    """

    def residual(self, got: NDArray[np.bool_]) -> NDArray[np.float64]:
        """(..., M) workers to (...) relative error of what they can do together: partitions that none of them holds."""
        held = np.asarray(got.reshape(-1, self.size).astype(float) @ abs(self.rows)) > 0
        return np.asarray(np.sqrt(1 - held.mean(axis=1)).reshape(got.shape[:-1]))

    def decode(self, got: NDArray[np.bool_]) -> Decoded:
        return Decoded(self._weights(got), float(self.residual(got)))

    def _weights(self, got: NDArray[np.bool_]) -> NDArray[Any]:
        return got[None].astype(float)


@dataclass(frozen=True, eq=False)
class Table:
    """Who may do what, ready to be handed out.

    task: (n, k) the row of the code's table for a worker and a partition, -1 where it may not. work: (k,) of partitions.
    own: partitions by owner, in the order of its queue. others: the owners from whom each worker may take, nearest first.
    message: (n,) the message of each worker.
    """

    task: NDArray[np.int64]
    work: NDArray[np.float64]
    own: tuple[tuple[int, ...], ...]
    others: tuple[tuple[int, ...], ...]
    message: NDArray[np.int64]


@lru_cache(maxsize=64)
def table_of(code: Code) -> Table:
    """The table of a code that hands out tasks; kept for the next round."""
    assert code.handing is not None
    tasks, owner = code.tasks, np.asarray(code.handing.owner)
    task = np.full((code.n, code.k), -1)
    task[tasks.worker, tasks.part] = np.arange(len(tasks))
    work = np.zeros(code.k)
    work[tasks.part] = tasks.work
    own: list[list[int]] = [[] for _ in range(code.n)]
    others: list[dict[int, None]] = [{} for _ in range(code.n)]
    for worker, part in zip(tasks.worker.tolist(), tasks.part.tolist(), strict=True):
        if owner[part] == worker:
            own[worker].append(part)
        else:
            others[worker][int(owner[part])] = None
    message = np.zeros(code.n, dtype=np.int64)
    message[code.messages.worker] = np.arange(len(code.messages))
    return Table(task, work, tuple(map(tuple, own)), tuple(map(tuple, others)), message)


def check_handing(code: Code) -> None:
    """Raise `Invalid` unless tasks of this code can be handed out."""
    handing, tasks, name = code.handing, code.tasks, code.name
    if handing is None:
        return
    if not np.array_equal(np.sort(code.messages.worker), np.arange(code.n)) or len(code.blocks) != 1:
        raise Invalid(f"{name}: where tasks are handed out, every worker sends one sum, of all coordinates.")
    if len(handing.owner) != code.k or not set(handing.owner) <= set(range(code.n)):
        raise Invalid(f"{name}: Handing.owner needs a worker for each of {code.k} partitions, but got {handing.owner}.")
    pairs = list(zip(tasks.worker.tolist(), tasks.part.tolist(), strict=True))
    if len(set(pairs)) < len(pairs) or {*zip(handing.owner, range(code.k), strict=True)} - {*pairs}:
        raise Invalid(f"{name}: a worker has each partition that it may do once, and all that it owns.")
    if not (isinstance(handing.reserve, int) and handing.reserve >= 0):
        raise Invalid(f"{name}: Handing.reserve is a number of tasks >= 0, but got {handing.reserve!r}.")
    if not handing.in_order:
        _check_whole_shares(code, table_of(code))


def _check_whole_shares(code: Code, table: Table) -> None:
    """Who takes from another's share takes whatever is the last of it, and so must hold all of it."""
    for worker, owners in enumerate(table.others):
        for owner in owners:
            lacks = [part for part in table.own[owner] if table.task[worker, part] < 0]
            if lacks:
                raise Invalid(
                    f"{code.name}: worker {worker} holds some of the partitions that worker {owner} owns, but not {lacks}. "
                    "Where tasks are handed out, a worker holds all that another owns, or nothing of it."
                )
