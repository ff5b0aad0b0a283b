"""TorchProblem: model, loss and a share of the dataset, as a worker has them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..scheme.code import Code
from .buffers import Kept
from .context import unpack
from .data import Columns, Items, Reader, moved, numbers, put_together
from .how import How, where
from .layout import Layout, torch_type
from .outcome import Outcome
from .passes import Passes
from .reading import Batches, Reading
from .replica import Loss, Replica
from .samplers import Sampled
from .seeds import seeded
from .stages import Staged
from .stopping import Stopping, heed


class TorchProblem:
    """The gradient of the loss, summed over the samples of a partition in a step's batch.

    Batches, dropout and augmentation are seeded by (seed, step, partition): torch, numpy and random, while samples are read
    and in the forward pass. Buffers of the model are as the master has them before every forward pass: what a partition's
    gradient is does not depend on what a worker did before.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Loss | None,
        data: Columns | Items,
        layout: Layout,
        batches: Batches,
        how: How,
        worker: int | None = None,
    ) -> None:
        self.replica = Replica(model, loss_fn, layout, how.devices[0], master=worker is None)
        self.data, self.layout, self.batches, self.how, self.worker = data, layout, batches, how, worker
        self.context: dict[str, Any] = {}
        self._over: Any = None
        self._berths: Any = None
        self._stopping: Stopping | None = None
        self._defaults: tuple[torch.dtype, str] | None = None  # of the master, where this was sent to another process

    @property
    def model(self) -> nn.Module:
        return self.replica.model

    @property
    def loss_fn(self) -> Loss | None:
        return self.replica.loss_fn

    @property
    def k(self) -> int:
        return self.batches.k

    @property
    def dim(self) -> int:
        return self.layout.dim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layout.dtype

    def share(self, worker: int, parts: Iterable[int]) -> TorchProblem:
        """What a worker gets: the partitions of its tasks, and one of the devices."""
        device = self.how.devices[worker % len(self.how.devices)]
        how = replace(self.how, devices=(device,))
        return TorchProblem(self.model, self.loss_fn, self.data.only(parts), self.layout, self.batches, how, worker)

    def only(self, parts: Iterable[int]) -> TorchProblem:
        """The same with some partitions."""
        return TorchProblem(self.model, self.loss_fn, self.data.only(parts), self.layout, self.batches, self.how, self.worker)

    def stay(self) -> None:
        """Parameters of an order may be used where they stand: the model's own become views of them."""
        self.replica.stays = True

    def way(self, code: Code, kind: str) -> Any:
        """How parameters and gradients travel between this problem's devices and a master on the same host; see `ways`."""
        from .ways import way_of

        return way_of(self.how.devices, self.how.home, code, self.dim, self.dtype, kind)

    def along(self, way: Any, say: Callable[[int, int], None]) -> None:
        """On a worker: this is the way that was opened. Where messages may leave bit by bit, they do."""
        self.replica.leave = way.leaving(say)

    def moors(self, code: Code, kind: str) -> bool:
        """Whether messages leave this problem's devices through pinned memory, on whichever host; see `ways`."""
        from .ways import fits

        return fits(self.how.devices, code, self.dtype, kind)

    def moor(self, rooms: Mapping[int, NDArray[Any]]) -> Any:
        """On a worker: let messages leave through these rooms, bit by bit, and parameters come through pinned memory."""
        from .berths import Berths
        from .pinned import pieces

        berths = Berths(self.replica.found(), self.dim, torch_type(self.dtype), rooms)
        self.replica.leave = berths.leave, len(pieces(self.dim, self.dtype.itemsize)) - 1
        self.replica.staged, self._berths = True, berths
        return berths

    def show(self, rooms: Mapping[int, NDArray[Any]], say: Callable[[int, int], None], times: int) -> Any:
        """On a worker: say how much of a message stands in its room before all of it does; so many times, at most."""
        from .berths import Rooms

        if self._berths is None:
            found = Rooms(rooms, self.dtype)
            self.replica.follow = found.leave, times
        else:
            found = self._berths
            self.replica.leave = found.leave, times
        found.say = say
        return found

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """Work on the device that does not wait for what another thread has asked of it, and is done at the end."""
        return self.replica.aside()

    def hear(self, context: bytes) -> None:
        """Take what the master has changed in the model, and the values for `forward`."""
        if not context:
            self.context = {}
            return
        found = unpack(context)
        self.context = found.get("values", {})
        if "rows" in found:
            assert isinstance(self.batches, Sampled)
            self.batches.tell(found["rows"].numpy(), [rows.numpy() for rows in found.get("next", ())])
        if "tensors" in found or "attributes" in found:
            self._open()
            self.replica.take(found)

    def prepare(self) -> None:
        """Move the samples of the next step to the device, where they are read already, and turn to its parameters."""
        if self.replica.opened:
            self.replica.foresee()
            self._reading.prepare()

    def heed(self, stopped: Callable[[], bool]) -> None:
        """Leave a task when its round is over, between micro-batches and between layers."""
        if self._stopping is None:
            self._open()
            self._stopping = heed(self.model, stopped, None if self.replica.device.type == "cpu" else self.how.looks)
        self._stopping.stopped = stopped

    # Gradients

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> Any:
        """(dim,) the loss, what changed in the statistics, and the gradient; or the coordinates `where` of it.

        On an accelerator it is a tensor there, and messages are added up and quantised there.
        """
        self._load(params)
        if where.indices(self.dim) == (0, self.dim, 1):
            return self.accumulate(params, part, where, step, 1.0, None)
        if part not in self._staged:
            self._staged[part] = self._stages(part, step)
        return self._staged[part].take(where)

    def accumulate(self, params: NDArray[Any], part: int, where: slice, step: int, coef: float, total: Any) -> Any:
        """Add coef times the partial gradient to total, in the backward pass itself: there is no other vector of this size."""
        if where.indices(self.dim) != (0, self.dim, 1):
            if total is not None and self._may_be_anything(total):
                total.fill(0)
            return _added(total, coef * self.grad(params, part, where, step))
        pieces = self.pieces(part, step)
        found = (self.outcome(part, step, piece) for piece in pieces)
        return self._accumulated(params, found, coef, total, alone=len(pieces) == 1)

    def overwrite(self, total: Any) -> bool:
        """On the CPU, where parameters have no gaps between them, the backward pass writes first, and adds then."""
        able = self.replica.opened and not self.replica.apart and self.layout.align == 1
        self._over = total if able else None
        return able

    def _may_be_anything(self, total: Any) -> bool:
        """Whether what stands in a sum does not count; from now on it does."""
        over, self._over = self._over, None
        return over is not None and total is over

    @property
    def joins(self) -> bool:
        return self.how.joins

    def accumulate_all(
        self, params: NDArray[Any], parts: tuple[int, ...], where: slice, step: int, coef: float, total: Any
    ) -> Any:
        """The same for several partitions, in one forward and one backward pass over all their samples."""
        if where.indices(self.dim) != (0, self.dim, 1):
            for part in parts:
                total = self.accumulate(params, part, where, step, coef, total)
            return total
        return self._accumulated(params, self._joined(parts, step), coef, total, alone=True)

    def _accumulated(self, params: NDArray[Any], found: Iterable[Outcome | None], coef: float, total: Any, alone: bool) -> Any:
        """Add the gradients of losses, as they are computed, to a sum. alone: there is one, as far as is known."""
        self._load(params)
        if isinstance(total, np.ndarray) and self.replica.device.type != "cpu":
            return _added(total, self._accumulated(params, found, coef, None, alone).cpu().numpy())
        fresh = total is None
        total = self.replica.zeros() if fresh else total
        flat, over = torch.from_numpy(total) if isinstance(total, np.ndarray) else total, self._may_be_anything(total)
        views = self.replica.collect(flat, fresh, over, alone)
        flat[: self.layout.head if over else 0] = 0
        self._passes.begin()
        with torch.enable_grad():
            for one in found:
                assert one is not None
                flat[: self.layout.head] += coef * self.replica.head(one)
                if one.loss.requires_grad:  # not where nothing counts, as where all targets are ignored
                    (coef * one.loss).backward()  # type: ignore[no-untyped-call]
        self.replica.collected(views)
        self._reading.ask_ahead()
        self._passes.look_at_losses()
        return total

    def _stages(self, part: int, step: int) -> Staged:
        """The gradient of a partition, block by block."""
        with torch.enable_grad():
            found = self.outcome(part, step)
        replica = self.replica
        head = torch.zeros_like(replica.flat[: self.layout.head]) if found is None else replica.head(found)
        loss = None if found is None else found.loss
        return Staged(loss, head, list(replica.params.values()), self.layout, lambda: self._stages(part, step))

    # Losses

    def pieces(self, part: int, step: int) -> list[slice]:
        """The forward passes of a partition in a step: one, or as many as micro-batches take; none where it has no samples."""
        count = len(self.batches.rows(step, part))
        size = self.how.micro or max(count, 1)
        return [slice(begin, begin + size) for begin in range(0, count, size)]

    def loss(self, part: int, step: int, piece: slice = slice(None)) -> Tensor | None:
        """The loss summed over a partition's samples of a step, or a piece of them; None where it has none in this step."""
        found = self.outcome(part, step, piece)
        return None if found is None else found.loss

    def outcome(self, part: int, step: int, piece: slice = slice(None)) -> Outcome | None:
        """The loss and what else is added up, over a partition's samples of a step; None where it has none in this step."""
        self._open()
        places = self.batches.rows(step, part)[piece]
        if not len(places):
            return None
        with self._seeded(self.how.seed_of(step, part, piece.start or 0)):
            return self._outcome(part, self._reading.read(part, step, piece), step, len(places))

    def _seeded(self, seed: tuple[int, ...]) -> contextlib.AbstractContextManager[None]:
        """Random numbers from a seed; where nothing draws any, as it was found before the start, that would be time lost."""
        still = self.how.joins and isinstance(self.data, Columns)
        return contextlib.nullcontext() if still else seeded(seed, self.replica.device)

    def _outcome(self, part: int, batch: Any, step: int, samples: int) -> Outcome:
        found = self._passes.forward(part, batch, step, self.context)
        times = self.batches.scale(part) * (samples if self.how.mean and not self.how.ratio else 1)
        return replace(found, loss=found.loss * times)

    def _joined(self, parts: tuple[int, ...], step: int) -> Iterator[Outcome]:
        """The loss of the samples of several partitions: in one pass, or in several where batches cannot be put together."""
        some, batches, sizes = self.read_all(parts, step)
        whole = put_together(batches, sizes) if len({self.batches.scale(part) for part in some}) == 1 else None
        if whole is not None:
            yield self._outcome(some[0], whole, step, sum(sizes))
            return
        for part, batch, size in zip(some, batches, sizes, strict=True):
            yield self._outcome(part, batch, step, size)

    def read_all(self, parts: tuple[int, ...], step: int, piece: slice = slice(None)) -> tuple[list[int], list[Any], list[int]]:
        """Those of some partitions that have samples in a step, their batches, and how many samples these have."""
        self._open()
        places = {part: self.batches.rows(step, part)[piece] for part in parts}
        some, batches = [part for part in parts if len(places[part])], []
        for part in some:
            with self._seeded(self.how.seed_of(step, part)):
                batches.append(self._reading.read(part, step, piece))
        return some, batches, [len(places[part]) for part in some]

    # What is asked before the start

    def evaluate(self, part: int, batch: Any, seed: int) -> Outcome:
        """What the forward pass says of a batch."""
        self._open()
        with torch.no_grad(), seeded((seed,), self.replica.device):
            return self._passes.forward(part, moved(batch, self.replica.device), 0, self.context)

    def reader(self, part: int, places: NDArray[np.int64]) -> Reader:
        """Samples that are read once."""
        self._open()
        return self._reading.reader(part, places)

    def moved_buffers(self, part: int, piece: slice) -> list[Kept]:
        """Buffers that a forward pass changes, but for those that travel and for the counters of batch normalisation."""
        with torch.no_grad():
            self.loss(part, 0, piece)
        return self.replica.lost(touched=False)

    def moves(self, part: int, piece: slice) -> dict[str, Tensor]:
        """By how much a forward pass of some samples moves the buffers that travel."""
        with torch.no_grad():
            self.loss(part, 0, piece)
        return self.replica.moves()

    def which(self, step: int, part: int) -> NDArray[np.int64]:
        """Which samples of the dataset a partition has in a step; on a worker that has few, which of those."""
        return numbers(self.data.rows, part, self.batches.rows(step, part))

    def where(self, part: int, step: int) -> str:
        """For messages."""
        return where(self.worker, part, step)

    # On the worker

    def _open(self) -> None:
        """Get ready to compute: done on the worker, when it first does."""
        if self.replica.opened:
            return
        self.replica.open()
        if self._defaults is not None:
            torch.set_default_dtype(self._defaults[0])
            torch.set_float32_matmul_precision(self._defaults[1])
        self._passes = Passes(self.replica, self.how, self.worker)
        self._reading = Reading(self.data, self.batches, self.worker, self.replica.device, self.how)
        self._staged: dict[int, Staged] = {}

    def _load(self, params: NDArray[Any]) -> None:
        self._open()
        if self.replica.load(params):
            self._staged = {}

    def __getstate__(self) -> dict[str, Any]:
        names = ("replica", "data", "layout", "batches", "how", "worker")
        defaults = torch.get_default_dtype(), torch.get_float32_matmul_precision()
        own: dict[str, Any] = {"context": {}, "_over": None, "_berths": None, "_stopping": None, "_defaults": defaults}
        return {**{name: getattr(self, name) for name in names}, **own}


def _added(total: Any, values: NDArray[Any]) -> NDArray[Any]:
    return values if total is None else np.add(total, values, out=total)
