"""Master: Code + Engine + Stop -> Estimate. What goes on from round to round; one that is running is a `Current`."""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..engines.base import Engine, Lends, Sampled, crowded, require_keeps, require_tells
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.noise import require_digits
from ..scheme.placement import Change, require_placed
from ..scheme.recovery import Sending
from ..scheme.stop import Planned, Stop, code_and_stop
from .current import Current
from .estimate import Estimate
from .gather import Gather, Scaling
from .holding import Holding
from .interrupts import LOOK, Interrupts
from .log import Log
from .message import Order
from .recorder import Recorder
from .round import Round
from .states import Shortfall, State
from .sums import Pass, finite
from .terms import Terms, Transfer, require_transfer

Finite = bool | Pass | Callable[[], bool] | None
"""Whether parameters are finite: known, or to be asked (where a pass still writes them, before workers have their order), or
nobody has looked."""
Todo = Callable[[], None]
"""What is to be done at some time."""
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


def _nothing() -> None:
    """Nothing is to be done."""


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
        self._lends = engine if isinstance(engine, Lends) else None  # once: to ask takes longer than to lend
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
        self._closed = False
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
        meanwhile: Callable[[], None] = _nothing,
        finite: Finite = None,
    ) -> Estimate:
        """The gradient at params (dim,). step: seeds what the problem draws, by default the number of the round.

        context: what else workers must know in this round, for problems that listen (`problems.Listens`). scaling: what the
        gradient is multiplied by while messages are added up, so that nobody passes over it for that alone. meanwhile: called
        once workers have their order, for what can be done before they answer; where they leave no processor for that, while
        the last messages are added up. finite: whether the parameters are, where that is seen while they are written; or who is
        to be asked once workers have their order, since a device may still look.
        """
        if self._closed:
            raise Invalid("This master was closed, and its workers have ended. Make another one, with an engine of its own.")
        if not self._busy.acquire(blocking=False):
            raise Invalid("A master computes one gradient at a time, but another thread is in one. Use one master per thread.")
        try:
            first, beside = (_nothing, meanwhile) if crowded(self.engine) else (meanwhile, _nothing)
            with Interrupts() as interrupts:
                known = True if callable(finite) or isinstance(finite, Pass) else finite
                order = self._order(_checked(params, self.engine, known), step, delays, context)
                outside = self._outside()
                current = self._round(order, outside, finite, first, beside, interrupts)
                current.settle(scaling)
            return self._estimate(current, order, outside)
        finally:
            self._busy.release()

    def room(self) -> Any:
        """(dim,) memory for the parameters of the next round, to be written and given to `gradient`: that from which workers
        read, where the engine lends it, so that nothing is copied."""
        lent = None if self._lends is None else self._lends.lend(self._count)
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

    def _round(
        self, order: Order, outside: float, finite: Finite, first: Todo, beside: Todo, interrupts: Interrupts
    ) -> Current:
        """A round, from its order to its end. first: what to do while workers compute; beside: while it is added up."""
        self._gather(order.code or self.code).clear()
        prepared = None
        if isinstance(finite, Pass):  # another thread still writes what workers read
            prepared = self._current(order, outside, beside)
            _require_finite(finite.fine())
        try:
            self.engine.start(order)  # the rest is done while workers compute
            current = prepared or self._current(order, outside, beside)
            self._run(current, partial(_meanwhile, None if prepared else finite, first), interrupts)
        except BaseException:
            self._left = None if self._sampled else -outside  # the next round counts its time, too
            self.engine.cancel(order.round, tuple(range(self.code.n)))
            raise
        return current

    def _current(self, order: Order, outside: float, beside: Todo) -> Current:
        """A round that nobody knows of yet."""
        code = order.code or self.code
        round = Round(code, self.stop, order.round, self._terms())
        return Current(self.engine, self._gather(code), round, order, self._log, outside, beside)

    def _estimate(self, current: Current, order: Order, outside: float) -> Estimate:
        """What came of a round."""
        estimate = self._seen = current.estimate()
        self._left = estimate.wall - outside
        if self._holding.after and order.code is None and not order.pull and current.round.state is State.DONE:
            self._holding.learn(estimate.arrivals, current.starts(), estimate.wait)
        self._recorder.add(estimate, current.taken, order.code or self.code)
        return estimate

    def _outside(self) -> float:
        """Seconds since the last gradient was given."""
        left, self._left = self._left, None
        return 0.0 if left is None else max(0.0, self.engine.clock() - left)

    def _run(self, current: Current, meanwhile: Todo, interrupts: Interrupts) -> None:
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
            theirs = None if self._lends is None else self._lends.gather(code)
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
        if self._suspects or round.failures:
            self._suspects -= set(self.code.messages.worker[round.got].tolist())
            self._suspects |= round.failures.keys()
        if round.state is State.DONE and round.usual is not None:
            self._usual.append(round.usual)

    def note(self, switch: Mapping[str, Any]) -> None:
        """Put a change of code, or what it has gained, into the trace, with the next round."""
        self._recorder.note(switch)

    def close(self) -> None:
        """End the workers and write what is left of the trace and the log. May be called twice."""
        self._closed = True
        self.engine.close()
        self._recorder.close()
        self._log.close()

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _checked(params: NDArray[Any], engine: Engine, fine: bool | None = None) -> NDArray[Any]:
    problem = engine.problem
    values = params if hasattr(params, "data_ptr") else np.ascontiguousarray(params, dtype=problem.dtype)
    if values.shape != (problem.dim,):
        raise Invalid(f"The problem has parameters of shape ({problem.dim},), but got {values.shape}.")
    _require_finite(finite(values) if fine is None else fine)
    return values


def _meanwhile(finite: Finite, more: Todo) -> None:
    """What is done while workers compute."""
    if callable(finite):
        _require_finite(finite())
    more()


def _require_finite(fine: bool) -> None:
    if not fine:
        raise Invalid("The parameters must be finite, but have NaN or infinity. The training has diverged: lower its rate.")
