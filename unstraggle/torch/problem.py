"""TorchProblem: model, loss and a share of the dataset, as a worker has them."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import Invalid, UnstraggleError
from ..scheme.code import Code
from .ahead import Ahead
from .batches import Dealt, Draws, Placed
from .buffers import COUNTER, Kept, kept_buffers
from .context import unpack
from .data import Columns, Items, Reader, moved, numbers, put_together
from .layout import Layout
from .outcome import Outcome, outcome_of
from .samplers import Sampled
from .seeds import seeded
from .stages import Staged
from .stopping import heed
from .watch import put

Forward = Callable[..., Any]
REMEMBERED = 16
"""Places in memory whose views are kept."""


def split_batch(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    """What a batch is unless said otherwise: inputs of the model, and last the targets of the loss."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise Invalid(
            f"A batch is (inputs, ..., targets), but got {type(batch).__name__}. "
            "Give forward=, a function (model, batch) -> (outputs, targets)."
        )
    return model(*batch[:-1]), batch[-1]


@dataclass(frozen=True)
class How:
    """How a partition's loss is computed. mean: whether loss_fn averages over the samples (else it adds them up).

    ratio: it gives (sum, denominator). split: it is one of torch's, and is taken apart into these.
    micro: samples of a forward pass at most, where a partition should be computed in pieces that are added up.
    told: whether forward takes what goes with a step, as a third argument. strict: refuse what was not seen before the start.
    still: refuse a forward pass that moves a buffer which does not travel. home: the device of the master's model. joins:
    partitions of a message are computed in one pass. ahead: samples of the next step are read while this one is computed.
    """

    seed: int
    mean: bool = True
    forward: Forward = split_batch
    devices: tuple[str, ...] = ("cpu",)
    autocast: torch.dtype | None = None
    told: bool = False
    strict: bool = False
    still: bool = False
    ratio: bool = False
    split: bool = False
    micro: int | None = None
    home: str = "cpu"
    joins: bool = False
    ahead: bool = False


