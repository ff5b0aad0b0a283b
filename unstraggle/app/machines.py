"""One machine that plays several: tasks last as long as on machines of their own, of which some are busy with another job."""

from __future__ import annotations

import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..torch.batches import Dealt
from ..torch.problem import TorchProblem
from ..torch.samplers import Sampled
from ..trace import Trace

JITTER = 0.2
"""Share of a task's time that varies, exponentially; the rest is fixed."""


@dataclass(frozen=True)
class Machines:
    """A worker takes about `unit` seconds for 1/n of a batch; beside another job, `factor` times as long.

    slow: how many machines have another job in a step. changing: whether they are drawn anew for every step, or always the
    same. Draws depend on seed, step and worker only, so that all schemes meet the same slowness in the same step.

    >>> machines = Machines(4, unit=0.03, slow=1, factor=10.0)
    >>> [machines.busy(step) for step in range(5)]
    [(2,), (3,), (2,), (2,), (2,)]
    """

    n: int
    unit: float
    slow: int
    factor: float
    changing: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.unit >= 0 and self.factor >= 1):
            raise Invalid(f"Machines need a unit >= 0 seconds and a factor >= 1, but got {self.unit} and {self.factor}.")

    def busy(self, step: int) -> tuple[int, ...]:
        """The workers whose machine has another job in a step."""
        if not self.changing:
            return tuple(int((number + 0.5) * self.n / self.slow) for number in range(self.slow))
        drawn = np.random.default_rng((self.seed, step)).permutation(self.n)[: self.slow]
        return tuple(map(int, np.sort(drawn)))

    def seconds(self, worker: int, step: int) -> float:
        """What 1/n of a batch takes a worker in a step."""
        varying = np.random.default_rng((self.seed, step, worker)).exponential(JITTER)
        return self.unit * (1 - JITTER + float(varying)) * (self.factor if worker in self.busy(step) else 1.0)

    def stretch(self, trace: Trace) -> float:
        """How many times as long as it should the middle task of recorded rounds took: more than 1 on a busy machine."""
        lasted = (trace.durations / trace.work)[np.isfinite(trace.durations)]
        middle = self.unit * (1 - JITTER + JITTER * np.log(2))
        return float(np.median(lasted) / middle) if self.unit > 0 and len(lasted) else 1.0


class OnMachines:
    """A problem whose tasks last as long as `machines` say: the gradient is computed, then the task waits for the rest.

    The wait is part of the task. Nothing cuts it short, as nothing stops a machine within a gradient: a worker that is not
    needed any more is away until its task is done, also in later rounds. It takes no processor, so that two cores can play
    eight machines.
    """

    def __init__(self, problem: TorchProblem, machines: Machines, worker: int = 0) -> None:
        self.problem, self.machines, self.worker = problem, machines, worker

    @property
    def k(self) -> int:
        return self.problem.k

    @property
    def dim(self) -> int:
        return self.problem.dim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.problem.dtype

    def share(self, worker: int, parts: Set[int]) -> OnMachines:
        """The share of a worker, who is on its own machine."""
        return OnMachines(self.problem.share(worker, parts), self.machines, worker)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> Any:
        """As the problem's, in the time of this machine."""
        until = time.monotonic() + self._lasting(part, where, step)
        found = self.problem.grad(params, part, where, step)
        _wait(until)
        return found

    def accumulate(self, params: NDArray[Any], part: int, where: slice, step: int, coef: float, total: Any) -> Any:
        """As the problem's, in the time of this machine."""
        until = time.monotonic() + self._lasting(part, where, step)
        found = self.problem.accumulate(params, part, where, step, coef, total)
        _wait(until)
        return found

    def _lasting(self, part: int, where: slice, step: int) -> float:
        batches, (begin, end, _) = self.problem.batches, where.indices(self.dim)
        sizes = batches.shares if isinstance(batches, Dealt | Sampled) else batches.sizes
        work = self.machines.n * sizes[part] / sum(sizes) * (end - begin) / self.dim
        return work * self.machines.seconds(self.worker, step)


def _wait(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))
