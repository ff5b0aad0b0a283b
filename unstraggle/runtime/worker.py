"""The worker loop: what one worker does in a round, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..doors import door
from ..scheme.program import Outgoing, Program

Grad = Callable[[int, int], Any]
Send = Callable[[Outgoing, Any], None]
Accumulate = Callable[[int, int, Any, Any], Any]


@door
def work(
    program: Program,
    grad: Grad,
    send: Send,
    stopped: Callable[[], bool] = lambda: False,
    accumulate: Accumulate | None = None,
) -> None:
    """The whole worker: compute the tasks in order and send each message when it is due, until `stopped()`.

    grad(part, block) gives a partial gradient (any type with + and *), send(message, payload) delivers, and `stopped` is asked
    between tasks: a partial gradient is never cut short. accumulate(part, block, coef, total), if given, adds coef times the
    partial gradient to total (None: to nothing) and gives it back: a code with one message per worker then needs one vector.

    Between tasks min(program.waiting) vectors are held; during one, the partial gradient and its product with a coefficient.
    """
    if program.folds:
        _fold(program, grad, send, stopped, accumulate)
    else:
        _hold(program, grad, send, stopped)


def _fold(program: Program, grad: Grad, send: Send, stopped: Callable[[], bool], accumulate: Accumulate | None) -> None:
    """Add each partial gradient to the messages that use it."""
    sums: dict[int, Any] = {}
    for task, uses, due in program.steps:
        if stopped():
            return
        if accumulate is not None and len(uses) == 1:
            part, block = task
            index, coef = uses[0]
            sums[index] = accumulate(part, block, coef, sums.get(index))
        else:
            _add(sums, grad(*task), uses, program.plain)
        for message in due:
            send(message, sums.pop(message.index))


def _add(sums: dict[int, Any], partial: Any, uses: tuple[tuple[int, complex], ...], plain: frozenset[int]) -> None:
    for index, coef in uses:
        if index in plain:
            sums[index] = partial
        elif index in sums:  # in place, for the first one is always a product and never the problem's own array
            sums[index] += coef * partial
        else:
            sums[index] = coef * partial


def _hold(program: Program, grad: Grad, send: Send, stopped: Callable[[], bool]) -> None:
    """Keep each partial gradient until the last message that uses it is sent."""
    held: dict[tuple[int, int], Any] = {}
    for step, (task, _, due) in enumerate(program.steps, 1):
        if stopped():
            return
        held[task] = grad(*task)
        for message in due:
            send(message, encode(message, held))
        held = {key: value for key, value in held.items() if program.last_use.get(key, 0) > step}


def encode(message: Outgoing, partials: dict[tuple[int, int], Any]) -> Any:
    """The payload of a message: its linear combination of partial gradients."""
    (first, coef), *rest = zip(message.pairs, message.coef, strict=True)
    payload = coef * partials[first]
    for pair, coef in rest:
        payload += coef * partials[pair]
    return payload
