"""Stop rules: when a round ends. Each answers live (`done`, `alarm`) and for arrays of arrival times (`time`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from .code import Code
from .decoders import is_exact
from .recovery import By, require_by

if TYPE_CHECKING:
    from ..runtime.round import Round


class Stop(Protocol):
    """When to end a round; how to decode is the decoder's business.

    A stop rule may have more: see `Checks`, and `Vectorised`, without which rounds are simulated event by event.
    """

    def done(self, round: Round) -> bool:
        """Whether the round may end now."""
        ...

    def hopeless(self, round: Round) -> bool:
        """Whether it can never end well, whatever still comes."""
        ...

    def alarm(self, round: Round) -> float | None:
        """The time at which to ask again although nothing arrived."""
        ...


@runtime_checkable
class Vectorised(Protocol):
    """A stop rule that knows the ends of many rounds at once."""

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        """(R, M) arrival times to (R,) ends of the rounds; infinite where a round never ends."""
        ...


@runtime_checkable
class Checks(Protocol):
    """A stop rule that does not go with every code."""

    def check(self, code: Code) -> None:
        """Raise `Invalid` unless rounds of this code can end by it."""
        ...


@runtime_checkable
class Planned(Protocol):
    """A code together with the stop rule that it was designed for, such as a `Plan`."""

    @property
    def code(self) -> Code: ...
    @property
    def stop(self) -> Stop: ...


def code_and_stop(code: Code | Planned, stop: Stop | None = None, by: By | None = None) -> tuple[Code, Stop]:
    """What to run and when to stop: a plan goes in whole, and an exact code stops as soon as it is recovered.

    by: the notion of recovered, by default the code's rule, or the span where it has none.
    """
    if not isinstance(code, Code):
        stop, code = stop or code.stop, code.code
    chosen = stop or Recovered(by or ("rule" if code.decoder.rule else "span"))
    if code.handing is not None and not isinstance(chosen, Recovered):
        raise Invalid(
            f"{code.name} hands out tasks until all are done, so that its rounds end when the gradient is exact, but got "
            f"stop={chosen}. Leave the stop rule out; on_shortfall and patience say what to do when workers are missing."
        )
    if isinstance(chosen, Checks):
        chosen.check(code)
    return code, chosen


@door
@dataclass(frozen=True)
class Recovered:
    """As soon as the gradient can be decoded exactly: by the code's rule, or by span as soon as linear algebra allows.

    What is exact is the decoder's word: a rule that is met by messages from which it cannot decode waits for more.
    """

    by: By = "rule"

    def check(self, code: Code) -> None:
        require_by(code.decoder, self.by)
        if not is_exact(code.decoder, np.ones(len(code.messages), dtype=bool)):
            raise Invalid(
                f"{code.name} is approximate: not even all its messages give the exact gradient, so that waiting for it never "
                "ends, and ending elsewhere would make an unbiased code biased. Give the stop rule that it was made for, such "
                "as stop=Deadline(seconds) or Count(workers), or a whole plan, such as that of plan.deadline."
            )

    def done(self, round: Round) -> bool:
        return round.recovered(self.by) and round.exact

    def hopeless(self, round: Round) -> bool:
        return round.gone and not round.reachable(self.by)

    def alarm(self, round: Round) -> float | None:
        return None

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        from . import recovery_times

        if require_by(code.decoder, self.by) == "rule":
            return np.asarray(recovery_times.rule_rounds(code, arrivals)[0])
        return np.asarray(recovery_times.span_part_times(code, arrivals).max(axis=1))


@door
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


@door
@dataclass(frozen=True)
class Count:
    """When enough workers have been heard of, or enough messages are there: ignore the slowest."""

    count: int
    of: Literal["workers", "messages"] = "workers"

    def __post_init__(self) -> None:
        if self.count < 1 or self.of not in ("workers", "messages"):
            raise Invalid(f'Count needs count >= 1 of "workers" or "messages", but got Count({self.count}, of={self.of!r}).')

    def done(self, round: Round) -> bool:
        if self.of == "messages":
            return int(round.got.sum()) >= self.count
        return len(np.unique(round.code.messages.worker[round.got])) >= self.count

    def hopeless(self, round: Round) -> bool:
        return False

    def alarm(self, round: Round) -> float | None:
        return None

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.of == "workers":
            senders = np.unique(code.messages.worker)
            arrivals = np.stack([arrivals[:, code.messages.worker == w].min(axis=1) for w in senders], axis=1)
        return np.asarray(np.partition(arrivals, self.count - 1, axis=1)[:, self.count - 1])

    def check(self, code: Code) -> None:
        most = len(code.messages) if self.of == "messages" else len(np.unique(code.messages.worker))
        if self.count > most:
            raise Invalid(f"Count({self.count}) waits for more than the {most} {self.of} of {code.name}. Lower the count.")


@door
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

    def check(self, code: Code) -> None:
        for stop in self.stops:
            if isinstance(stop, Checks) and not (isinstance(stop, Recovered) and len(self.stops) > 1):
                stop.check(code)

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        times: NDArray[np.float64] = np.min([ends(stop, code, arrivals) for stop in self.stops], axis=0)
        return times


@door
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

    def check(self, code: Code) -> None:
        if isinstance(self.stop, Checks):
            self.stop.check(code)

    def time(self, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
        since = ends(self.stop, code, arrivals)
        return np.asarray(np.minimum(since * self.factor, np.maximum(since, arrivals.max(axis=1))))


def vectorised(stop: Stop) -> bool:
    """Whether a stop rule, with those it is made of, knows the ends of many rounds at once."""
    inner = stop.stops if isinstance(stop, First) else (stop.stop,) if isinstance(stop, Linger) else ()
    return isinstance(stop, Vectorised) and all(map(vectorised, inner))


def ends(stop: Stop, code: Code, arrivals: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, M) arrival times to (R,) ends of the rounds by a stop rule that knows them."""
    assert isinstance(stop, Vectorised)
    return stop.time(code, arrivals)


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise Invalid(f"{name} needs a positive finite number, but got {value}.")
