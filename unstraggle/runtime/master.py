"""Master: Code + Engine + Stop -> Estimate. The loop around a `Round`: events from an engine in, its instructions out."""

from __future__ import annotations

import contextlib
import logging
import math
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..engines.base import Engine, Lends, Sampled, Tells, require_keeps, require_tells
from ..errors import Invalid, NotRecovered
from ..scheme.code import Code
from ..scheme.noise import require_digits
from ..scheme.placement import Change, require_placed
from ..scheme.recovery import Sending
from ..scheme.stop import Planned, Stop, code_and_stop
from .estimate import Estimate
from .events import Dropped, Elapsed, Event
from .gather import Gather, Scaling
from .holding import Holding
from .instructions import Ask, Cancel, Fail, Instruction, Say, Tell, Until
from .interrupts import LOOK, Interrupts
from .log import Log
from .message import Incoming, Message, Order, WorkerFailed
from .recorder import Recorder
from .round import Round
from .states import Shortfall, State
from .step import computed, spent
from .sums import finite
from .terms import Terms, Transfer, require_transfer

log = logging.getLogger("unstraggle")

Finite = bool | Callable[[], bool] | None
"""Whether parameters are finite: known, to be asked for, or nobody has looked."""
REMEMBERED = 100
"""Rounds from which the usual time is learned."""
LEARNED = 5
"""Rounds before it is used."""
REMIND = 10.0
"""Usual times of a round after which people are told whom it waits for."""
FIRST_REMIND = 30.0
"""Seconds after which they are told while the usual time is not known."""
FIRST_LIMIT = 1.0
"""Seconds after which a patient master that waits asks again while the usual time is not known; then twice that, and so on."""


