"""Layout: where the parameters of a model stand in the flat vector that travels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._utils import _unflatten_dense_tensors

from ..errors import Invalid
from ..scheme.code import Code

ALIGNED = 64
"""Coordinates, 256 bytes of float32: what kernels like best."""
TYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}


@dataclass(frozen=True)
class Layout:
    """The head, then the trainable parameters, each once, in the order in which the backward pass completes their gradients.

    The head of a gradient holds the loss, if `loss`, its denominator, if `ratio`, sums that are asked for by name, and by how
    much the running statistics of batch normalisation changed; the head of the parameters holds zeros and the running
    statistics. So all are decoded with the gradient, by the same code. align: coordinates at multiples of which parameters
    begin, for accelerators, whose kernels want that; what is between stays zero. strides: of parameters that lie in memory in
    another order than that of their dimensions, such as `channels_last`; they travel as they lie.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    statistics: tuple[str, ...]
    statistic_sizes: tuple[int, ...]
    loss: bool
    dtype: np.dtype[Any]
    ratio: bool = False
    metrics: tuple[str, ...] = ()
    align: int = 1
    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @cached_property
    def head(self) -> int:
        """Coordinates before the parameters."""
        return self.sums + sum(self.statistic_sizes)

    @cached_property
    def sums(self) -> int:
        """Coordinates before the statistics: the loss, its denominator, metrics."""
        return int(self.loss) + int(self.ratio) + len(self.metrics)

    @cached_property
    def dim(self) -> int:
        last = max((place.stop for place in self.places.values()), default=self.head)
        return -(-last // self.align) * self.align

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each parameter and each statistic stands."""
        ends = list(accumulate(self.statistic_sizes, initial=self.sums))
        found = {name: slice(a, b) for name, a, b in zip(self.statistics, ends[:-1], ends[1:], strict=True)}
        end = self.head
        for name, size in zip(self.names, self.sizes, strict=True):
            begin = -(-end // self.align) * self.align
            found[name], end = slice(begin, begin + size), begin + size
        return found

    def cut(self, flat: Tensor, alike: Sequence[Tensor]) -> list[Tensor]:
        """A flat vector's pieces for all names, in the order of `places`, each in the shape of another tensor.

        One call of torch cuts them all: hundreds of small ones would take milliseconds.
        """
        templates = [alike[number] if number >= 0 else self._gaps[-number] for number in self._pieces]
        cut = _unflatten_dense_tensors(flat, templates)  # type: ignore[no-untyped-call]
        found = [piece for piece, number in zip(cut, self._pieces, strict=True) if number >= 0]
        for number, stride in self._strided:
            found[number] = found[number].as_strided(alike[number].shape, stride)
        return found

    def view(self, flat: Tensor, name: str, shape: Sequence[int]) -> Tensor:
        """The piece of a flat vector that has a name, in its shape."""
        piece, strides = flat[self.places[name]], dict(self.strides)
        return piece.as_strided(tuple(shape), strides[name]) if name in strides else piece.view(tuple(shape))

    def flattened(self, name: str, tensor: Tensor) -> Tensor:
        """The numbers of a tensor, in the order in which they travel."""
        if name not in dict(self.strides):
            return tensor.detach().reshape(-1)
        found = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        found.as_strided(tensor.shape, dict(self.strides)[name]).copy_(tensor.detach())
        return found

    @cached_property
    def _strided(self) -> list[tuple[int, tuple[int, ...]]]:
        """The pieces that lie in another order than that of their dimensions."""
        numbers = {name: number for number, name in enumerate(self.places)}
        return [(numbers[name], stride) for name, stride in self.strides]

    @cached_property
    def _gaps(self) -> dict[int, Tensor]:
        """Tensors in the sizes of gaps, without memory for them."""
        return {-number: torch.empty(1).expand(-number) for number in self._pieces if number < 0}

    @cached_property
    def _pieces(self) -> list[int]:
        """The numbers of pieces, from first to last, and minus the sizes of gaps between them."""
        found, end = [], 0
        for number, place in enumerate(self.places.values()):
            found += [end - place.start, number] if place.start > end else [number]
            end = place.stop
        return found

    def tensors(self, model: nn.Module) -> dict[str, Tensor]:
        """The model's parameters and statistics by name, in the order of the layout."""
        every = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        return {name: every[name] for name in self.places}


def layout_of(model: nn.Module, *, order: Sequence[str] | None = None, loss: bool = True, statistics: bool = True) -> Layout:
    """The layout of a model's trainable parameters. order: of their names; by default the reverse of the model's own."""
    found = trainable(model)
    if not found:
        raise Invalid("The model has no parameter that requires a gradient. Unfreeze some before it is given to Coded.")
    types = {p.dtype for p in found.values()}
    if len(types) > 1 or not types <= TYPES.keys():
        raise Invalid(
            f"Trainable parameters must all be float32 or all float64, but are {sorted(map(str, types))}. "
            "Call model.float(), and use autocast=torch.bfloat16 for lower precision on the workers."
        )
    names = tuple(reversed(found)) if order is None else tuple(order)
    buffers = running_statistics(model) if statistics else {}
    return Layout(
        names,
        tuple(found[name].numel() for name in names),
        tuple(buffers),
        tuple(buffer.numel() for buffer in buffers.values()),
        loss,
        TYPES[types.pop()],
        strides=tuple((name, p.stride()) for name, p in found.items() if p.stride() != _usual(p) and _dense(p)),
    )


def _usual(tensor: Tensor) -> tuple[int, ...]:
    """The strides of a tensor that lies in memory in the order of its dimensions."""
    return torch.empty(tensor.shape, device="meta").stride()


def _dense(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor fill a piece of memory, each place once.

    >>> _dense(torch.zeros(2, 3).T), _dense(torch.zeros(2, 3)[:, :2]), _dense(torch.zeros(1).expand(3))
    (True, False, False)
    """
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def alignment(devices: Sequence[str], code: Code) -> int:
    """Where parameters may begin: on accelerators, where whole gradients travel, at multiples of ALIGNED coordinates."""
    alone = len(code.blocks) == 1 and code.messages.mixes == 1
    return ALIGNED if alone and any(torch.device(one).type != "cpu" for one in devices) else 1


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that require a gradient, by name; one that is used in several places stands there once."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def running_statistics(model: nn.Module) -> dict[str, Tensor]:
    """Running means and variances of batch normalisation in training mode, by name."""
    found: dict[str, Tensor] = {}
    for name, layer in model.named_modules():
        if not (isinstance(layer, nn.modules.batchnorm._NormBase) and layer.training and layer.track_running_stats):
            continue
        if layer.momentum is None:
            raise Invalid(
                f"{name} averages its statistics over all steps (momentum=None), which partitions cannot do. "
                "Set a momentum such as 0.1."
            )
        prefix = f"{name}." if name else ""
        for key, buffer in layer.named_buffers(recurse=False):
            if key.startswith("running_"):
                found[prefix + key] = buffer
    return found


def torch_type(dtype: np.dtype[Any]) -> torch.dtype:
    """What torch calls a type of numbers that travel."""
    return next(mine for mine, other in TYPES.items() if other == dtype)
