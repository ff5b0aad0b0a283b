"""Stopping inside a task: hooks that look between layers whether the round is over."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import nn

from ..runtime.serve import Abandoned
from ..scheme.code import Code
from ..scheme.decoders import is_exact

OFTEN, SELDOM = 8, 2
"""Looks in each pass on a device. Eight in both passes of a small transformer took about two per cent of a step, in one run on
an H200: little more than its noise."""
_known: weakref.WeakKeyDictionary[nn.Module, Stopping] = weakref.WeakKeyDictionary()


class Stopping:
    """Looks before the forward pass of every layer and, in the backward pass, whenever the gradient of a parameter is done.

    Hooks of parameters leave the graph alone, which those of modules do not. A layer is a module without others inside it; a
    model that was compiled is one layer. Buffers and gradients are set anew when the next task begins, wherever one is left.
    looks: at most so many in each pass, spread over it.
    """

    def __init__(self, model: nn.Module, looks: int | None) -> None:
        self.stopped: Callable[[], bool] = lambda: False
        for layer in _some(_layers(model), looks):
            layer.register_forward_pre_hook(self._look)
        for parameter in _some([p for p in model.parameters() if p.requires_grad], looks):
            parameter.register_post_accumulate_grad_hook(self._look)

    def _look(self, *_: Any) -> None:
        if self.stopped():
            raise Abandoned


def heed(model: nn.Module, stopped: Callable[[], bool], looks: int | None = None) -> Stopping:
    """Raise `Abandoned` inside the passes of a model as soon as `stopped()`; in place of what was asked there before. Gives who
    asks, to be told what to ask from then on.

    looks: of a pass, by default one at every layer. Where a device computes, layers are only asked of it here, in microseconds,
    and a look takes as long.
    """
    if model not in _known:
        _known[model] = Stopping(model, looks)
    found = _known[model]
    found.stopped = stopped
    return found


def looks_of(code: Code, by_time: bool) -> int:
    """How often to look in a pass on a device: seldom where no worker can be spared, so that rounds end when all are done.

    by_time: whether a stop rule may end rounds before.

    >>> from unstraggle.codes import cyclic_repetition, uncoded
    >>> looks_of(uncoded(4), False), looks_of(uncoded(4), True), looks_of(cyclic_repetition(4, s=1), False)
    (2, 8, 8)
    """
    sender = code.messages.worker
    spared = code.handing is not None or any(is_exact(code.decoder, sender != worker) for worker in range(code.n))
    return OFTEN if by_time or spared else SELDOM


def _some(every: list[Any], count: int | None) -> list[Any]:
    """As many, from first to last.

    >>> _some([0, 1, 2, 3, 4, 5, 6], 3), _some([0, 1], 3)
    ([0, 3, 6], [0, 1])
    """
    if count is None or len(every) <= count:
        return every
    return [every[place * (len(every) - 1) // (count - 1)] for place in range(count)]


def _layers(model: nn.Module) -> list[nn.Module]:
    if any(hasattr(module, "_orig_mod") for module in model.modules()):
        return [model]
    return [module for module in model.modules() if not any(module.children())]
