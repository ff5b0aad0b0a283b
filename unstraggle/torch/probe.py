"""Probe: what a forward and backward pass costs however few samples it has, measured before the start. time = a + b work."""

from __future__ import annotations

import contextlib
import logging
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..codes import uncoded
from ..engines.base import Engine
from ..runtime.master import Master
from .problem import TorchProblem
from .samplers import Sampled
from .start import engine_maker, start_master

log = logging.getLogger("unstraggle")

PARTS, TIMES = (4, 2, 1), 5
"""A pass has a quarter, half, and all of a partition's samples, so often each; medians count."""


@dataclass(frozen=True)
class PassCost:
    """fixed: a, seconds of a pass whatever its samples. whole: seconds of a pass over all `samples` of a partition: a + b.

    >>> print(PassCost(fixed=0.01, whole=0.04, samples=32))
    A pass over the 32 samples of a share takes 0.04 s, of which 0.01 s whatever their number.
    """

    fixed: float
    whole: float
    samples: int

    def __str__(self) -> str:
        return (
            f"A pass over the {self.samples} samples of a share takes {self.whole:.3g} s, of which {self.fixed:.3g} s whatever "
            "their number."
        )


def measured(run: Callable[[int], Any], samples: int, clock: Callable[[], float] = time.perf_counter) -> PassCost | None:
    """The cost of run(count), which computes so many samples; None where there are too few to tell.

    Sizes take turns, so that a machine that slows down slows all of them, and each runs once before it counts.

    >>> now = [0.0]
    >>> def run(count):
    ...     now[0] += 0.5 + 0.25 * count
    >>> measured(run, 8, lambda: now[0])
    PassCost(fixed=0.5, whole=2.5, samples=8)
    """
    counts = sorted({samples // part for part in PARTS})
    if counts[0] < 1 or len(counts) < 2:
        return None
    seconds: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(TIMES + 1):
        for count in counts:
            began = clock()
            run(count)
            seconds[count] += [clock() - began] if turn else []
    fixed, each = line(counts, [statistics.median(seconds[count]) for count in counts])
    return PassCost(fixed, fixed + each * samples, samples)


def line(work: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """a and b, neither below zero, for which a + b work is nearest to times.

    >>> line([1, 2, 4], [3.0, 5.0, 9.0]), line([1, 2, 4], [1.0, 3.0, 7.0]), line([1, 2], [3.0, 1.0])
    ((1.0, 2.0), (0.0, 1.6666666666666667), (2.0, 0.0))
    """
    each, fixed = statistics.linear_regression(work, times)
    if each < 0:
        return statistics.fmean(times), 0.0
    if fixed < 0:
        return 0.0, statistics.linear_regression(work, times, proportional=True).slope
    return fixed, each


def probed(problem: TorchProblem, threads: int, part: int | None = None) -> PassCost | None:
    """What a pass of a problem costs here, in so many threads, as on a worker; None where that cannot be told. part: whose
    samples, by default of the partition that has most."""
    if torch.device(problem.how.devices[0]).type == "cuda" and not torch.cuda.is_available():
        return None
    assert not isinstance(problem.batches, Sampled), "a sampler of one's own would draw a batch for this"
    part = problem.batches.fullest(0) if part is None else part
    samples = len(problem.batches.rows(0, part))
    with _threads(threads):
        found = measured(lambda count: _pass(problem, part, count), min(samples, problem.how.micro or samples))
    if found is not None:
        log.info("%s", found)
    return found


def _pass(problem: TorchProblem, part: int, samples: int) -> None:
    with torch.enable_grad():
        loss = problem.loss(part, 0, slice(0, samples))
        if loss is not None and loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
    for p in problem.replica.params.values():
        p.grad = None
    problem.replica.wait()


@dataclass(frozen=True, eq=False)
class Probe:
    """A problem whose partial gradients are what passes of another one cost on the worker: three numbers at a partition's own
    place, zeros where that cannot be told. context: values for `forward`, which come with a step else."""

    problem: TorchProblem
    context: dict[str, Any]

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float64)

    @property
    def k(self) -> int:
        return self.problem.k

    @property
    def dim(self) -> int:
        return 3 * self.k

    def share(self, worker: int, parts: Iterable[int]) -> Probe:
        return Probe(self.problem.share(worker, parts), self.context)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        self.problem.context, costs = self.context, np.zeros((self.k, 3))
        found = probed(self.problem, torch.get_num_threads(), part)
        if found is not None:
            costs[part] = astuple(found)
        return costs.reshape(-1)[where]


def probed_on_workers(problem: TorchProblem, make: Callable[[Any], Engine]) -> PassCost | None:
    """What a pass costs on the workers of an engine, measured on all at once, as they compute: that of the middle one."""
    with Master(uncoded(problem.k), make(Probe(problem, problem.context))) as master:
        costs = master.gradient(np.zeros(3 * problem.k)).gradient.reshape(-1, 3)
    told = sorted((fixed, whole, int(samples)) for fixed, whole, samples in costs.tolist() if samples)
    if not told:
        return None
    found = PassCost(*told[len(told) // 2])
    log.info("On the workers: %s", found)
    return found


def probed_for(problem: TorchProblem, engine: str, options: Mapping[str, Any], latency: Any, seed: int) -> PassCost | None:
    """What a pass costs where the workers of an engine will be."""
    if engine == "local":  # workers are as this process
        return probed(problem, int(options.get("threads", 1)))
    make = engine_maker(engine, {**options, "way": "host"}, latency, seed)  # where these few numbers are
    return start_master(problem, partial(probed_on_workers, problem, make))


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
