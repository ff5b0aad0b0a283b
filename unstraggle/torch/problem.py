"""TorchProblem: model, loss and a share of the dataset, as a worker has them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import Invalid, UnstraggleError
from .batches import Dealt, Draws, Placed
from .buffers import COUNTER, Kept, kept_buffers
from .context import unpack
from .data import Columns, Items, Reader, moved, numbers
from .layout import Layout
from .outcome import Outcome, outcome_of
from .samplers import Sampled
from .seeds import seeded
from .stages import Staged
from .watch import put

Forward = Callable[..., Any]


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
    still: refuse a forward pass that moves a buffer which does not travel.
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
        self._ready = False

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

    def hear(self, context: bytes) -> None:
        """Take what the master has changed in the model, and the values for `forward`."""
        found = unpack(context)
        self.context = found.get("values", {})
        if "rows" in found:
            assert isinstance(self.batches, Sampled)
            self.batches.tell(found["rows"].numpy())
        if "tensors" not in found and "attributes" not in found:
            return
        self._open()
        put(self._roots, found)
        for kept in self._constant:
            if f"model.{kept.name}" in found.get("tensors", {}):
                kept.keep()

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
        self._load(params)
        total = self._zeros() if total is None else total
        flat = torch.from_numpy(total) if isinstance(total, np.ndarray) else total
        for name, p in self._params.items():
            p.grad = flat[self.layout.places[name]].view(p.shape)
        with torch.enable_grad():
            for piece in self.pieces(part, step):
                found = self.outcome(part, step, piece)
                assert found is not None
                flat[: self.layout.head] += coef * self._head(found)
                if found.loss.requires_grad:  # not where nothing counts, as where all targets are ignored
                    (coef * found.loss).backward()  # type: ignore[no-untyped-call]
        self._drop_grads()
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
        with seeded((self.how.seed, step, part, number) if number else (self.how.seed, step, part), self._device):
            batch = self._read(part, places, step)
            found = self._forward(part, batch, step)
        times = self.batches.scale(part) * (len(places) if self.how.mean and not self.how.ratio else 1)
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
        self._staged: dict[int, Staged] = {}
        self._ready = True

    def _load(self, params: NDArray[Any]) -> None:
        """Take the parameters of an order, once: each order comes with an array of its own."""
        self._open()
        if params is self._loaded:
            return
        self._loaded, self._staged = params, {}
        if self._device.type == "cpu":
            np.copyto(self._flat.numpy(), params)
        else:
            self._flat.copy_(torch.from_numpy(params.copy()))
            for name, p in self._params.items():
                p.data.copy_(self._flat[self.layout.places[name]].view(p.shape))

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

    def _drop_grads(self) -> None:
        for p in self._params.values():
            p.grad = None

    def _read(self, part: int, places: NDArray[np.int64], step: int) -> Any:
        with self._reading(part, step):
            return moved(self.data.read(part, places), self._device)

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
        if not bool(torch.isfinite(loss)):
            raise Invalid(
                f"{self.where(part, step)}: the loss is {float(loss.detach())}. Lower the learning rate, clip gradients, "
                "or look at the samples of this partition."
            )
        return loss.reshape(()).to(self._flat.dtype)

    def __getstate__(self) -> dict[str, Any]:
        names = ("loss_fn", "data", "layout", "batches", "how", "worker")
        return {**{name: getattr(self, name) for name in names}, "model": own_copy(self.model), "context": {}, "_ready": False}


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
