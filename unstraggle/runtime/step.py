"""Step: what happened in one step of training, one name for each thing. Files, tables, pages and pictures use these names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from ..scheme.code import Code
    from .message import Message


@dataclass(frozen=True)
class Split:
    """Where the wall-clock time of a step went, in seconds that add up to it.

    Along the message that ended the round: compute, its worker's tasks; transfer, its way; slack, the rest of the wait, such as
    orders on their way, or a deadline that was not yet over. decode: from the end of the round to the gradient. outside: what
    came before the round: the optimiser, the batch, and all else that the program does between two gradients.
    """

    compute: float = 0.0
    transfer: float = 0.0
    slack: float = 0.0
    decode: float = 0.0
    outside: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Step:
    """The record of a step. Times are seconds; on a sampled clock only the wait takes any.

    wall: wall-clock time since the record of the step before, so that those of a run add up; of the first, since its start.
    wait: from the order to the end of the round. idle: of the wall, how long the mean worker that is not lost computed nothing
    for this step; those that had not finished count as busy until the round ended. split: where the wall went.

    exact: whether the gradient is the sum of all partial gradients. residual: relative error of the decoded coefficients.
    finite: False where the gradient has NaN or infinity, which is never exact; it is given all the same, so that people, or a
    `GradScaler`, can leave the step out. skipped: no gradient could be had, and the policy is to go on. used: workers of which
    a message had arrived; late: those alive of which none had; lost: those that were lost before or during the round, even if
    they came back.

    messages: how many had arrived. stale: messages of earlier rounds that came meanwhile. duplicates: that came twice.
    damaged: refused ones. bytes: of those that had arrived.

    code: of the round, by its name. switches: in a run that changes its code as it goes, what was decided before this step:
    another code, what the last change has gained (`Switch`, as JSON), or both; as a rule nothing.

    >>> step = Step(step=0, wall=0.5, wait=0.4, exact=True, split=Split(compute=0.3, slack=0.1, decode=0.1))
    >>> longer = step.lasting(2.0)
    >>> longer.wall, longer.wait, longer.split.outside
    (2.0, 0.4, 1.5)
    """

    step: int
    wall: float
    wait: float
    exact: bool
    residual: float = 0.0
    finite: bool = True
    round: int = 0
    idle: float = 0.0
    split: Split = field(default=Split())
    skipped: bool = False
    used: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    code: str = ""
    switches: tuple[Mapping[str, Any], ...] = ()
    messages: int = 0
    stale: int = 0
    duplicates: int = 0
    damaged: int = 0
    bytes: int = 0

    def lasting(self, wall: float) -> Self:
        """The same step where its wall-clock time was taken by somebody else; the difference was spent outside."""
        more = wall - self.wall
        return replace(self, wall=wall, idle=self.idle + more, split=replace(self.split, outside=self.split.outside + more))

    def to_dict(self) -> dict[str, Any]:
        """The record for JSON, without gradients."""
        return record(self, Step)


def record(step: Step, kind: type[Step]) -> dict[str, Any]:
    """The fields of a step that a kind of step has, as JSON knows them."""
    found = {each.name: getattr(step, each.name) for each in fields(kind)}
    lists = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    return found | lists | {"split": dict(vars(step.split))}


def spent(
    messages: Collection[Message],
    computed: Sequence[Sequence[float]],
    wait: float,
    clock: float,
    outside: float,
    busy: Iterable[int],
    lost: Collection[int],
    noted: Mapping[int, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """wall, idle and split of a step, at a clock that began with its round. computed: as below. busy: who had not finished.
    noted: who had announced messages that may not have been fetched, and when last: they had computed until then."""
    seconds = [took or noted.get(worker, 0.0) for worker, (took, _) in enumerate(computed)]
    last = max(messages, key=attrgetter("time"), default=None)
    compute = 0.0 if last is None else min(seconds[last.worker], wait)
    transfer = min(max(0.0, last.time - last.times[-1]), wait - compute) if last is not None and last.times else 0.0
    split = Split(compute, transfer, wait - compute - transfer, max(0.0, clock - wait), outside)
    wall = wait + split.decode + outside
    for worker in busy:
        seconds[worker] = wait
    here = [took for worker, took in enumerate(seconds) if worker not in lost]
    worked = sum(min(took, wall) for took in here) / max(len(here), 1)
    return {"wall": wall, "wait": wait, "idle": wall - worked if here else 0.0, "split": split}


@lru_cache(maxsize=64)
def _mean_work(code: Code) -> list[float]:
    """For each worker, the mean units of work of its tasks: which of them a message tells of is not known where they are handed
    out."""
    tasks = np.bincount(code.tasks.worker, minlength=code.n)
    return (np.bincount(code.tasks.worker, code.tasks.work, code.n) / np.maximum(tasks, 1)).tolist()  # type: ignore[no-any-return]


def computed(messages: Iterable[Message], code: Code) -> list[list[float]]:
    """(n, 2) seconds of the tasks that workers told of, and their units of work.

    An engine on a sampled clock knows arrivals only: all that a worker did by its last message took until then.
    """
    found, mean = [[0.0, 0.0] for _ in range(code.n)], _mean_work(code)
    for message in messages:
        own, times = found[message.worker], message.times
        if times:
            own[0] += times[1] - times[0] if len(times) == 2 else _lasted(times)
            own[1] += len(times) // 2 * mean[message.worker]
        else:
            own[:] = max(own[0], message.time), max(own[1], float(code.ready()[message.index]))
    return found


def _lasted(times: Sequence[float]) -> float:
    """Seconds of tasks of which these are beginnings and ends, in turn."""
    return sum(times[1::2]) - sum(times[::2])
