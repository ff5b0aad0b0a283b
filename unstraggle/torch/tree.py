"""Tree: the modules, parameters and buffers of a model by name, walked again only when something has come or gone.

Names are built by a walk through all modules, which takes milliseconds for deep models: as long as a device needs for a good
part of a step. Whether it is still the same tree is seen much faster.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from torch import Tensor, nn


class Tree:
    """A model and what was found in it. walks: how often it was walked: others see by that whether they know what is there."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.walks = 0
        self._walk()

    def _walk(self) -> None:
        self.walks += 1
        self._modules = dict(self._model.named_modules())
        self._params = dict(self._model.named_parameters())
        self._buffers = dict(self._model.named_buffers())
        inside = [(module._modules, module._parameters, module._buffers) for module in self._modules.values()]
        self._inside: list[dict[str, Any]] = [*chain.from_iterable(inside)]
        self._mark = self._now()

    def _now(self) -> list[int]:
        """What modules are made of: the same while nothing has come or gone."""
        return [*map(len, self._inside), *map(id, chain.from_iterable(map(dict.values, self._inside)))]

    def look(self) -> bool:
        """Whether something has come or gone since the last look."""
        changed = self._now() != self._mark
        if changed:
            self._walk()
        return changed

    def params(self) -> dict[str, nn.Parameter]:
        """All parameters, as of the last look; one that is used in several places stands there once."""
        return self._params

    def tensors(self) -> dict[str, Tensor]:
        """Buffers and parameters, as of the last look."""
        return {**self._buffers, **self._params}

    def buffers(self) -> dict[str, Tensor]:
        """Buffers, as of the last look."""
        return self._buffers

    def modules(self) -> dict[str, nn.Module]:
        """All modules, as of the last look."""
        return self._modules
