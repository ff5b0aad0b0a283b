"""The states of a round and all its transitions, in one table: docs/house.md draws its diagram from it."""

from __future__ import annotations

from enum import Enum
from typing import Literal

Shortfall = Literal["wait", "approximate", "skip", "raise"]
"""What to do when the gradient cannot be had: wait for those that come back, take what is there, skip the step, or raise."""


class State(Enum):
    """Where a round stands. The last four are ends."""

    OPEN = "open"
    WAITING = "waiting"
    SETTLING = "settling"
    FETCHING = "fetching"
    DONE = "done"
    APPROXIMATED = "approximated"
    SKIPPED = "skipped"
    FAILED = "failed"


class Signal(Enum):
    """What moves it on."""

    MET = "the stop rule is met"
    ASK = "messages were dropped: ask for them again"
    WAIT = "too many workers are lost, and some may return"
    BACK = "enough workers are back"
    REMIND = "patience is over: say so, and ask again"
    SETTLE = "take what still comes"
    FETCH = "ask for the payloads"
    LACK = "what was announced is lost"
    TAKE = "take what is there"
    SKIP = "go on without a gradient"
    GIVE_UP = "nothing more can come, or an error repeats"


OVER = frozenset({State.DONE, State.APPROXIMATED, State.SKIPPED, State.FAILED})

TRANSITIONS: dict[tuple[State, Signal], State] = {
    (State.OPEN, Signal.MET): State.DONE,
    (State.OPEN, Signal.ASK): State.OPEN,
    (State.OPEN, Signal.REMIND): State.OPEN,
    (State.OPEN, Signal.WAIT): State.WAITING,
    (State.OPEN, Signal.SETTLE): State.SETTLING,
    (State.OPEN, Signal.TAKE): State.APPROXIMATED,
    (State.OPEN, Signal.SKIP): State.SKIPPED,
    (State.OPEN, Signal.GIVE_UP): State.FAILED,
    (State.WAITING, Signal.MET): State.DONE,
    (State.WAITING, Signal.ASK): State.OPEN,
    (State.WAITING, Signal.BACK): State.OPEN,
    (State.WAITING, Signal.REMIND): State.WAITING,
    (State.WAITING, Signal.GIVE_UP): State.FAILED,
    (State.SETTLING, Signal.MET): State.DONE,
    (State.SETTLING, Signal.TAKE): State.APPROXIMATED,
    (State.SETTLING, Signal.GIVE_UP): State.FAILED,
    (State.OPEN, Signal.FETCH): State.FETCHING,
    (State.WAITING, Signal.FETCH): State.FETCHING,
    (State.SETTLING, Signal.FETCH): State.FETCHING,
    (State.FETCHING, Signal.FETCH): State.FETCHING,
    (State.FETCHING, Signal.REMIND): State.FETCHING,
    (State.FETCHING, Signal.LACK): State.OPEN,
    (State.FETCHING, Signal.MET): State.DONE,
    (State.FETCHING, Signal.TAKE): State.APPROXIMATED,
    (State.FETCHING, Signal.SKIP): State.SKIPPED,
    (State.FETCHING, Signal.GIVE_UP): State.FAILED,
}

SHORT: dict[Shortfall, Signal] = {
    "wait": Signal.WAIT,
    "approximate": Signal.SETTLE,
    "skip": Signal.SKIP,
    "raise": Signal.GIVE_UP,
}
"""What a shortfall means: the stop rule cannot be met by what still may come."""

LATE: dict[Shortfall, Signal] = {
    "wait": Signal.REMIND,
    "approximate": Signal.TAKE,
    "skip": Signal.SKIP,
    "raise": Signal.GIVE_UP,
}
"""What the end of patience means."""
