"""Replica: a worker's copy of the model, with its parameters in one flat tensor and its buffers as the master has them."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import Invalid
from .buffers import COUNTER, Kept, kept_buffers
from .layout import Layout
from .leaving import Following, Leave, Leaving
from .outcome import Outcome
from .staging import Staging
from .watch import put

Loss = Callable[[Any, Any], Any]
REMEMBERED = 16
"""Places in memory whose views are kept."""
LARGE = 1 << 15
"""Numbers of a parameter from which on its first gradient is written over what there is: a call for each costs more below."""


class Replica:
    """The model and the loss of a worker. It is opened when it is first used, on the worker; before, nothing is moved.

    master: it belongs to the master, which may do without the workers' accelerators. stays: parameters of an order may be used
    where they stand. leave: how the beginning of a message leaves the device before the end, and how many times; see `Leaving`.
    follow: who hears how much of a message is known before the end, where it is added up in its place, and how many times; see
    `Following`.
    staged: parameters of the host go to the device through pinned memory.
    """

    def __init__(self, model: nn.Module, loss_fn: Loss | None, layout: Layout, device: str, master: bool) -> None:
        self.model, self.loss_fn, self.layout = model, loss_fn, layout
        self._wanted, self._master = device, master
        self.stays = self.opened = self.staged = False
        self.leave: tuple[Leave, int] | None = None
        self.follow: tuple[Leave, int] | None = None
        self._side: Any = None
        self._staging: Staging | None = None
        self._landing: Tensor | None = None
        self._fresh, self._clean = 0, False
        self._unwritten: dict[Tensor, Tensor] = {}

    # Opening

    def open(self) -> None:
        """Put the model's parameters into one flat tensor on the device.

        On the CPU they become views of it. Kernels of accelerators want tensors aligned: there they keep their own memory until
        the first order, and after it where the layout does not align them.
        """
        self.device = self.found()
        self.model.to(self.device)
        if isinstance(self.loss_fn, nn.Module):
            self.loss_fn.to(self.device)
        buffers = kept_buffers(self.model)
        self.statistics: dict[str, Kept] = {one.name: one for one in buffers if one.name in self.layout.statistics}
        self.constant: list[Kept] = [one for one in buffers if one.name not in self.statistics]
        self._flatten()
        self._loaded: Any = None
        self._places: dict[int, list[Tensor]] = {}
        self._viewed = self._before = 0
        self.apart = self.device.type != "cpu"
        self._large = set() if self.apart else {p for p in self.params.values() if p.numel() >= LARGE}
        for p in self._large:
            p.register_post_accumulate_grad_hook(self._write)  # type: ignore[no-untyped-call]
        self._leaving = self._left()  # after that: what is written is known
        self.opened = True

    def _left(self) -> Leaving | Following | None:
        params, ends = list(self.params.values()), [self.layout.places[name].stop for name in self.params]
        if self.leave is not None:
            return Leaving(params, ends, *self.leave)
        return None if self.follow is None else Following(params, ends, *self.follow)

    def found(self) -> torch.device:
        """The device, which must be there."""
        missing = not torch.cuda.is_available()
        if missing and not self._master and self._wanted.startswith("cuda"):
            raise Invalid(
                f"A worker is to compute on {self._wanted}, but sees no GPU. On Ray, ask for one for each worker: "
                'engine_options={"options": {"num_gpus": 1}}, on machines that have them; else device="cpu".'
            )
        return torch.device("cpu" if missing and self._master else self._wanted)

    def _flatten(self) -> None:
        everything = self.layout.tensors(self.model)
        self.params: dict[str, Tensor] = {name: everything[name] for name in self.layout.names}
        kind = next(iter(self.params.values())).dtype
        self.flat = torch.zeros(self.layout.dim, dtype=kind, device=self.device)
        for name, tensor in everything.items():
            self.flat[self.layout.places[name]] = self.layout.flattened(name, tensor)
        for name, p in self.params.items():
            p.grad = None
            if self.device.type == "cpu":
                p.data = self.layout.view(self.flat, name, p.shape)

    # Parameters

    def load(self, params: NDArray[Any]) -> bool:
        """Take the parameters of an order, once: each order comes with an array of its own. Whether they are new."""
        if params is self._loaded:
            return False
        self._loaded = params
        if isinstance(params, Tensor):
            self._view(params)
        elif self.staged or self.device.type != "cpu":
            self._copy(_tensor(params))
        elif self.stays and params.dtype == self.layout.dtype and params.flags.c_contiguous:
            self._view(_tensor(params))
        else:
            np.copyto(self.flat.numpy(), params)
        return True

    def _copy(self, params: Tensor) -> None:
        """To the device; parameters are views of what stands there, where they may begin at its places."""
        if self._landing is None:  # memory of an order is not written
            self._landing = torch.empty_like(self.flat) if self._viewed else self.flat
            self._staging = Staging(self.device, self.flat.dtype) if self.staged else None
        flat = self._landing
        flat.copy_(params) if self._staging is None else self._staging.up(params, flat)
        if self.device.type == "cpu" or self.layout.align > 1:
            self._view(flat)
        else:
            torch._foreach_copy_([p.data for p in self.params.values()], self._views(flat))

    def _view(self, flat: Tensor) -> None:
        """Let the model's parameters be views of these."""
        self.flat = flat
        if flat.data_ptr() != self._viewed:
            self._before, self._viewed = self._viewed, flat.data_ptr()
            self._see(self._views(flat))

    def _see(self, views: list[Tensor]) -> None:
        for p, view in zip(self.params.values(), views, strict=True):
            p.data = view

    def foresee(self) -> None:
        """Parameters stand on two sides in turn: let the model's own be views of the other side, while nobody waits."""
        if self._before in self._places:
            self._before, self._viewed = self._viewed, self._before
            self._see(self._places[self._viewed])

    def _views(self, flat: Tensor) -> list[Tensor]:
        """A flat vector as the parameters' shapes. Those of memory that is used again and again are made once."""
        at = flat.data_ptr()
        if not self.stays or at == self._fresh:
            return self._cut(flat)
        if at not in self._places:
            if len(self._places) >= REMEMBERED:
                self._places.clear()
            self._places[at] = self._cut(flat)
        return self._places[at]

    def _cut(self, flat: Tensor) -> list[Tensor]:
        """A flat vector in the shapes of the parameters."""
        statistics = [kept.tensor for kept in self.statistics.values()]
        return self.layout.cut(flat, [*statistics, *self.params.values()])[len(statistics) :]

    # Buffers, and what else the master changes

    def reset(self) -> None:
        """Buffers as the master has them, so that a forward pass does not depend on those before it."""
        for name, kept in self.statistics.items():
            kept.value = self.flat[self.layout.places[name]].view(kept.tensor.shape)
            kept.version = -1
            kept.reset()
        for kept in self.constant:
            kept.reset()

    def lost(self, touched: bool) -> list[Kept]:
        """Buffers that a forward pass has changed and that do not travel, but for counters of batch normalisation. touched:
        look at those only whose version has changed."""
        return [kept for kept in self.constant if kept.key != COUNTER and (not touched or kept.moved()) and kept.differs()]

    def moves(self) -> dict[str, Tensor]:
        """By how much the forward pass has moved the buffers that travel."""
        return {
            name: kept.now - self.flat[self.layout.places[name]].view_as(kept.now) for name, kept in self.statistics.items()
        }

    def take(self, found: dict[str, Any]) -> None:
        """Tensors and attributes as the master has set them."""
        put(roots(self.model, self.loss_fn), found)
        for kept in self.constant:
            if f"model.{kept.name}" in found.get("tensors", {}):
                kept.keep()

    # Gradients

    def head(self, found: Outcome) -> Tensor:
        """(head,) the loss, its denominator, metrics, and by how much the forward pass changed the statistics."""
        parts = [found.loss.detach().reshape(1)] if self.layout.loss else []
        if self.layout.ratio:
            assert found.denominator is not None
            parts.append(found.denominator.detach().reshape(1))
        parts += [torch.as_tensor(found.metrics.get(name, 0.0)).detach().reshape(1) for name in self.layout.metrics]
        for name, kept in self.statistics.items():
            parts.append(kept.now.detach().reshape(-1) - self.flat[self.layout.places[name]])
        return torch.cat([part.to(self.flat) for part in parts]) if parts else self.flat[:0]

    def zeros(self) -> Any:
        """(dim,) to add up in, where messages are: on the CPU an array."""
        if self.device.type == "cpu":
            return np.zeros(self.layout.dim, self.layout.dtype)
        return torch.zeros_like(self.flat)

    def collect(self, flat: Tensor, fresh: bool, over: bool = False, alone: bool = False) -> list[Tensor]:
        """Let backward passes add to a vector: views of it, which are the parameters' gradients unless these stay apart. fresh:
        it was made for this message. over: what stands there does not count. alone: there is one pass only."""
        self._fresh = flat.data_ptr() if fresh else self._fresh
        views = self._views(flat)
        if not self.apart:
            for p, grad in zip(self.params.values(), views, strict=True):
                p.grad = grad
        elif not self._clean:  # a pass was left, and may have left gradients
            self._let_go()
        self._unwritten, self._clean = {}, False
        if over:
            self._write_over(views)
        if self._leaving is not None:
            self._leaving.begin(flat if alone and self.apart is self._leaving.apart else None, views)
        return views

    def _write_over(self, views: list[Tensor]) -> None:
        """Let the first gradients of large parameters be copied to their views, in place of zeros and a sum."""
        places = dict(zip(self.params.values(), views, strict=True))
        self._unwritten = {p: view for p, view in places.items() if p in self._large}
        for p in self._unwritten:
            p.grad = None
        small = [view for p, view in places.items() if p not in self._large]
        if small:
            torch._foreach_zero_(small)

    def _write(self, p: Tensor) -> None:
        """The gradient of a parameter has come: the first one is copied, and those that follow are added."""
        view = self._unwritten.pop(p, None)
        if view is not None and p.grad is not None:
            p.grad = view.copy_(p.grad.to_dense())

    def collected(self, views: list[Tensor]) -> None:
        """Add what stayed apart, all at once: on accelerators an addition for each parameter takes longer. Let go of it."""
        for view in self._unwritten.values():  # of parameters that no loss has reached
            view.zero_()
        self._unwritten = {}
        found = {place: p.grad for place, p in enumerate(self.params.values()) if p.grad is not None} if self.apart else {}
        if self._leaving is not None:
            self._leaving.end(list(found))
        if found:
            torch._foreach_add_([views[place] for place in found], list(found.values()))
        self._let_go()

    def _let_go(self) -> None:
        """Of all gradients."""
        for p in self.params.values():
            p.grad = None
        self._clean = True

    # The device

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work on the device that does not wait for what another thread has asked of it, and is done at the end."""
        if self.device.type != "cuda":
            yield
            return
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._side):
            yield
        self._side.synchronize()

    def wait(self) -> None:
        """Until the device has done what was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def __reduce__(self) -> Any:
        """Without what was opened."""
        return Replica, (own_copy(self.model), self.loss_fn, self.layout, self._wanted, self._master)


def _tensor(params: NDArray[Any]) -> Tensor:
    """Numbers that are not to be written, and nobody does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(params)


def roots(model: nn.Module, loss_fn: Any) -> dict[str, nn.Module]:
    """The modules that workers have, by name."""
    return {"model": model, "loss": loss_fn} if isinstance(loss_fn, nn.Module) else {"model": model}


def own_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU whose parameters have memory of their own; a view would be pickled with all that it is a view of."""
    copied = copy.deepcopy(model).cpu()
    for p in copied.parameters():
        p.data, p.grad = p.data.clone(), None
    return copied
