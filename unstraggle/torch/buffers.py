"""Buffers: those of a worker's model, as they must be before every forward pass, whatever the pass before did to them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
