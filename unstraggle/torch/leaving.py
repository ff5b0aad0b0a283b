"""Leaving: the beginning of a message leaves a device while the backward pass still computes the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

Leave = Callable[[Tensor, int], None]
"""leave(message, upto): its numbers are known up to a place; 0: none are, any more."""


class Leaving:
    """Adds gradients to a message as soon as those of all parameters before them are done, some at a time.

    Parameters stand in a message about in the order in which the backward pass gets to them. Where it takes another one, they
    leave later; where it comes back to some (checkpoints that are computed again, weights that are shared by them), all of them
    leave once more.

    params: in the order of the message; ends: where each ends there. stops: how many times something leaves before the end.
    apart: whether gradients must stay apart from the message until then.
    """

    apart = True

    def __init__(self, params: Sequence[Tensor], ends: Sequence[int], leave: Leave, stops: int) -> None:
        self._params, self._ends, self._leave = list(params), list(ends), leave
        self._total: Tensor | None = None
        self._views: list[Tensor] = []
        self._next = 0
        for place in places(self._ends, stops):
            self._params[place].register_post_accumulate_grad_hook(partial(self._reached, place))  # type: ignore[no-untyped-call]

    def begin(self, total: Tensor | None, views: list[Tensor]) -> None:
        """A backward pass begins, the only one of a message. None: not the only one, and all is added at its end."""
        self._total, self._views, self._next = total, views, 0
        if total is not None:
            self._leave(total, 0)

    def end(self, found: Sequence[int]) -> None:
        """Gradients of some parameters are to be added yet: none of those that have left, as a rule."""
        if self._total is not None and any(place < self._next for place in found):
            self._leave(self._total, 0)
        self._total = None

    def _reached(self, place: int, *_: Any) -> None:
        some = slice(self._next, place + 1)
        grads = [p.grad for p in self._params[some] if p.grad is not None]
        if self._total is None or not grads or len(grads) < len(self._params[some]):
            return
        torch._foreach_add_(self._views[some], grads)
        for p in self._params[some]:
            p.grad = None
        self._next = place + 1
        self._leave(self._total, self._ends[place])


class Following:
    """The same where the backward pass adds gradients to the message itself, as on a CPU: it says how far this is done.

    Where the pass comes back to a parameter, nothing is said any more, and what was does not hold.
    """

    apart = False

    def __init__(self, params: Sequence[Tensor], ends: Sequence[int], leave: Leave, stops: int) -> None:
        self._ends, self._leave, self._stops = list(ends), leave, places(ends, stops)
        self._total: Tensor | None = None
        self._done: set[int] = set()
        self._next = 0
        for place, p in enumerate(params[: self._stops[-1] + 1 if self._stops else 0]):
            p.register_post_accumulate_grad_hook(partial(self._reached, place))  # type: ignore[no-untyped-call]

    def begin(self, total: Tensor | None, views: list[Tensor]) -> None:
        """A backward pass begins, the only one of a message. None: not the only one."""
        self._total, self._done, self._next = total, set(), 0
        if total is not None:
            self._leave(total, 0)

    def end(self, found: Sequence[int]) -> None:
        """The pass is over."""
        self._total = None

    def _reached(self, place: int, *_: Any) -> None:
        if self._total is None:
            return
        if place in self._done:
            self._leave(self._total, 0)
            self._total = None
            return
        self._done.add(place)
        before = self._next
        while self._next in self._done:
            self._next += 1
        if any(before <= stop < self._next for stop in self._stops):
            self._leave(self._total, self._ends[self._next - 1])


def places(ends: Sequence[int], stops: int) -> list[int]:
    """The last parameters before a message is done by 1, 2, ... parts of equal length.

    >>> places([3, 4, 10, 12], 3)
    [0, 1]
    """
    limits = [ends[-1] * number // (stops + 1) for number in range(1, stops + 1)]
    found = (sum(end <= limit for end in ends) - 1 for limit in limits)
    return sorted({place for place in found if place >= 0})
