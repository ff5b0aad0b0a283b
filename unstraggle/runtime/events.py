"""Events: what can happen to a round. Times are seconds since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Arrived:
    """A message of round `round` is at the master."""

    message: int
    time: float
    round: int = 0


@dataclass(slots=True)
class Lost:
    """A worker is gone: what it has not delivered will not come."""

    worker: int
    time: float


@dataclass(slots=True)
class Dropped:
    """A message will not come although its worker is alive: it was damaged or lost on its way."""

    message: int
    time: float


@dataclass(slots=True)
class Joined:
    """A worker computes this round (again): what it has not delivered may still come."""

    worker: int
    time: float


@dataclass(slots=True)
class Elapsed:
    """Time has passed and nothing else happened."""

    time: float


Event = Arrived | Lost | Dropped | Joined | Elapsed
