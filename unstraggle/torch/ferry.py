"""Ferry: parameters and gradients of a model on a device, to and from memory of the host, each in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from .layout import Layout, torch_type
from .staging import Staging


class Ferry:
    """Tensors of a device meet in a flat vector there, which goes to the host in pieces of pinned memory; sums come back the
    same way. One by one, each tensor would wait for its own copy."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        kind = torch_type(layout.dtype)
        self.device, self._layout = device, layout
        self._flat = torch.zeros(layout.dim, dtype=kind, device=device)
        self._staging = Staging(device, kind)
        self._pieces: list[Tensor] = []

    @torch.no_grad()
    def down(self, tensors: Sequence[Tensor], to: NDArray[Any]) -> Tensor:
        """To the host, in the order of the layout: all of it is there when this is over. Gives the device's flat vector."""
        self._pieces = self._pieces or self._layout.cut(self._flat, tensors)
        torch._foreach_copy_(self._pieces, list(tensors))
        self._staging.down(self._flat, torch.from_numpy(to))
        return self._flat

    def up(self, given: Tensor) -> Tensor:
        """(dim,) a vector of the host, in memory of its own on the device."""
        found = torch.empty_like(self._flat)
        self._staging.up(given, found)
        return found


def away(tensors: Sequence[Tensor]) -> torch.device | None:
    """The device on which all of these are; None where they are on a CPU, or on several."""
    first = tensors[0].device
    if first.type == "cpu" or any(tensor.device != first for tensor in tensors):
        return None
    return first
