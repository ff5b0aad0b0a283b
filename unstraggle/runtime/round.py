"""Round: the master during one gradient, without I/O. Events in, instructions out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.recovery import By, Load, Tracker, require_by
from ..scheme.stop import Recovered, Stop
from .events import Arrived, Dropped, Event, Joined, Lost


@dataclass(frozen=True)
class Cancel:
    """Instruction: these workers need not go on with this round."""

    workers: tuple[int, ...]
    round: int


class State(Enum):
    """OPEN until the stop rule is met (DONE) or cannot be met any more (FAILED; a worker that joins opens it again)."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"


class Round:
    """One gradient at the master: feed it events, follow its instructions, and ask it for weights when it is done.

    It does no I/O and reads no clock, so that simulations, replays and live engines share it.

    >>> from unstraggle.codes import fractional_repetition
    >>> round = Round(fractional_repetition(4, s=1), Recovered())
    >>> round.feed(Arrived(0, time=0.5))
    ()
    >>> round.feed(Arrived(3, time=0.7))
    (Cancel(workers=(1, 2), round=0),)
    >>> round.state, round.time, round.weights().round(6).tolist()
    (<State.DONE: 'done'>, 0.7, [[1.0, 0.0, 0.0, 1.0]])
    """

    def __init__(self, code: Code, stop: Stop, number: int = 0, load: Load = "all") -> None:
        self.code, self.stop, self.number = code, stop, number
        self.state = State.OPEN
        self.clock = 0.0
        self.time: float | None = None
        self.got = np.zeros(len(code.messages), dtype=bool)
        self.pending = np.ones(len(code.messages), dtype=bool)
        self.lost: set[int] = set()
        self.late = self.duplicates = 0
        self._since: dict[Stop, float] = {}
        self._trackers: dict[By, Tracker] = {}
        self._idle: set[int] = set()
        self._early = self._tracker(require_stop_by(stop)) if require_load(load) == "cluster_stop" else None

    @property
    def open(self) -> bool:
        return self.state is State.OPEN

    def feed(self, *events: Event) -> tuple[Cancel, ...]:
        """Take events that happened together, then decide once: messages that arrive at the same time all count."""
        for event in events:
            self._take(event)
        if not self.open:
            return ()
        self._decide()
        return self._instructions()

    def settle_for(self, stop: Stop) -> None:
        """Go on with another stop rule, although the first can not be met any more."""
        self.stop, self.state, self.time = stop, State.OPEN, None
        self._decide()

    def recovered(self, by: By) -> bool:
        """Whether the exact gradient can be decoded from what is here."""
        return self._tracker(by).met

    def since(self, stop: Stop) -> float | None:
        """Since when another stop rule has been met, None while it is not."""
        if stop not in self._since and stop.done(self):
            self._since[stop] = self.clock
        return self._since.get(stop)

    def weights(self) -> NDArray[Any]:
        """(tracks, M) weights of the messages in the gradient."""
        return self.code.decoder.weights(self.got)

    def residual(self) -> float:
        """Relative error of the decoded coefficients: 0 where the gradient is exact."""
        return float(self.code.decoder.residual(self.got))

    def _take(self, event: Event) -> None:
        if event.time > self.clock and self.state is State.OPEN:
            self.clock = event.time
        if isinstance(event, Arrived):
            self._arrive(event)
        elif isinstance(event, Lost) and self.open:
            self.lost.add(event.worker)
            self.pending &= self.code.messages.worker != event.worker
        elif isinstance(event, Joined) and self.state is not State.DONE:
            self.state, self.time = State.OPEN, None
            self.lost.discard(event.worker)
            self.pending |= (self.code.messages.worker == event.worker) & ~self.got
        elif isinstance(event, Dropped) and self.open and not self.got[event.message]:
            self.pending[event.message] = False

    def _arrive(self, event: Arrived) -> None:
        message = event.message
        if not 0 <= message < len(self.got):
            raise Invalid(f"{self.code.name} has messages 0..{len(self.got) - 1}, but message {message} arrived.")
        if event.round != self.number or self.state is not State.OPEN:
            self.late += 1
        elif self.got[message]:
            self.duplicates += 1
        else:
            self.got[message], self.pending[message] = True, False
            for tracker in self._trackers.values():
                tracker.add(message)

    def _decide(self) -> None:
        if self.stop.done(self):
            self.state, self.time = State.DONE, self.clock
        elif not self.pending.any() or self.stop.hopeless(self):
            self.state, self.time = State.FAILED, self.clock

    def _instructions(self) -> tuple[Cancel, ...]:
        idle = self._needless() - self._idle - self.lost
        self._idle |= idle
        return (Cancel(tuple(sorted(idle)), self.number),) if idle else ()

    def _needless(self) -> set[int]:
        """Workers that have nothing to contribute any more."""
        senders = self.code.messages.worker
        if not self.open:
            return set(senders[self.pending].tolist())
        if self._early is None:
            return set()
        wanted = ~self._early.parts_met[self._early.part]
        return set(senders[self.pending].tolist()) - set(senders[wanted].tolist())

    def _tracker(self, by: By) -> Tracker:
        if by not in self._trackers:
            tracker = self._trackers[by] = Tracker(self.code.decoder, require_by(self.code.decoder, by))
            for message in np.flatnonzero(self.got):
                tracker.add(int(message))
        return self._trackers[by]


def require_load(load: str) -> Load:
    """Check which messages are to be counted."""
    if load not in ("all", "cluster_stop"):
        raise Invalid(f'load must be "all" or "cluster_stop", but got {load!r}.')
    return load  # type: ignore[return-value]


def require_stop_by(stop: Stop) -> By:
    """The notion of recovered that lets a cluster stop early; only `Recovered` has one."""
    if isinstance(stop, Recovered):
        return stop.by
    raise Invalid(f'load="cluster_stop" needs stop=Recovered(...), but got {stop}. Use load="all" with other stop rules.')
