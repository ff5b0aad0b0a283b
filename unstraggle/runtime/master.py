"""Master: Code + Engine + Stop -> Estimate. It asks an engine for a round, feeds a `Round`, and decodes."""

from __future__ import annotations

import logging
import statistics
import time
from collections import deque
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..engines.base import Engine
from ..errors import Invalid, NotRecovered
from ..scheme.code import Code
from ..scheme.recovery import Load
from ..scheme.stop import Exhausted, Recovered, Stop
from .estimate import Estimate, Split
from .events import Arrived, Dropped, Elapsed, Event, Joined, Lost
from .gather import Gather
from .message import Incoming, Message, Order
from .recorder import Recorder
from .round import Round, State

Shortfall = Literal["wait", "approximate", "skip", "raise"]

log = logging.getLogger("unstraggle")

REMEMBERED = 100
"""Rounds from which the usual time is learned."""
LEARNED = 5
"""Rounds before it is used."""
ATTEMPTS = 3
"""How often workers are asked again, while none is lost or joins, for messages that came damaged."""


class Master:
    """Gradients, round after round, from workers of which some are late, lost or wrong.

    stop: when a round ends; by default as soon as the gradient can be decoded exactly. on_shortfall: what to do when that
    cannot be, or not within `patience` times the usual time of a round (the median of the last 100): "wait" for those that are
    alive or come back, "approximate" with what is there, "skip" the step (a gradient of zeros), or "raise" `NotRecovered`.
    Without patience only dead workers make a shortfall. trace: a file to which every round is added.

    >>> from unstraggle import codes, engines, latency, problems
    >>> problem = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=4)
    >>> engine = engines.Virtual(problem, latency.ShiftedExponential(rate=1.0), rng=0)
    >>> with Master(codes.cyclic_repetition(4, s=1), engine) as master:
    ...     estimate = master.gradient(np.zeros(4))
    >>> estimate.gradient.round(9).tolist(), estimate.exact, estimate.messages
    ([0.0, -1.0, -2.0, -3.0], True, 3)
    """

    def __init__(
        self,
        code: Code,
        engine: Engine,
        stop: Stop | None = None,
        *,
        on_shortfall: Shortfall = "wait",
        patience: float | None = None,
        load: Load = "all",
        trace: Any = None,
    ) -> None:
        if on_shortfall not in ("wait", "approximate", "skip", "raise"):
            raise Invalid(f'on_shortfall is "wait", "approximate", "skip" or "raise", but got {on_shortfall!r}.')
        if patience is not None and not patience > 1:
            raise Invalid(f"patience is a multiple > 1 of the usual time of a round, but got {patience}.")
        self.code, self.engine = code, engine
        self.stop: Stop = stop or Recovered("rule" if code.decoder.rule else "span")
        self._policy, self._patience, self._load = on_shortfall, patience, load
        self._usual: deque[float] = deque(maxlen=REMEMBERED)
        self._lost: set[int] = set()
        self._count = 0
        engine.open(code)
        self._gather = Gather(code, engine.problem.dim, np.dtype(engine.problem.dtype))
        self._recorder = Recorder(code, trace)

    def gradient(self, params: NDArray[Any], step: int | None = None, *, delays: NDArray[np.float64] | None = None) -> Estimate:
        """The gradient at params (dim,). step: seeds what the problem draws, by default the number of the round."""
        number, self._count = self._count, self._count + 1
        current = Current(self, number, number if step is None else step, _checked(params, self.engine), delays)
        try:
            current.run()
        except BaseException:
            self.engine.cancel(number, tuple(range(self.code.n)))
            raise
        estimate = current.estimate()
        if current.round.state is State.DONE:
            self._usual.append(estimate.time)
        self._recorder.add(estimate, current.taken)
        return estimate

    def limit(self) -> float | None:
        """Seconds after which a round has a shortfall; None while that is not known or not wanted."""
        if self._patience is None or len(self._usual) < LEARNED:
            return None
        return self._patience * statistics.median(self._usual)

    def close(self) -> None:
        """End the workers and write what is left of the trace."""
        self.engine.close()
        self._recorder.close()

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Current:
    """The round that is running: events from the engine to the `Round`, payloads to the `Gather`."""

    def __init__(
        self, master: Master, number: int, step: int, params: NDArray[Any], delays: NDArray[np.float64] | None
    ) -> None:
        self._master, self._engine, self._gather = master, master.engine, master._gather
        self.round = Round(master.code, master.stop, number, master._load)
        self.order = Order(number, step, params, None, delays)
        self.taken: list[Message] = []
        self._good: list[Message] = []
        self._have: set[int] = set()
        self._attempts = self.damaged = self.bytes = 0
        self._short, self._limit = False, master.limit()
        self._lost = master._lost
        self.missed = set(master._lost)

    def run(self) -> None:
        """Start the round and take events until it is over."""
        self._gather.clear()
        self._engine.start(self.order)
        self._feed([Lost(worker, 0.0) for worker in sorted(self._lost)])
        while self.round.open or self._go_on():
            alarms = [alarm for alarm in (self.round.stop.alarm(self.round), self._limit) if alarm is not None]
            incoming = self._engine.next(min(alarms, default=None))
            events = [self._event(one) for one in incoming]
            self._feed(events or [Elapsed(self._engine.clock())])
            self._keep()
            if self.round.open and self._limit is not None and self._engine.clock() >= self._limit and self._overdue():
                break
        self._engine.cancel(self.round.number, tuple(range(self._master.code.n)))

    def estimate(self) -> Estimate:
        """Decode what there is, as the round and the policy say."""
        began, round = time.perf_counter(), self.round
        tracks, exact, residual = self._decode()
        split = self._split(time.perf_counter() - began)
        ended = round.time if round.time is not None else self._engine.clock()
        return Estimate(
            tracks=tracks,
            round=round.number,
            step=self.order.step,
            time=float(ended),
            exact=exact,
            residual=residual,
            got=round.got.copy(),
            late=round.late,
            duplicates=round.duplicates,
            damaged=self.damaged,
            lost=tuple(sorted(self.missed)),
            bytes=self.bytes,
            skipped=self._short and self._master._policy == "skip",
            split=split,
        )

    def _feed(self, events: list[Event]) -> None:
        for cancel in self.round.feed(*events) if events else ():
            self._engine.cancel(cancel.round, cancel.workers)

    def _event(self, incoming: Incoming) -> Event:
        """What the round is told: damaged messages do not count as arrived."""
        if isinstance(incoming, Message):
            return self._arrival(incoming)
        if isinstance(incoming, Joined):
            return self._welcome(incoming)
        if isinstance(incoming, Lost):
            self._attempts = 0
            self._lost.add(incoming.worker)
            self.missed.add(incoming.worker)
        return incoming

    def _arrival(self, message: Message) -> Event:
        if message.round == self.round.number and self.round.state is State.OPEN:
            try:
                self._gather.check(message)
            except Invalid:
                self.damaged += 1
                known = 0 <= message.index < len(self.round.got)
                return Dropped(message.index, message.time) if known else Elapsed(message.time)
            self._good.append(message)
        return Arrived(message.index, message.time, message.round)

    def _welcome(self, joined: Joined) -> Event:
        """A worker that comes back in a round that still waits gets its order."""
        self._attempts = 0
        self._lost.discard(joined.worker)
        if not self.round.open:
            return Elapsed(joined.time)
        self._engine.start(replace(self.order, workers=(joined.worker,)))
        return joined

    def _keep(self) -> None:
        """Take the payloads of messages that were good and counted, once each."""
        new = {m.index: m for m in self._good if self.round.got[m.index] and m.index not in self._have}
        self._have |= set(new)
        self.taken += new.values()
        self.bytes += sum(len(message.payload) for message in new.values())
        self._gather.add(list(new.values()))
        self._good.clear()

    # Shortfall

    def _go_on(self) -> bool:
        """The round is over: whether to open it again, because it failed and the policy is to wait."""
        if self.round.state is not State.FAILED:
            return False
        self._short = True
        if self._master._policy == "wait":
            self._wait_for_more()
            return True
        if self._master._policy == "raise":
            raise NotRecovered(self._why())
        if self._master._policy == "approximate" and self.round.pending.any():
            self.round.settle_for(Exhausted())
            self._ask_again(self._missing())  # when the round failed, those who were still at work were told to stop
            return self.round.open
        return False

    def _overdue(self) -> bool:
        """Patience is over: whether to end the round now. Who waits asks again, for a message may have vanished."""
        if self._master._policy == "wait":
            self._limit = 2 * self._engine.clock()
            missing = self._missing()
            log.warning("Round %d still waits after %.3g s for workers %s.", self.order.round, self._limit / 2, list(missing))
            self._ask_again(missing)
            return False
        self._short = True
        if self._master._policy == "raise":
            raise NotRecovered(self._why())
        return True

    def _wait_for_more(self) -> None:
        """Ask workers again whose messages were damaged, and those that came back; wait for those that may come back."""
        while True:
            missing = set(self._master.code.messages.worker[~self.round.got].tolist())
            again = tuple(sorted(missing - self._lost))
            if again and self._attempts < ATTEMPTS:
                self._attempts += 1
                self._ask_again(again)
                return
            if not self._lost & self._engine.expected():
                raise NotRecovered(self._why())
            for one in self._engine.next(None):
                self._event(one)
            self._attempts = 0

    def _missing(self) -> tuple[int, ...]:
        """Workers that are alive and of which messages may still come."""
        return tuple(sorted(set(self._master.code.messages.worker[self.round.pending].tolist()) - self._lost))

    def _ask_again(self, workers: tuple[int, ...]) -> None:
        self._engine.start(replace(self.order, workers=workers))
        self._feed([Joined(worker, self._engine.clock()) for worker in workers])

    def _why(self) -> str:
        code, round = self._master.code, self.round
        lost = f"workers {sorted(self._lost)} are lost" if self._lost else "no worker is lost"
        return (
            f"{code.name}: round {round.number} has {int(round.got.sum())} of {len(round.got)} messages, which do not "
            f"determine the gradient; {lost}, {self.damaged} messages came damaged. Use a code that tolerates more "
            'stragglers, or on_shortfall="approximate" or "skip".'
        )

    # Decoding

    def _decode(self) -> tuple[NDArray[Any], bool, float]:
        code, round = self._master.code, self.round
        if self._short and self._master._policy == "skip":
            tracks = np.zeros((1, self._engine.problem.dim), self._engine.problem.dtype)
            return tracks, False, 1.0
        residual = round.residual()
        try:
            weights = round.weights()
        except NotRecovered:
            weights = code.decoder.closest(round.got)
        return self._gather.finish(weights), residual <= 1e-6, residual

    def _split(self, decode: float) -> Split:
        """Along the message that came last: its worker's tasks, its way, and the rest."""
        last = max(self.taken, key=attrgetter("time"), default=None)
        if last is None or not last.times:
            return Split(0.0, 0.0, self.round.clock, decode)
        mine = [m.times for m in self.taken if m.worker == last.worker and m.times]
        compute = sum(sum(times[1::2]) - sum(times[::2]) for times in mine)
        transfer = max(0.0, last.time - last.times[-1])
        return Split(compute, transfer, max(0.0, last.time - compute - transfer), decode)


def _checked(params: NDArray[Any], engine: Engine) -> NDArray[Any]:
    problem = engine.problem
    values = np.ascontiguousarray(params, dtype=problem.dtype)
    if values.shape != (problem.dim,):
        raise Invalid(f"The problem has parameters of shape ({problem.dim},), but got {values.shape}.")
    if not np.isfinite(values.sum()) and not np.isfinite(values).all():  # the sum alone is quick, and finite as a rule
        raise Invalid("The parameters must be finite, but have NaN or infinity. The training has diverged: lower its rate.")
    return values
