"""Passes over vectors of a gradient's size, counted while a step runs: at the master, and on a worker beyond its backward pass.

Counted are operations of torch on tensors of the whole vector's size or groups of them (not views of it), and the functions of
this library that go over one with NumPy or a kernel. What the backward pass adds to single parameters is its own business.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from unstraggle.engines import local_worker
from unstraggle.runtime import master, sums
from unstraggle.runtime.serve import Job, run, share_of
from unstraggle.torch import Coded, replica

from .way_models import perceptron, points

FREE = ("empty", "detach", "alias")


class Operations(TorchDispatchMode):
    """Operations of torch that touch as many numbers as the vector has."""

    def __init__(self, dim: int, seen: Counter[str]) -> None:
        super().__init__()
        self.dim, self.seen = dim, seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0]
        if not func.is_view and not name.startswith(FREE) and self.dim <= max(map(_numbers, [*args, out]), default=0):
            self.seen[name] += 1
        return out


def _numbers(value: Any) -> int:
    """Numbers of a tensor, or of a list of them."""
    if isinstance(value, torch.Tensor):
        return value.numel()
    return sum(map(_numbers, value)) if isinstance(value, list | tuple) else 0


def of_master(width: int = 1000, shared: bool = False) -> Counter[str]:
    """A step of two workers, as the master sees it."""
    seen: Counter[str] = Counter()
    model = perceptron(width)
    options: dict[str, Any] = {"scheme": "uncoded(2)", "batch_size": 64, "check": False, "shared": shared}
    with Coded(model, nn.CrossEntropyLoss(), points(), **options) as run_:
        run_.backward()
        model.zero_grad()
        smallest = sum(p.numel() for p in model.parameters())  # the head is not part of every pass
        with Operations(smallest, seen), watched(smallest, seen):
            run_.backward()
    return seen


def of_worker(width: int = 1000) -> Counter[str]:
    """A task and its message, on a worker of the local engine, without the process around it."""
    seen: Counter[str] = Counter()
    with Coded(perceptron(width), nn.CrossEntropyLoss(), points(), scheme="uncoded(2)", batch_size=64, check=False) as run_:
        share = share_of(run_.problem, run_.code, 0, checked=False)
        flat, finite = run_._params(), run_._finite
        assert isinstance(finite, sums.Pass) and finite.fine()  # another thread may have been at it
        worker, job = _worker(share), Job(0, 0, np.array(flat), 0.0)
        share.problem.stay()  # type: ignore[attr-defined]
        share.problem.grad(job.params, 0)  # makes what is made once
        with Operations(run_.problem.dim, seen), watched(run_.problem.dim, seen):
            run(share, job, worker.send, lambda: False, lambda until: None, worker.begin)
    return seen


def _worker(share: Any) -> local_worker.Worker:
    """A worker of the local engine whose notes go nowhere."""
    import os

    from unstraggle.engines.shared import Area, Board, Fd, Letter
    from unstraggle.runtime import frame

    dim, head = share.problem.dim, frame.head_size(1)
    size = head + dim * share.dtype.itemsize
    areas = Area(Board.size(2, 2)), Area(2 * dim * share.dtype.itemsize), Area(size)
    notes = Fd(os.open(os.devnull, os.O_WRONLY))
    return local_worker.Worker(
        share, local_worker.Channels(Fd(-1), Fd(-1), notes, *areas, Letter(), ((0, size, head),), 2, 2, dim, share.dtype.str)
    )


@contextlib.contextmanager
def watched(dim: int, seen: Counter[str]) -> Iterator[None]:
    """Functions of this library that go over vectors of this size without torch."""

    def count(name: str, place: int) -> Any:
        def wrap(function: Any) -> Any:
            def counted(*args: Any, **options: Any) -> Any:
                if np.size(args[place]) >= 0.99 * dim:
                    seen[name] += 1
                return function(*args, **options)

            return counted

        return wrap

    def put(self: Any, index: int, round: int, payload: Any, *more: Any) -> None:
        if payload.ctypes.data != np.frombuffer(self._rooms[index], np.uint8).ctypes.data:
            seen["copy into the slot"] += 1
        old_put(self, index, round, payload, *more)

    def over(self: Any, views: Any) -> None:
        write_over(self, views)
        seen["gradients over what stood in the slot"] += 1

    def begin(self: Any, index: int) -> Any:
        overwrite, self._overwrite = self._overwrite, zeros(self._overwrite)
        found, self._overwrite = old_begin(self, index), overwrite
        return found

    def zeros(overwrite: Any) -> Any:
        """Whether a problem writes over what stands in a slot; counts zeros where it does not."""

        def asked(total: Any) -> bool:
            able = overwrite is not None and overwrite(total)
            seen.update([] if able else ["zeros in the slot"])
            return able

        return asked

    def begin_sums(self: Any) -> Any:
        tables = [] if self._long is None else [(self._long.numbers, self._long.size)]
        every = tables + [(len(one.out), len(one.out) * (1 + len(one.vectors))) for one in self.short]
        numbers, touched = (sum(column) for column in zip(*every, strict=True))
        if numbers >= 0.99 * dim:
            seen["parameters out, and a look at them" if touched == 2 * numbers else "weighted sum"] += 1
        return began(self)

    old_put, old_begin, copyto = local_worker.Worker._put, local_worker.Worker.begin, np.copyto
    began, write_over = sums.Sums.begin, replica.Replica._write_over
    with (
        patch.object(sums.Sums, "begin", begin_sums),
        patch.object(master, "finite", count("look at parameters", 0)(master.finite)),
        patch.object(np, "copyto", count("copy", 0)(copyto)),
        patch.object(local_worker.Worker, "_put", put),
        patch.object(local_worker.Worker, "begin", begin),
        patch.object(replica.Replica, "_write_over", over),
    ):
        yield