@door
class Master:
    """Gradients, round after round, from workers of which some are late, lost or wrong.

    code: a `Code`, or a whole plan with its stop rule. stop: when a round ends; by default as soon as the gradient can be
    decoded exactly, which an approximate code never can: it needs one. on_shortfall: what to do when that cannot be, or not
    within `patience` times the usual time of a round (the median of the last 100): "wait" for those that are alive or come
    back, and ask them again, "approximate" with what is there, "skip" the step (a gradient of zeros), or "raise"
    `NotRecovered`. Without patience only dead workers make a shortfall. A worker whose problem raises counts as lost for the
    round; `WorkerFailed` is raised when it does so twice in a row, or too many do. sending: "cluster_stop" lets workers go
    whose cluster is recovered. transfer: "pull" lets workers keep their messages and announce them; the master asks for those
    that its decoder will use, when the stop rule is met by what was announced. Codes that hand out tasks do so anyway. change:
    change(round, last estimate) gives the code of a round, over the data that `code` places. trace: a file to which every round
    is added. log: a file for every event and instruction, from which `replay_log` decides again. first: the
    number of the first round, where another master has done those before.

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
        code: Code | Planned,
        engine: Engine,
        stop: Stop | None = None,
        *,
        on_shortfall: Shortfall = "wait",
        patience: float | None = None,
        sending: Sending = "all",
        transfer: Transfer = "push",
        change: Change | None = None,
        trace: Any = None,
        log: Any = None,
        first: int = 0,
    ) -> None:
        if on_shortfall not in ("wait", "approximate", "skip", "raise"):
            raise Invalid(f'on_shortfall is "wait", "approximate", "skip" or "raise", but got {on_shortfall!r}.')
        if patience is not None and not patience > 1:
            raise Invalid(f"patience is a multiple > 1 of the usual time of a round, but got {patience}.")
        self.code, self.stop = code_and_stop(code, stop)
        self._change, self._seen = change, None  # type: tuple[Change | None, Estimate | None]
        self.engine = engine
        self._policy, self._patience, self._sending = on_shortfall, patience, sending
        self.transfer = require_transfer(transfer)
        self._usual: deque[float] = deque(maxlen=REMEMBERED)
        self._lost: dict[int, bool] = {}
        self._suspects: set[int] = set()
        self._sampled = isinstance(engine, Sampled) and engine.sampled
        self._forgets = self._sampled and not getattr(engine, "carry", False)
        self._count, self._busy = first, threading.Lock()
        self._left: float | None = None
        self._holding = Holding(self.code)
        self._busy_workers: tuple[int, ...] = ()
        self._eps = require_digits(self.code, np.dtype(engine.problem.dtype))
        require_tells(engine, self.code)
        require_keeps(engine, transfer)
        self._recorder, self._log = Recorder(self.code, trace), Log(log)
        self._gathers: tuple[Code, Gather] | None = None
        self._own: NDArray[Any] | None = None
        with contextlib.ExitStack() as undo:
            undo.callback(self._log.close)
            engine.open(self.code)
            undo.pop_all()

    def gradient(
        self,
        params: NDArray[Any],
        step: int | None = None,
        *,
        delays: NDArray[np.float64] | None = None,
        context: bytes = b"",
        scaling: Scaling | None = None,
        meanwhile: Callable[[], None] | None = None,
        finite: Finite = None,
    ) -> Estimate:
        """The gradient at params (dim,). step: seeds what the problem draws, by default the number of the round.

        context: what else workers must know in this round, for problems that listen (`problems.Listens`). scaling: what the
        gradient is multiplied by while messages are added up, so that nobody passes over it for that alone. meanwhile: called
        once workers have their order, for what can be done before they answer. finite: whether the parameters are, where that
        was seen while they were written; or who is to be asked once workers have their order, since a device may still look.
        """
        if not self._busy.acquire(blocking=False):
            raise Invalid("A master computes one gradient at a time, but another thread is in one. Use one master per thread.")
        try:
            with Interrupts() as interrupts:
                asked, known = (finite, True) if callable(finite) else (None, finite)
                order = self._order(_checked(params, self.engine, known), step, delays, context)
                return self._gradient(order, scaling, partial(_meanwhile, asked, meanwhile), interrupts)
        finally:
            self._busy.release()

    def room(self) -> Any:
        """(dim,) memory for the parameters of the next round, to be written and given to `gradient`: that from which workers
        read, where the engine lends it, so that nothing is copied."""
        lent = self.engine.lend(self._count) if isinstance(self.engine, Lends) else None
        if lent is None and self._own is None:
            self._own = np.zeros(self.engine.problem.dim, self.engine.problem.dtype)
        return self._own if lent is None else lent

    def coming(self) -> Any:
        """(tracks, dim) where the gradient of the round that runs will be, where that is known; else None. Of codes with one
        track."""
        return None if self._gathers is None else self._gathers[1].coming()

    def _order(self, values: NDArray[Any], step: int | None, delays: NDArray[np.float64] | None, context: bytes) -> Order:
        """The order of the next round."""
        number, self._count = self._count, self._count + 1
        code = self._code_of(number)
        changed = None if code is self.code else code
        pull = self.transfer == "pull" and code.handing is None
        hold = self._holding.hold if changed is None and not pull else None
        return Order(number, number if step is None else step, values, None, delays, changed, context, hold, pull)

    def _gradient(
        self, order: Order, scaling: Scaling | None, meanwhile: Callable[[], None], interrupts: Interrupts
    ) -> Estimate:
        number, changed, pull, code = order.round, order.code, order.pull, order.code or self.code
        outside = self._outside()
        try:
            self._gather(code).clear()
            self.engine.start(order)  # first of all: the rest is done while workers compute
            round = Round(code, self.stop, number, self._terms())
            current = Current(self.engine, self._gather(code), round, order, self._log, outside)
            self._run(current, meanwhile, interrupts)
        except BaseException:
            self._left = None if self._sampled else -outside  # the next round counts its time, too
            self.engine.cancel(number, tuple(range(self.code.n)))
            raise
        estimate = self._seen = current.estimate(scaling)
        self._left = estimate.wall - outside
        if changed is None and not pull and round.state is State.DONE:
            self._holding.learn(estimate.arrivals, current.starts(), estimate.wait)
        self._recorder.add(estimate, current.taken, code)
        return estimate

    def _outside(self) -> float:
        """Seconds since the last gradient was given."""
        left, self._left = self._left, None
        return 0.0 if left is None else max(0.0, self.engine.clock() - left)

    def _run(self, current: Current, meanwhile: Callable[[], None], interrupts: Interrupts) -> None:
        try:
            current.run(interrupts, math.inf if self._sampled else LOOK, meanwhile)
        finally:
            self._learn(current.round)

    def _code_of(self, number: int) -> Code:
        if self._change is None:
            return self.code
        code = self._change(number, self._seen)
        return code_and_stop(require_placed(self.code, code), self.stop)[0]

    def _gather(self, code: Code) -> Gather:
        """What adds up the messages of a code; kept while the code is."""
        if self._gathers is None or self._gathers[0] is not code:
            theirs = self.engine.gather(code) if isinstance(self.engine, Lends) else None
            self._gathers = code, theirs or Gather(code, self.engine.problem.dim, np.dtype(self.engine.problem.dtype))
        return self._gathers[1]

    def _terms(self) -> Terms:
        """What the next round goes by: what was learned from those before it."""
        usual = statistics.median(self._usual) if len(self._usual) >= LEARNED else None
        limit = None if self._patience is None else self._first_limit() if usual is None else self._patience * usual
        remind = None if self._sampled else FIRST_REMIND if usual is None else max(1.0, REMIND * usual)
        lost = tuple(sorted(self._lost.items()))
        suspects = frozenset(self._suspects)
        busy, transfer = self._busy_workers, self.transfer
        return Terms(self._policy, limit, remind, self._sending, lost, suspects, self._eps, busy, transfer)

    def _first_limit(self) -> float | None:
        """Who waits anyway may ask again before the usual time is known: messages may vanish in the first rounds, too."""
        return FIRST_LIMIT if self._policy == "wait" else None

    def _learn(self, round: Round) -> None:
        """Keep what the next round must know: who is lost, who failed, and how long a round takes."""
        self._lost, self._busy_workers = round.lost, () if self._forgets else round.busy
        self._suspects -= set(self.code.messages.worker[round.got].tolist())
        self._suspects |= round.failures.keys()
        if round.state is State.DONE and round.usual is not None:
            self._usual.append(round.usual)

    def note(self, switch: Mapping[str, Any]) -> None:
        """Put a change of code, or what it has gained, into the trace, with the next round."""
        self._recorder.note(switch)

    def close(self) -> None:
        """End the workers and write what is left of the trace and the log."""
        self.engine.close()
        self._recorder.close()
        self._log.close()

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Current:
    """The round that is running: events from the engine to the `Round`, its instructions to the engine, payloads to the sum.

    Workers have their order. outside: seconds between the last round and this one.
    """

    def __init__(
        self,
        engine: Engine,
        gather: Gather,
        round: Round,
        order: Order,
        log: Log,
        outside: float,
    ) -> None:
        self._engine, self._gather, self.round, self._order, self._log = engine, gather, round, order, log
        self._outside, self._senders = outside, round.code.messages.worker
        self.taken: list[Message] = []
        self._until: float | None = None
        self.bytes = 0

    def run(self, interrupts: Interrupts, look: float, meanwhile: Callable[[], None]) -> None:
        """Take events until the round is over. look: seconds between two looks for interrupts. meanwhile: what to do first."""
        self._log.begin(self.round)
        self._follow((), self.round.begin())
        meanwhile()
        while self.round.open:
            incoming = self._engine.next(self._pause(look))
            interrupts.heed()
            if not incoming and not self._due():
                continue
            events = self._sound(incoming) or [Elapsed(self._engine.clock())]
            instructions = self.round.feed(*events)
            self._keep(self.round.taken)
            self._follow(events, instructions)
        self._engine.cancel(self.round.number, tuple(range(self.round.code.n)))

    def _pause(self, look: float) -> float | None:
        """Until when to wait for events."""
        soon = self._engine.clock() + look
        until = soon if self._until is None else min(soon, self._until)
        return until if until < math.inf else None

    def _due(self) -> bool:
        """Whether the round wants to be told that time has passed."""
        return self._until is not None and self._engine.clock() >= self._until

    def _sound(self, incoming: Iterable[Incoming]) -> list[Event | Message]:
        """What the round is told: damaged messages do not count as arrived."""
        number, check, events = self.round.number, self._gather.check, list[Event | Message]()
        for one in incoming:
            if isinstance(one, Message) and one.round == number:
                try:
                    check(one)
                except Invalid:
                    one = Dropped(one.index, one.time, damaged=True)
            events.append(one)
        return events

    def _keep(self, new: list[Message]) -> None:
        """Take the payloads of messages that counted."""
        self.taken += new
        self.bytes += sum(map(len, map(attrgetter("payload"), new)))
        self._gather.add(new)

    def _follow(self, events: Iterable[Event | Message], instructions: tuple[Instruction, ...]) -> None:
        self._log.add(events, instructions)
        failure: Fail | None = None
        for one in instructions:
            if isinstance(one, Until):
                self._until = one.time
            elif isinstance(one, Cancel):
                self._engine.cancel(one.round, one.workers)
            elif isinstance(one, Tell):
                self._tell(one)
            elif isinstance(one, Ask):
                self._engine.start(replace(self._order, workers=one.workers))
            elif isinstance(one, Say):
                log.warning("%s", one.text)
            elif isinstance(one, Fail):
                failure = one
        if failure is not None:
            raise NotRecovered(failure.why) if failure.worker is None else WorkerFailed(failure.worker, failure.details)

    def _tell(self, word: Tell) -> None:
        assert isinstance(self._engine, Tells), "the master has looked at it before the first round"
        self._engine.tell(word)

    # When it is over

    def estimate(self, scaling: Scaling | None = None) -> Estimate:
        """Decode what there is, as the round says. While a device may be at it, the record is written."""
        round, skipped = self.round, self.round.state is State.SKIPPED
        tracks = self._nothing() if skipped else self._gather.finish(round.decoded.weights, scaling)
        done, exact, record = computed(self.taken, round.code), not skipped and round.exact, self._record()
        busy, wait = set(self._senders[round.pending].tolist()), float(round.clock if round.time is None else round.time)
        fine = skipped or self._gather.finite or self._say_it_is_not_finite()
        return Estimate(
            tracks=tracks,
            computed=done,
            exact=exact and fine,
            finite=fine,
            skipped=skipped,
            **record,
            **spent(self.taken, done, wait, self._engine.clock(), self._outside, busy, round.missed, round.noted),
        )

    def _record(self) -> dict[str, Any]:
        """What happened in the round, for its `Estimate`."""
        round = self.round
        used = set(self._senders[round.got].tolist())
        late = set(range(round.code.n)) - used - round.noted.keys() - round.missed
        return {
            "code": round.code.name,
            "round": round.number,
            "step": self._order.step,
            "got": round.got.copy(),
            "arrivals": self._arrivals(),
            "residual": 1.0 if round.state is State.SKIPPED else round.decoded.residual,
            "used": tuple(sorted(used)),
            "late": tuple(sorted(late)),
            "lost": tuple(sorted(round.missed)),
            "messages": int(round.got.sum()),
            "stale": round.late,
            "duplicates": round.duplicates,
            "damaged": round.damaged,
            "bytes": self.bytes,
        }

    def _say_it_is_not_finite(self) -> bool:
        """False. Whose numbers they are is looked for only now: as a rule all are finite."""
        broken = self._gather.broken(self.taken)
        which = f"workers {broken} sent such" if broken else "no message has such, and their sum is too large"
        log.warning(
            "Step %d: the gradient has NaN or infinity: %s. A step with it spoils the parameters: leave it out (finite is "
            "False), clip, or lower the learning rate.",
            self._order.step,
            which,
        )
        return False

    def _arrivals(self) -> NDArray[np.float64]:
        times = np.full(len(self.round.got), np.inf)
        times[self._rows()] = np.fromiter(map(attrgetter("time"), self.taken), np.float64, len(self.taken))
        return times

    def starts(self) -> NDArray[np.float64]:
        """(M,) when the tasks of each message were begun, where it says so; else the start of the round."""
        times = np.zeros(len(self.round.got))
        times[self._rows()] = [one.times[0] if one.times else 0.0 for one in self.taken]
        return times

    def _rows(self) -> NDArray[np.int64]:
        """The rows of the code's table of the messages that were taken."""
        return np.fromiter(map(attrgetter("index"), self.taken), np.int64, len(self.taken))

    def _nothing(self) -> NDArray[Any]:
        return np.zeros((1, self._engine.problem.dim), self._engine.problem.dtype)


def _checked(params: NDArray[Any], engine: Engine, fine: bool | None = None) -> NDArray[Any]:
    problem = engine.problem
    values = params if hasattr(params, "data_ptr") else np.ascontiguousarray(params, dtype=problem.dtype)
    if values.shape != (problem.dim,):
        raise Invalid(f"The problem has parameters of shape ({problem.dim},), but got {values.shape}.")
    _require_finite(finite(values) if fine is None else fine)
    return values


def _meanwhile(finite: Callable[[], bool] | None, more: Callable[[], None] | None) -> None:
    """What is done while workers compute."""
    if finite is not None:
        _require_finite(finite())
    if more is not None:
        more()


def _require_finite(fine: bool) -> None:
    if not fine:
        raise Invalid("The parameters must be finite, but have NaN or infinity. The training has diverged: lower its rate.")
