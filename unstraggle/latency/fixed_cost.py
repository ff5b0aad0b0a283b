"""What a task costs however small it is: time = a + b work. As a model, and from traces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..doors import door
from ..errors import Invalid
from ..scheme.arrivals import Latency, Resumes, delivered, task_seconds
from ..scheme.code import Code
from ..statistics import mean_and_half
from ..trace import Trace
from .base import Times, arrivals

ALIKE = 1.1
"""Tasks whose work differs by less than this factor do not tell a fixed cost from work."""
FEWEST = 20
"""Rounds of workers from which on a cost is estimated."""


@door
@dataclass(frozen=True)
class FixedCost:
    """A task takes `seconds` more than under another model: time = a + b work, where that model says what b is.

    seconds: a, for all workers or one each: what a pass costs whatever its size, such as the launches of a network's layers on
    a GPU. Whole shares of the data hide it, small pieces and blocks pay for it each time. Behind a `Network`, not before it.

    >>> from unstraggle.latency import TwoSpeed
    >>> from unstraggle.codes import uncoded_mmc
    >>> FixedCost(TwoSpeed(1, 1, 0), seconds=0.5).sample(uncoded_mmc(2, load=2), 1, np.random.default_rng(0)).tolist()
    [[1.5, 3.0, 1.5, 3.0]]
    """

    base: Any
    seconds: float | tuple[float, ...]

    def __post_init__(self) -> None:
        costs = np.asarray(self.seconds, dtype=float)
        if costs.ndim:
            object.__setattr__(self, "seconds", tuple(costs.tolist()))
        if costs.ndim > 1 or not (np.isfinite(costs) & (costs >= 0)).all():
            raise Invalid(f"FixedCost needs seconds >= 0, for all workers or one each, but got {self.seconds!r}.")
        if not isinstance(self.base, Latency):
            raise Invalid(f"FixedCost adds to a latency model such as Exponential(rate=10), but got {self.base!r}.")

    def per_task(self, code: Code) -> Times:
        """(T,) seconds that each task costs besides its work."""
        costs = np.asarray(self.seconds, dtype=float)
        if costs.ndim and len(costs) != code.n:
            raise Invalid(f"FixedCost has costs of {len(costs)} workers, but the code has {code.n}.")
        return np.broadcast_to(costs, code.n)[code.tasks.worker]

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        return task_seconds(self.base, code, rounds, rng) + self.per_task(code)

    def deliver(self, code: Code, ready: Times) -> Times:
        return delivered(self.base, code, ready)

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        return self.deliver(code, arrivals(code, self.durations(code, rounds, rng)))

    def from_round(self, first: int) -> FixedCost:
        """The same costs, where the model behind them has rounds with numbers beginning with a later one."""
        return replace(self, base=self.base.from_round(first)) if isinstance(self.base, Resumes) else self


@dataclass(frozen=True)
class CostEstimate:
    """What traces say of a in time = a + b work: seconds with a 95 % interval, or why they do not tell (then NaN)."""

    seconds: float = float("nan")
    ci95: tuple[float, float] = (float("nan"), float("nan"))
    why: str | None = None

    @property
    def known(self) -> bool:
        """Whether there is a cost for sure."""
        return self.why is None and self.ci95[0] > 0

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON, which has no NaN: null stands for it."""
        told = self.why is None
        return {"seconds": self.seconds if told else None, "ci95": list(self.ci95) if told else None, "why": self.why}

    def __str__(self) -> str:
        if self.why is not None:
            return f"A fixed cost per task cannot be told: {self.why}."
        low, high = self.ci95
        return f"Fixed cost per task: {self.seconds:.4g} s ({low:.4g} to {high:.4g}), besides the time for its work."


