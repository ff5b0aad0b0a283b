"""Stop rules: when a round ends. Each answers live (`done`, `alarm`) and for arrays of arrival times (`time`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .recovery import By, require_by

if TYPE_CHECKING:
    from ..runtime.round import Round
    from .code import Code


class Stop(Protocol):
    """When to end a round; how to decode is the decoder's business."""

    def done(self, round: Round) -> bool:
        """Whether the round may end now."""
        ...

    def hopeless(self, round: Round) -> bool:
        """Whether it can never end well, whatever still comes."""
        ...

    def alarm(self, round: Round) -> float | None:
        """The time at which to ask again although nothing arrived."""
        ...

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        """(R, M) arrival times to (R,) ends of the rounds; infinite where a round never ends."""
        ...


@dataclass(frozen=True)
class Recovered:
    """As soon as the gradient can be decoded exactly: by the code's rule, or by span as soon as linear algebra allows."""

    by: By = "rule"

    def done(self, round: Round) -> bool:
        return round.recovered(self.by)

    def hopeless(self, round: Round) -> bool:
        if not round.lost:
            return False
        possible = round.got | round.pending
        if self.by == "rule" and round.code.decoder.rule:
            return not round.code.decoder.rule.met(possible)
        from .decoders import TOLERANCE

        return bool(round.code.decoder.residual(possible) > TOLERANCE)

    def alarm(self, round: Round) -> float | None:
        return None

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        from . import recovery_times as kernels

        require_by(code.decoder, self.by)
        if self.by == "rule":
            return np.asarray(kernels.rule_rounds(code, arrivals)[0])
        return np.asarray(kernels.span_part_times(code, arrivals).max(axis=1))


@dataclass(frozen=True)
class Deadline:
    """At a fixed time after the start, or when everything has arrived before it."""

    seconds: float

    def __post_init__(self) -> None:
        _require_positive("Deadline(seconds)", self.seconds)

    def done(self, round: Round) -> bool:
        return round.clock >= self.seconds or not round.pending.any()

    def hopeless(self, round: Round) -> bool:
        return False

    def alarm(self, round: Round) -> float | None:
        return self.seconds

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.minimum(self.seconds, arrivals.max(axis=1)))


@dataclass(frozen=True)
class Exhausted:
    """When nothing more will come: all messages are there, or those missing are lost."""

    def done(self, round: Round) -> bool:
        return not round.pending.any()

    def hopeless(self, round: Round) -> bool:
        return False

    def alarm(self, round: Round) -> float | None:
        return None

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.where(np.isfinite(arrivals), arrivals, 0.0).max(axis=1))


@dataclass(frozen=True)
class Count:
    """When enough workers have been heard of, or enough messages are there: ignore the slowest."""

    count: int
    of: Literal["workers", "messages"] = "workers"

    def __post_init__(self) -> None:
        if self.count < 1 or self.of not in ("workers", "messages"):
            raise Invalid(f'Count needs count >= 1 of "workers" or "messages", but got Count({self.count}, of={self.of!r}).')

    def done(self, round: Round) -> bool:
        self._check(round.code)
        if self.of == "messages":
            return int(round.got.sum()) >= self.count
        return len(np.unique(round.code.messages.worker[round.got])) >= self.count

    def hopeless(self, round: Round) -> bool:
        return False

    def alarm(self, round: Round) -> float | None:
        return None

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        self._check(code)
        if self.of == "workers":
            senders = np.unique(code.messages.worker)
            arrivals = np.stack([arrivals[:, code.messages.worker == w].min(axis=1) for w in senders], axis=1)
        return np.asarray(np.partition(arrivals, self.count - 1, axis=1)[:, self.count - 1])

    def _check(self, code: Code) -> None:
        most = len(code.messages) if self.of == "messages" else len(np.unique(code.messages.worker))
        if self.count > most:
            raise Invalid(f"Count({self.count}) waits for more than the {most} {self.of} of {code.name}. Lower the count.")


@dataclass(frozen=True, init=False)
class First:
    """At the first of several stop rules, such as First(Recovered(), Deadline(2.0))."""

    stops: tuple[Stop, ...]

    def __init__(self, *stops: Stop) -> None:
        if not stops:
            raise Invalid("First needs at least one stop rule, such as First(Recovered(), Deadline(2.0)).")
        object.__setattr__(self, "stops", stops)

    def done(self, round: Round) -> bool:
        return any(stop.done(round) for stop in self.stops)

    def hopeless(self, round: Round) -> bool:
        return all(stop.hopeless(round) for stop in self.stops)

    def alarm(self, round: Round) -> float | None:
        return min((a for a in (stop.alarm(round) for stop in self.stops) if a is not None), default=None)

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        times: NDArray[np.float64] = np.min([stop.time(code, arrivals) for stop in self.stops], axis=0)
        return times


@dataclass(frozen=True)
class Linger:
    """A while longer than another stop rule (`factor` times its time), or until everything has arrived.

    More messages make the decoder amplify less noise and an approximation come closer.
    """

    stop: Stop
    factor: float = 1.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise Invalid(f"Linger(stop, factor) needs a factor >= 1, such as 1.1 for 10 % longer, but got {self.factor}.")

    def done(self, round: Round) -> bool:
        since = round.since(self.stop)
        return since is not None and (round.clock >= since * self.factor or not round.pending.any())

    def hopeless(self, round: Round) -> bool:
        return self.stop.hopeless(round)

    def alarm(self, round: Round) -> float | None:
        since = round.since(self.stop)
        return self.stop.alarm(round) if since is None else since * self.factor

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        since = self.stop.time(code, arrivals)
        return np.asarray(np.minimum(since * self.factor, np.maximum(since, arrivals.max(axis=1))))


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise Invalid(f"{name} needs a positive finite number, but got {value}.")
