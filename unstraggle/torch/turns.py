"""Turns: several losses of one model, of which each step takes one. So a GAN has one set of workers and two optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from ..errors import Invalid
from .checks import Found, takes_context

LOSS = "loss"
"""Where workers find in the context which loss a step takes."""


class Turns:
    """A forward function made of several, by name; which one is called goes with every step.

    >>> turns = Turns({"twice": lambda model, batch: 2 * batch, "shifted": lambda model, batch, context: batch + context["by"]})
    >>> turns(None, 5, {"loss": "twice"}), turns(None, 5, {"loss": "shifted", "by": 1})
    (10, 6)
    """

    def __init__(self, forwards: Mapping[str, Callable[..., Any]]) -> None:
        named = isinstance(forwards, Mapping) and forwards and all(isinstance(name, str) for name in forwards)
        if not named or not all(callable(one) for one in forwards.values()):
            raise Invalid(
                "Several losses are given as forward={name: function (model, batch) -> loss, ...}, with loss_fn=None, but got "
                f"{forwards!r}."
            )
        self.forwards = dict(forwards)
        self._told = {name: takes_context(one) for name, one in self.forwards.items()}

    def __call__(self, model: nn.Module, batch: Any, context: Mapping[str, Any]) -> Any:
        name = context[LOSS]
        told = (context,) if self._told[name] else ()
        return self.forwards[name](model, batch, *told)


def names_of(forward: Any) -> tuple[str | None, ...]:
    """The losses that a step can take; one without a name where there is only one."""
    return tuple(forward.forwards) if isinstance(forward, Turns) else (None,)


def require_turns(forward: Any, loss_fn: Any, context: Mapping[str, Any], blocks: int) -> None:
    """Refuse what several losses cannot have."""
    if not isinstance(forward, Turns):
        return
    for bad, words in (
        (loss_fn is not None, "loss_fn=None: each of the functions gives its loss itself"),
        (LOSS in context, f'no "{LOSS}" in context: it says which of them a step takes. Call yours otherwise'),
        (blocks > 1, "a code over all coordinates: they pause at different places between blocks of layers"),
    ):
        if bad:
            raise Invalid(f"Several losses, forward={{...}}, need {words}.")


def chosen(names: Sequence[str | None], asked: str | None) -> str | None:
    """The loss that a step takes."""
    if asked in names:
        return asked
    if names == (None,):
        raise Invalid(f'This Coded has one loss, but backward got "{asked}". Leave it out, or give forward={{"{asked}": ...}}.')
    known = ", ".join(f'"{name}"' for name in names)
    raise Invalid(f"This Coded has several losses, and backward takes one of {known}, but got {asked!r}.")


def of_all(found: Sequence[Found], names: Sequence[str | None]) -> Found:
    """What several losses turned out to be. They share the places in a message, so all must be of one kind."""
    kinds = {one.reduction for one in found}
    if len(kinds) > 1:
        each = ", ".join(f"{name}: {one.reduction}" for name, one in zip(names, found, strict=True))
        raise Invalid(f"The losses of one Coded must all be means, all sums or all (sum, denominator), but got {each}.")
    return Found(found[0].reduction, tuple(sorted({name for one in found for name in one.metrics})))
