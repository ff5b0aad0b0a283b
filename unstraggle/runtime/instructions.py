"""Instructions: what a round wants done. The master does it; the round itself touches nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """Give these workers their order of this round again."""

    workers: tuple[int, ...]
    round: int


@dataclass(frozen=True, slots=True)
class Tell:
    """A word to a worker in a round whose tasks are handed out, or whose messages are fetched.

    task: what to do after what it was given before, a row of the code's table; -1: nothing more. done, counts: a task that it
    has finished, and whether its result goes into the worker's sum or is dropped. ticket: send the sum, which holds `count`
    results by now, and say that it is the answer to this. epoch: with a new one the worker forgets what it did in this round.
    message: with a ticket, where messages are fetched: which of those that it announced to send; -1: the sum.
    """

    worker: int
    round: int
    epoch: int = 0
    task: int = -1
    done: int = -1
    counts: bool = False
    ticket: int = 0
    count: int = 0
    message: int = -1


@dataclass(frozen=True, slots=True)
class Cancel:
    """These workers need not go on with this round."""

    workers: tuple[int, ...]
    round: int


@dataclass(frozen=True, slots=True)
class Until:
    """Come back at this time even if nothing happens; None: only when something does."""

    time: float | None


@dataclass(frozen=True, slots=True)
class Say:
    """Tell people: the round goes on, but not as usual."""

    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Give up. worker, details: where the problem's own error on a worker is the reason, whose, and its traceback."""

    why: str
    worker: int | None = None
    details: str = ""


Instruction = Ask | Tell | Cancel | Until | Say | Fail
