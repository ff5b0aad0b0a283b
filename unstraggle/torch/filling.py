"""Filling: gradients of parameters become views of the decoded vector, before it is decoded if it is known where it will be.

Workers compute then, and nobody waits. When the last message has come, whatever takes time is time in which they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Pairs = list[tuple[Tensor, Tensor]]
Cut = Callable[[Tensor], Pairs]
"""cut(vector): each parameter with its piece of it."""


class Filling:
    """What is done of one step. A gradient that was none becomes a view; to others the view is added when it is decoded."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._at: int | None = None
        self._early: list[Tensor] = []
        self._rest: Pairs = []

    def prepare(self, coming: Tensor | None, cut: Cut) -> None:
        """Put views of what will be the gradient where they belong. coming: None where nobody knows yet."""
        self._forget()
        pairs = [] if coming is None else cut(coming)
        if coming is None or not all(p.device == grad.device and p.stride() == grad.stride() for p, grad in pairs):
            return
        self._at = coming.data_ptr()
        for p, grad in pairs:
            if p.grad is not None:
                self._rest.append((p, grad))
                continue
            self._early.append(p)
            p.grad = grad

    def fill(self, found: Tensor, cut: Cut) -> None:
        """The gradient is decoded."""
        if found.data_ptr() != self._at:
            self.withdraw()
            self._rest = [(p, as_it_lies(grad, p)) for p, grad in cut(found)]
        for p, grad in self._rest:
            p.grad = grad if p.grad is None else p.grad.add_(grad)
        self._forget()

    def withdraw(self) -> None:
        """There is no gradient, or it is elsewhere: what was none is none again."""
        for p in self._early:
            p.grad = None
        self._forget()


def as_it_lies(grad: Tensor, p: Tensor) -> Tensor:
    """A gradient on the device of its parameter, in the same order of memory: fused optimisers go through that."""
    there = grad if grad.device == p.device else grad.to(p.device)
    return there if there.stride() == p.stride() else torch.empty_like(p).copy_(there)