@door
def fixed_cost(*traces: Trace) -> CostEstimate:
    """The fixed cost of a task, from rounds in which workers have tasks of different work, or from traces of the same workers.

    In one trace every worker and round has its own b: its tasks give a line, and the median of the intercepts is a. Over
    several traces, such as of whole shares and of pieces, a worker's median times give the line; speeds must not have changed
    between them. Tasks of one size do not tell a from b, and workers of different speed do not stand in for different work.

    >>> from unstraggle.trace import from_seconds
    >>> speeds = np.random.default_rng(0).uniform(1, 2, (30, 4, 1))
    >>> fixed_cost(from_seconds(0.5 + speeds * [1.0, 3.0], work=[1.0, 3.0])).seconds
    0.5
    >>> print(fixed_cost(from_seconds(speeds)))
    A fixed cost per task cannot be told: all tasks have about the same work.
    """
    if not traces or len({trace.n for trace in traces}) > 1:
        raise Invalid(f"fixed_cost needs traces of the same workers, but got {[trace.n for trace in traces]} workers.")
    if len(traces) > 1:
        return _between(traces)
    trace = traces[0]
    times, work = trace.durations, np.broadcast_to(trace.work, trace.end.shape)
    usable = np.isfinite(times).all(axis=2) & (trace.work.max(axis=-1) > ALIKE * trace.work.min(axis=-1))
    if not usable.any():
        return CostEstimate(why="all tasks have about the same work")
    if usable.sum() < FEWEST:
        return CostEstimate(why=f"only {usable.sum()} rounds of workers with tasks of different work; {FEWEST} are needed")
    starts = _intercepts(work[usable], times[usable])
    middle = float(np.median(starts))
    spread = 1.2533 * 1.4826 * float(np.median(np.abs(starts - middle)))  # of the median, from the median deviation
    half = 1.96 * spread / np.sqrt(len(starts))
    return CostEstimate(middle, (middle - half, middle + half))


def _between(traces: tuple[Trace, ...]) -> CostEstimate:
    """A line for each worker through its median times of tasks, over all traces."""
    if any(trace.work.ndim == 3 for trace in traces):
        return CostEstimate(why="the code changes within a trace")
    points = [(trace.work, np.median(trace.durations, axis=0)) for trace in traces]
    work, times = (np.concatenate(column, axis=1) for column in zip(*points, strict=True))
    if not (work.max(axis=1) > ALIKE * work.min(axis=1)).all():
        return CostEstimate(why="all tasks have about the same work, in all traces")
    if not np.isfinite(times).all() or len(work) < 2:
        return CostEstimate(why="it takes at least 2 workers that end most of their tasks")
    mean, half = (float(value) for value in mean_and_half(_intercepts(work, times)))
    return CostEstimate(mean, (mean - half, mean + half))


def _intercepts(work: Times, times: Times) -> Times:
    """(rows,) of least squares lines of times (rows, tasks) over work (rows, tasks)."""
    centred = work - work.mean(axis=1, keepdims=True)
    slope = (centred * times).sum(axis=1) / (centred**2).sum(axis=1)
    return np.asarray(times.mean(axis=1) - slope * work.mean(axis=1))


def without_fixed_cost(trace: Trace, otherwise: float | None = None) -> tuple[Times, float]:
    """(rounds, workers) seconds of a unit of work without the fixed cost of tasks, and that cost; 0 where it is not known.
    otherwise: the cost where the trace cannot tell it.

    Where a worker has not ended its tasks, or took less than the cost, its time is left as it is.
    """
    found = fixed_cost(trace)
    if found.why is not None and otherwise:
        found = CostEstimate(otherwise, (otherwise, otherwise))
    if not found.known:
        return trace.seconds, 0.0
    done = np.isfinite(trace.end)
    work = np.where(done, trace.work, 0.0).sum(axis=2)
    rest = trace.seconds - found.seconds * np.divide(done.sum(axis=2), work, out=np.zeros(work.shape), where=work > 0)
    return np.where(rest > 0, rest, trace.seconds), found.seconds