class TorchProblem:
    """The gradient of the loss, summed over the samples of a partition in a step's batch.

    Batches, dropout and augmentation are seeded by (seed, step, partition): torch, numpy and random, while samples are read
    and in the forward pass. Buffers of the model are as the master has them before every forward pass: what a partition's
    gradient is does not depend on what a worker did before.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], Any] | None,
        data: Columns | Items,
        layout: Layout,
        batches: Dealt | Placed | Draws | Sampled,
        how: How,
        worker: int | None = None,
    ) -> None:
        self.model, self.loss_fn, self.data = model, loss_fn, data
        self.layout, self.batches, self.how, self.worker = layout, batches, how, worker
        self.context: dict[str, Any] = {}
        self._ready = self._stays = False
        self._side: Any = None
        self._fresh = 0

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
        self._stays = True

    def way(self, code: Code, kind: str) -> Any:
        """How parameters and gradients travel between this problem's devices and a master on the same host; see `ways`."""
        from .ways import way_of

        return way_of(self.how.devices, self.how.home, code, self.dim, self.dtype, kind)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work on the device that does not wait for what another thread has asked of it, and is done at the end."""
        if self._device.type != "cuda":
            yield
            return
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._side):
            yield
        self._side.synchronize()

    def hear(self, context: bytes) -> None:
        """Take what the master has changed in the model, and the values for `forward`."""
        found = unpack(context)
        self.context = found.get("values", {})
        if "rows" in found:
            assert isinstance(self.batches, Sampled)
            self.batches.tell(found["rows"].numpy(), found["next"].numpy() if "next" in found else None)
        if "tensors" not in found and "attributes" not in found:
            return
        self._open()
        put(self._roots, found)
        for kept in self._constant:
            if f"model.{kept.name}" in found.get("tensors", {}):
                kept.keep()

    def heed(self, stopped: Callable[[], bool]) -> None:
        """Leave a task when its round is over, between micro-batches and between layers."""
        self._open()
        heed(self.model, stopped)

    @property
    def _roots(self) -> dict[str, nn.Module]:
        return roots(self.model, self.loss_fn)

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
            return _added(total, coef * self.grad(params, part, where, step))
        return self._accumulated(params, (self.outcome(part, step, piece) for piece in self.pieces(part, step)), coef, total)

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
        return self._accumulated(params, self._joined(parts, step), coef, total)

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
            with self._seeded((self.how.seed, step, part)):
                batches.append(self._read(part, step, piece))
        return some, batches, [len(places[part]) for part in some]

    def _accumulated(self, params: NDArray[Any], found: Iterable[Outcome | None], coef: float, total: Any) -> Any:
        """Add the gradients of losses, as they are computed, to a sum."""
        self._load(params)
        if isinstance(total, np.ndarray) and self._device.type != "cpu":
            return _added(total, self._accumulated(params, found, coef, None).cpu().numpy())
        fresh = total is None
        total = self._zeros() if fresh else total
        flat = torch.from_numpy(total) if isinstance(total, np.ndarray) else total
        self._fresh = flat.data_ptr() if fresh else self._fresh
        views = self._views(flat)
        if not self._apart:
            for p, grad in zip(self._params.values(), views, strict=True):
                p.grad = grad
        with torch.enable_grad():
            for one in found:
                assert one is not None
                flat[: self.layout.head] += coef * self._head(one)
                if one.loss.requires_grad:  # not where nothing counts, as where all targets are ignored
                    (coef * one.loss).backward()  # type: ignore[no-untyped-call]
        if self._apart:
            self._add_grads(views)
        self._drop_grads()
        self._look_at_losses()
        return total

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
        number = (piece.start or 0) // self.how.micro if self.how.micro else 0
        with self._seeded((self.how.seed, step, part, number) if number else (self.how.seed, step, part)):
            return self._outcome(part, self._read(part, step, piece), step, len(places))

    def _seeded(self, seed: tuple[int, ...]) -> contextlib.AbstractContextManager[None]:
        """Random numbers from a seed; where nothing draws any, as it was found before the start, that would be time lost."""
        still = self.how.joins and isinstance(self.data, Columns)
        return contextlib.nullcontext() if still else seeded(seed, self._device)

    def _outcome(self, part: int, batch: Any, step: int, samples: int) -> Outcome:
        found = self._forward(part, batch, step)
        times = self.batches.scale(part) * (samples if self.how.mean and not self.how.ratio else 1)
        return replace(found, loss=self._checked(found.loss, part, step) * times)

    def evaluate(self, part: int, batch: Any, seed: int) -> Outcome:
        """What the forward pass says of a batch, before the start."""
        self._open()
        with torch.no_grad(), seeded((seed,), self._device):
            found = self._forward(part, moved(batch, self._device), 0)
        return replace(found, loss=self._checked(found.loss, part, 0))

    def which(self, step: int, part: int) -> NDArray[np.int64]:
        """Which samples of the dataset a partition has in a step; on a worker that has few, which of those."""
        return numbers(self.data.rows, part, self.batches.rows(step, part))

    def moved_buffers(self, part: int, piece: slice) -> list[Kept]:
        """Buffers that a forward pass changes, but for those that travel and for the counters of batch normalisation."""
        with torch.no_grad():
            self.loss(part, 0, piece)
        return [kept for kept in self._constant if kept.key != COUNTER and kept.differs()]

    def moves(self, part: int, piece: slice) -> dict[str, Tensor]:
        """By how much a forward pass of some samples moves the buffers that travel."""
        with torch.no_grad():
            self.loss(part, 0, piece)
        return {
            name: kept.now - self._flat[self.layout.places[name]].view_as(kept.now) for name, kept in self._statistics.items()
        }

    def where(self, part: int, step: int) -> str:
        """For messages."""
        return f"Step {step}, partition {part}, {'before the start' if self.worker is None else f'worker {self.worker}'}"

    # The model of this worker

    def _open(self) -> None:
        """Put the model's parameters into one flat tensor on the device. Done on the worker, when it first computes.

        On the CPU they become views of it. Kernels of accelerators want tensors aligned, so there they keep their own memory.
        """
        if self._ready:
            return
        missing = self.worker is None and not torch.cuda.is_available()  # a master may do without the workers' accelerators
        self._device = torch.device("cpu" if missing else self.how.devices[0])
        self.model.to(self._device)
        if isinstance(self.loss_fn, nn.Module):
            self.loss_fn.to(self._device)
        everything = self.layout.tensors(self.model)
        buffers = kept_buffers(self.model)
        self._statistics: dict[str, Kept] = {one.name: one for one in buffers if one.name in self.layout.statistics}
        self._constant: list[Kept] = [one for one in buffers if one.name not in self._statistics]
        self._params: dict[str, Tensor] = {name: everything[name] for name in self.layout.names}
        self._flat = torch.zeros(self.dim, dtype=next(iter(self._params.values())).dtype, device=self._device)
        for name, tensor in self.layout.tensors(self.model).items():
            self._flat[self.layout.places[name]] = tensor.detach().reshape(-1)
        for name, p in self._params.items():
            p.grad = None
            if self._device.type == "cpu":
                p.data = self._flat[self.layout.places[name]].view(p.shape)
        self._loaded: Any = None
        self._places: dict[int, list[Tensor]] = {}
        self._apart = self._device.type != "cpu"
        self._ahead = Ahead(self.data.read, self._device.type == "cuda") if self._reads_ahead() else None
        self._unseen: list[tuple[int, int, Tensor]] = []
        self._staged: dict[int, Staged] = {}
        self._ready = True

    def _load(self, params: NDArray[Any]) -> None:
        """Take the parameters of an order, once: each order comes with an array of its own."""
        self._open()
        if params is self._loaded:
            return
        self._loaded, self._staged = params, {}
        if isinstance(params, Tensor):
            self._view(params)
        elif self._stays and self._device.type == "cpu" and params.dtype == self.dtype and params.flags.c_contiguous:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # not to be written, and nobody does
                self._view(torch.from_numpy(params))
        elif self._device.type == "cpu":
            np.copyto(self._flat.numpy(), params)
        else:
            self._flat.copy_(torch.from_numpy(params.copy()))
            for name, p in self._params.items():
                p.data.copy_(self._flat[self.layout.places[name]].view(p.shape))

    def _view(self, flat: Tensor) -> None:
        """Let the model's parameters be views of these."""
        self._flat = flat
        for p, view in zip(self._params.values(), self._views(flat), strict=True):
            p.data = view

    def _views(self, flat: Tensor) -> list[Tensor]:
        """A flat vector as the parameters' shapes. Those of memory that is used again and again are made once."""
        at = flat.data_ptr()
        if not self._stays or at == self._fresh:
            return self._cut(flat)
        if at not in self._places:
            if len(self._places) >= REMEMBERED:
                self._places.clear()
            self._places[at] = self._cut(flat)
        return self._places[at]

    def _cut(self, flat: Tensor) -> list[Tensor]:
        """A flat vector in the shapes of the parameters."""
        statistics = [kept.tensor for kept in self._statistics.values()]
        return self.layout.cut(flat, [*statistics, *self._params.values()])[len(statistics) :]

    def _reset(self) -> None:
        """Buffers as the master has them, so that a forward pass does not depend on those before it."""
        for name, kept in self._statistics.items():
            kept.value = self._flat[self.layout.places[name]].view(kept.tensor.shape)
            kept.version = -1
            kept.reset()
        for kept in self._constant:
            kept.reset()

    def _require_still(self, part: int, step: int) -> None:
        """Refuse a forward pass that moves a buffer which does not travel: it would be lost."""
        moved = [kept for kept in self._constant if kept.key != COUNTER and kept.moved() and kept.differs()]
        if moved:
            raise Invalid(
                f"{self.where(part, step)}: the forward pass moves the buffer {moved[0].name}, and workers forget that. With "
                'check=True such buffers are found and travel with the gradient; statistics="discard" leaves them as they are.'
            )

    def _head(self, found: Outcome) -> Tensor:
        """(head,) the loss, its denominator, metrics, and by how much the forward pass changed the statistics."""
        parts = [found.loss.detach().reshape(1)] if self.layout.loss else []
        if self.layout.ratio:
            assert found.denominator is not None
            parts.append(found.denominator.detach().reshape(1))
        parts += [torch.as_tensor(found.metrics.get(name, 0.0)).detach().reshape(1) for name in self.layout.metrics]
        for name, kept in self._statistics.items():
            parts.append(kept.now.detach().reshape(-1) - self._flat[self.layout.places[name]])
        return torch.cat([part.to(self._flat) for part in parts]) if parts else self._flat[:0]

    def _stages(self, part: int, step: int) -> Staged:
        with torch.enable_grad():
            found = self.outcome(part, step)
        head = torch.zeros_like(self._flat[: self.layout.head]) if found is None else self._head(found)
        return Staged(
            None if found is None else found.loss,
            head,
            list(self._params.values()),
            self.layout,
            lambda: self._stages(part, step),
        )

    def _zeros(self) -> Any:
        if self._device.type == "cpu":
            return np.zeros(self.dim, self.dtype)
        return torch.zeros_like(self._flat)

    def _add_grads(self, views: list[Tensor]) -> None:
        """Add what the backward pass has found, all at once: on accelerators an addition for each parameter takes longer."""
        pairs = [(view, p.grad) for view, p in zip(views, self._params.values(), strict=True) if p.grad is not None]
        if pairs:
            torch._foreach_add_([view for view, _ in pairs], [grad for _, grad in pairs])

    def _drop_grads(self) -> None:
        for p in self._params.values():
            p.grad = None

    def _read(self, part: int, step: int, piece: slice = slice(None)) -> Any:
        places = self.batches.rows(step, part)[piece]
        with self._reading(part, step):
            if self._ahead is None:
                return moved(self.data.read(part, places), self._device)
            begin = piece.start or 0
            batch = moved(self._ahead.take((step, part, begin), places), self._device)
            after = self._following(part, step)[piece]
            if len(after):
                self._ahead.ask((step + 1, part, begin), after)
            return batch

    def _following(self, part: int, step: int) -> NDArray[np.int64]:
        """The samples of a partition in the step after this one, as far as they are known; none where that is not."""
        return self.batches.following(part) if isinstance(self.batches, Sampled) else self.batches.rows(step + 1, part)

    def _reads_ahead(self) -> bool:
        """On a worker, where reading draws no random numbers and takes time: from tensors it does for a device only."""
        worth = isinstance(self.data, Items) or self._device.type == "cuda"
        return self.how.ahead and worth and self.worker is not None and not isinstance(self.batches, Draws)

    def reader(self, part: int, places: NDArray[np.int64]) -> Reader:
        """Samples that are read once, before the start."""
        with self._reading(part, 0):
            return self.data.reader(part, places)

    @contextlib.contextmanager
    def _reading(self, part: int, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise Invalid(
                f"{self.where(part, step)}: the samples cannot be read: {type(error).__name__}: {_one_line(error)}. "
                "Every worker needs the dataset, and its files in the same place."
            ) from error

    def _forward(self, part: int, batch: Any, step: int) -> Outcome:
        self._reset()
        try:
            with torch.autocast(self._device.type, self.how.autocast, enabled=self.how.autocast is not None):
                told = (self.context,) if self.how.told else ()
                found = outcome_of(self.loss_fn, self.how.forward(self.model, batch, *told), self.how.split)
            if self.how.still:
                self._require_still(part, step)
            if self.how.strict:
                self._require_declared(found, part, step)
            return found
        except UnstraggleError:
            raise
        except Exception as error:
            raise UnstraggleError(
                f"{self.where(part, step)}: the forward pass or the loss failed: {type(error).__name__}: {_one_line(error)}"
            ) from error

    def _require_declared(self, found: Outcome, part: int, step: int) -> None:
        """Refuse what has no place in the vector that travels."""
        if (found.denominator is not None) != self.how.ratio:
            raise Invalid(
                f"{self.where(part, step)}: the loss is (sum, denominator) in some steps only, or that was not seen before the "
                'start. Always give both, with check=True or reduction="ratio".'
            )
        new = found.metrics.keys() - set(self.layout.metrics)
        if new and self.layout.loss:
            raise Invalid(
                f"{self.where(part, step)}: the metric {sorted(new)[0]} was not seen before the start. Give all metrics "
                "always, with check=True."
            )

    def _checked(self, loss: Any, part: int, step: int) -> Tensor:
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise Invalid(
                f'{self.where(part, step)}: the loss must be one number, but has shape {shape}. Use reduction="mean" or "sum".'
            )
        if self._device.type == "cuda" and torch.is_grad_enabled():
            self._unseen.append((part, step, loss.detach().reshape(())))  # looking now would keep the device waiting
        else:
            self._require_finite(part, step, loss)
        return loss.reshape(()).to(self._flat.dtype)

    def _look_at_losses(self) -> None:
        """Wait until the device is done with a task, and look at its losses."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        unseen, self._unseen = self._unseen, []
        if unseen and not bool(torch.stack([loss for _, _, loss in unseen]).isfinite().all()):
            for one in unseen:
                self._require_finite(*one)

    def _require_finite(self, part: int, step: int, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            raise Invalid(
                f"{self.where(part, step)}: the loss is {float(loss.detach())}. Lower the learning rate, clip gradients, "
                "or look at the samples of this partition."
            )

    def __getstate__(self) -> dict[str, Any]:
        names = ("loss_fn", "data", "layout", "batches", "how", "worker")
        fresh = {"model": own_copy(self.model), "context": {}, "_ready": False, "_stays": False, "_side": None, "_fresh": 0}
        return {**{name: getattr(self, name) for name in names}, **fresh}


def roots(model: nn.Module, loss_fn: Any) -> dict[str, nn.Module]:
    """The modules that workers have, by name."""
    return {"model": model, "loss": loss_fn} if isinstance(loss_fn, nn.Module) else {"model": model}


def own_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU whose parameters have memory of their own; a view would be pickled with all that it is a view of."""
    copied = copy.deepcopy(model).cpu()
    for p in copied.parameters():
        p.data, p.grad = p.data.clone(), None
    return copied


def _added(total: Any, values: NDArray[Any]) -> NDArray[Any]:
    return values if total is None else np.add(total, values, out=total)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
