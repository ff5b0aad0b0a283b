"""Tree: the modules, parameters and buffers of a model by name, walked again only when something has come or gone.

Names are built by a walk through all modules, which takes milliseconds for deep models: as long as a device needs for a good
part of a step. Whether it is still the same tree is seen much faster.
"""

from __future__ import annotations

from torch import Tensor, nn

Marks = list[tuple[nn.Module, list[int]]]


class Tree:
    """A model and what was found in it."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._walk()

    def _walk(self) -> None:
        self._modules = dict(self._model.named_modules())
        self._params = dict(self._model.named_parameters())
        self._buffers = dict(self._model.named_buffers())
        self._marks: Marks = [(module, _mark(module)) for module in self._modules.values()]

    def _look(self) -> None:
        if any(_mark(module) != mark for module, mark in self._marks):
            self._walk()

    def params(self) -> dict[str, nn.Parameter]:
        """All parameters; one that is used in several places stands there once."""
        self._look()
        return self._params

    def known(self) -> dict[str, nn.Parameter]:
        """All parameters, as of the last look."""
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


def _mark(module: nn.Module) -> list[int]:
    """What a module is made of: the same while nothing has come or gone."""
    return [*map(id, module._modules.values()), *map(id, module._parameters.values()), *map(id, module._buffers.values())]
