"""Buffers: those of a worker's model, as they must be before every forward pass, whatever the pass before did to them; and
those of the master's, which move by what the passes of a step did."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .layout import Layout

COUNTER = "num_batches_tracked"
"""Of batch normalisation: counted on the master, and read by nothing."""


@dataclass(eq=False)
class Kept:
    """A buffer: where it belongs, the tensor itself, the value that it should have, and its version before a forward pass."""

    name: str
    owner: nn.Module
    key: str
    tensor: Tensor
    value: Tensor
    version: int = -1

    @property
    def now(self) -> Tensor:
        """What stands in its place."""
        found = self.owner._buffers[self.key]
        return self.tensor if found is None else found

    def differs(self) -> bool:
        """Whether its value is another one; one of another shape is a cache."""
        return self.now.shape == self.value.shape and not torch.equal(self.now, self.value)

    def keep(self) -> None:
        """Its value is right as it is."""
        self.tensor = self.now
        self.value, self.version = self.tensor.detach().clone(), self.tensor._version

    def moved(self) -> bool:
        """Whether a forward pass has changed it, or put another tensor in its place."""
        return self.owner._buffers[self.key] is not self.tensor or self.tensor._version != self.version

    def reset(self) -> None:
        """By way of `data`: graphs of other partitions that wait for their next block may hold this buffer."""
        if self.moved():
            self.owner._buffers[self.key] = self.tensor
            self.tensor.data.copy_(self.value)
        self.version = self.tensor._version


def kept_buffers(model: nn.Module) -> list[Kept]:
    """All buffers of a model, each once, with copies of their values."""
    found, known = [], set[int]()
    for prefix, owner in model.named_modules():
        for key, buffer in owner._buffers.items():
            if buffer is not None and id(buffer) not in known:
                known.add(id(buffer))
                name = f"{prefix}.{key}" if prefix else key
                found.append(Kept(name, owner, key, buffer, buffer.detach().clone()))
    return found


@torch.no_grad()
def move_statistics(model: nn.Module, layout: Layout, flat: Tensor, passes: int, carried: Set[str]) -> None:
    """Running statistics of the master's model move by the mean of what they did in so many forward passes, whose sum was
    decoded; those that are carried by the sum, for each partition moves places of its own."""
    tensors = layout.tensors(model)
    for name in layout.statistics:
        moved = flat[layout.places[name]].view(tensors[name].shape).to(tensors[name].device)
        tensors[name] += moved if name in carried else moved / passes
    for layer in model.modules():
        if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.num_batches_tracked is not None and layer.training:
            layer.num_batches_tracked += 1
