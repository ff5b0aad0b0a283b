"""Program and the worker loop: what one worker does in a round, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .quantizers import Quantizer


@dataclass(frozen=True)
class Outgoing:
    """One message of a worker: sum of coef[i] * (partial gradient of parts[i]) over one block of coordinates.

    quantizer: makes the payload's bytes; None: the numbers go as they are.
    """

    index: int
    after: int
    block: int
    parts: tuple[int, ...]
    coef: tuple[complex, ...]
    bits: int
    quantizer: Quantizer | None = None


@dataclass(frozen=True)
class Program:
    """A worker's share of a code: (partition, block) tasks in order, and messages with the task count that frees them."""

    worker: int
    tasks: tuple[tuple[int, int], ...]
    messages: tuple[Outgoing, ...]

    @cached_property
    def due(self) -> tuple[tuple[Outgoing, ...], ...]:
        """The messages to send after each task."""
        steps = range(1, len(self.tasks) + 1)
        return tuple(tuple(m for m in self.messages if m.after == step) for step in steps)

    @cached_property
    def last_use(self) -> dict[tuple[int, int], int]:
        """The task count after which a partial gradient is needed no more."""
        uses: dict[tuple[int, int], int] = {}
        for message in self.messages:
            for part in message.parts:
                uses[part, message.block] = max(message.after, uses.get((part, message.block), 0))
        return uses


def work(
    program: Program,
    grad: Callable[[int, int], Any],
    send: Callable[[Outgoing, Any], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """The whole worker: compute the tasks in order and send each message when it is due, until `stopped()`.

    grad(part, block) gives a partial gradient (any type with + and *), send(message, payload) delivers. A partial gradient is
    dropped after its last use, and `stopped` is asked between tasks: a partial gradient is never cut short.
    """
    partials: dict[tuple[int, int], Any] = {}
    for step, task in enumerate(program.tasks):
        if stopped():
            return
        partials[task] = grad(*task)
        for message in program.due[step]:
            send(message, encode(message, partials))
        partials = {key: value for key, value in partials.items() if program.last_use.get(key, 0) > step + 1}


def encode(message: Outgoing, partials: dict[tuple[int, int], Any]) -> Any:
    """The payload of a message: its linear combination of partial gradients."""
    first, *rest = zip(message.parts, message.coef, strict=True)
    payload = first[1] * partials[first[0], message.block]
    for part, coef in rest:
        payload = payload + coef * partials[part, message.block]
    return payload
