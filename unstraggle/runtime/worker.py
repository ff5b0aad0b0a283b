"""The worker loop: what one worker does in a round, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..doors import door
from ..scheme.program import Outgoing, Program

Grad = Callable[[int, int], Any]
Send = Callable[[Outgoing, Any], None]
Accumulate = Callable[[int, int, Any, Any], Any]
Begin = Callable[[int], Any]
AccumulateAll = Callable[[tuple[int, ...], int, Any, Any], Any]


@door
def work(
    program: Program,
    grad: Grad,
    send: Send,
    stopped: Callable[[], bool] = lambda: False,
    accumulate: Accumulate | None = None,
    begin: Begin | None = None,
    accumulate_all: AccumulateAll | None = None,
) -> None:
    """The whole worker: compute the tasks in order and send each message when it is due, until `stopped()`.

    grad(part, block) gives a partial gradient (any type with + and *), send(message, payload) delivers, and `stopped` is asked
    between tasks: a partial gradient is never cut short. accumulate(part, block, coef, total), if given, adds coef times the
    partial gradient to total (None: to nothing) and gives it back: a code with one message per worker then needs one vector.
    begin(message): what its first partial gradient is added to, zeros in a place of the caller's choice (or anything, where
    accumulate knows that), or None.
    accumulate_all(parts, block, coef, total), if given, does the same for neighbours of one message in one pass.

    Between tasks min(program.waiting) vectors are held; during one, the partial gradient and its product with a coefficient.
    """
    if program.folds:
        steps = program.steps if accumulate_all is None else program.together
        _fold(program, steps, grad, send, stopped, accumulate, begin or _nothing, accumulate_all)
    else:
        _hold(program, grad, send, stopped)


def _nothing(index: int) -> None:
    return None


def _fold(
    program: Program,
    steps: tuple[Any, ...],
    grad: Grad,
    send: Send,
    stopped: Callable[[], bool],
    accumulate: Accumulate | None,
    begin: Begin,
    accumulate_all: AccumulateAll | None,
) -> None:
    """Add each partial gradient to the messages that use it."""
    sums: dict[int, Any] = {}
    plain = program.plain
    for task, uses, due in steps:
        if stopped():
            return
        if accumulate_all is not None and len(task) > 1:
            (index, coef), parts = uses[0], tuple(part for part, _ in task)
            sums[index] = accumulate_all(parts, task[0][1], coef, sums[index] if index in sums else begin(index))
        elif accumulate is not None and len(uses) == 1:
            part, block = task if accumulate_all is None else task[0]
            index, coef = uses[0]
            sums[index] = accumulate(part, block, coef, sums[index] if index in sums else begin(index))
        else:
            partial = grad(*(task if accumulate_all is None else task[0]))
            for index, coef in uses:
                sums[index] = partial if index in plain else _added(sums.get(index), coef * partial)
        for message in due:
            send(message, sums.pop(message.index))


def _added(total: Any, product: Any) -> Any:
    """In place, for the first one is always a product and never the problem's own array."""
    if total is None:
        return product
    total += product
    return total


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
