"""Events: what can happen to a round. Times are seconds since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Arrived:
    """A message of round `round` is at the master. ticket: the request that it answers, where messages are sent on
    request."""

    message: int
    time: float
    round: int = 0
    ticket: int = 0


@dataclass(slots=True)
class Finished:
    """A worker has done task `task` of the code's table, and is free. epoch: as in the word by which it got the task."""

    worker: int
    task: int
    time: float
    round: int = 0
    epoch: int = 0


@dataclass(slots=True)
class Announced:
    """A worker has made a message of round `round` and keeps it until it is asked for (`transfer="pull"`)."""

    worker: int
    message: int
    time: float
    round: int = 0


@dataclass(slots=True)
class Dropped:
    """A message will not come although its worker is alive. damaged: it came, but cannot be used."""

    message: int
    time: float
    damaged: bool = False


@dataclass(slots=True)
class Failed:
    """The problem raised an error on a worker, which is alive: what it owes in round `round` will not come by itself."""

    worker: int
    time: float
    round: int = 0
    details: str = ""


@dataclass(slots=True)
class Lost:
    """A worker is gone: what it has not delivered will not come. returns: whether it may join again by itself."""

    worker: int
    time: float
    returns: bool = False


@dataclass(slots=True)
class Joined:
    """A worker is here (again). fresh: it has none of its orders any more, else it goes on with them."""

    worker: int
    time: float
    fresh: bool = True


@dataclass(slots=True)
class Elapsed:
    """Time has passed and nothing else happened."""

    time: float


Event = Arrived | Announced | Finished | Dropped | Failed | Lost | Joined | Elapsed
