"""Instructions: what a round wants done. The master does it; the round itself touches nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """Give these workers their order of this round again."""

    workers: tuple[int, ...]
    round: int


@dataclass(frozen=True, slots=True)
class Next:
    """Tell a worker which task of the code's table to do next."""

    worker: int
    task: int
    round: int


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


Instruction = Ask | Next | Cancel | Until | Say | Fail
