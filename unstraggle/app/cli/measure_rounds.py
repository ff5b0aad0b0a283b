"""The training that `unstraggle measure` records: waiting for all, on random data or on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .train import TASKS, modules
from .workers import PROBLEMS, make_engine, make_problem

Step = Callable[[], None]

__all__ = ["PROBLEMS", "TASKS", "Step", "rounds_of"]


@contextmanager
def rounds_of(
    task: str,
    engine: str,
    workers: int,
    dim: int,
    samples: int,
    seconds: float,
    latency: str | None,
    seed: int,
    trace: Path,
    uneven: bool = False,
) -> Iterator[Step]:
    """Start workers that record into a trace; gives the function that takes one step of training.

    seconds: how long a task on random data takes, about; a rehearsal takes as long as its latency says.
    """
    from ...codes import uncoded
    from ...problems.repeated import lasting

    code = uneven_shares(workers) if uneven else uncoded(workers)
    if task in TASKS:
        images = modules()[1].task(task)
        with _images(images, code, lambda problem: make_engine(engine, problem, latency, {}, seed), seed, trace) as step:
            yield step
        return
    problem = make_problem(task, code, dim, samples, seed)
    computed = problem if latency else lasting(problem, seconds)
    with _random_data(code, problem, make_engine(engine, computed, latency, {}, seed), trace) as step:
        yield step


def uneven_shares(n: int) -> Any:
    """Waiting for all, where a worker has two tasks, a quarter of its share and the rest: that tells a from b in a + b work.

    >>> uneven_shares(2).tasks.work.tolist()
    [0.25, 0.75, 0.25, 0.75]
    """
    import numpy as np

    from ...codes.shared import one_message
    from ...scheme.code import Tasks
    from ...scheme.names import no_expression
    from ...scheme.rule import all_of

    tasks = Tasks(np.repeat(np.arange(n), 2), np.arange(2 * n), work=np.tile([0.25, 0.75], n))
    name = no_expression(f"uncoded({n}), a quarter of each share first")
    return one_message(name, tasks, np.kron(np.eye(n), [1.0, 1.0]), all_of(tuple(range(n))))


@contextmanager
def _images(task: Any, code: Any, engine: Callable[[Any], Any], seed: int, trace: Path) -> Iterator[Step]:
    """A network on images, by the loop that a user would write."""
    import torch

    from ...torch import Coded

    model = task.build(seed)
    optimizer = torch.optim.Adam(model.parameters(), task.lr)
    options = {"batch_size": task.batch, "seed": seed, "trace": trace}
    with Coded(model, task.loss, task.data, scheme=code, engine=engine, **options) as run:

        def step() -> None:
            optimizer.zero_grad()
            run.backward()
            optimizer.step()

        yield step


@contextmanager
def _random_data(code: Any, problem: Any, engine: Any, trace: Path) -> Iterator[Step]:
    """Gradient descent, which needs no torch."""
    import numpy as np

    from ...runtime.master import Master

    params = np.zeros(problem.dim)
    samples = sum(len(labels) for _, labels in problem.partitions)
    rate = (np.sqrt(samples) + np.sqrt(problem.dim)) ** -2  # below what makes descent on such data diverge
    with Master(code, engine, trace=trace) as master:

        def step() -> None:
            nonlocal params
            params = params - rate * master.gradient(params).gradient

        yield step
