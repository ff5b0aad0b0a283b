"""AdaptiveMaster: a master that learns from its own rounds, and goes on with another code when one is better."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..codes import uncoded
from ..doors import door
from ..engines.base import Engine, Follows
from ..errors import Invalid
from ..runtime.estimate import Estimate
from ..runtime.master import Master
from ..runtime.terms import Transfer
from ..scheme.code import Code
from .decider import WORTH, Decider
from .predict import candidates, simulated
from .seen import seen
from .switch import Switch
from .trial import Trial

log = logging.getLogger("unstraggle")


@door
class AdaptiveMaster:
    """Gradients as from a `Master`, with whichever code is best for the cluster as it is.

    engine(code): a new engine for a code; called again whenever the code changes. The engine before is closed, and its workers
    are taken over where engines can (`engines.Follows`). It begins by waiting for all, learns how long tasks take from its own
    rounds, and plans from what it saw: after 8 rounds, then whenever there are half as many again, and when the cluster has
    changed: rounds that take longer or shorter, or a worker that has become slow or fast. It changes the code only where that
    surely saves `worth` of a round, and has paid for itself if the pattern lasts as long again as it has lasted; and goes back
    where rounds then take longer than before. samples: of a step, which cannot be cut into more pieces. decider: what
    decides in place of all that, such as a `Trial`, with whose code it begins. options: as for `Master`; there is no stop rule,
    for every gradient is exact.

    Each change, and what it gained, is in `switches`, in the log, in the trace, and in `switches` of the next estimate.

    >>> from unstraggle import engines, latency, problems
    >>> slow = latency.Heterogeneous([latency.TwoSpeed(1.0, 1.0, 0.0)] * 3 + [latency.TwoSpeed(4.0, 4.0, 0.0)])
    >>> def engine(code):
    ...     return engines.Virtual(problems.LeastSquares.split(np.eye(64), np.arange(64.0), parts=code.k), slow, rng=0)
    >>> with AdaptiveMaster(4, engine) as master:
    ...     waits = [master.gradient(np.zeros(64)).wait for _ in range(20)]
    >>> master.code.name, waits[0], round(waits[-1], 2)
    ('work_conserving(4, load=4, pieces=4)', 4.0, 1.25)
    """

    def __init__(
        self,
        workers: int,
        engine: Callable[[Code], Engine],
        *,
        samples: float = np.inf,
        worth: float = WORTH,
        decider: Decider | Trial | None = None,
        **options: Any,
    ) -> None:
        if not 0 <= worth < 1:
            raise Invalid(f"An adaptive run needs the least saving worth a change, 0 <= worth < 1, but got worth={worth!r}.")
        self._engine, self._options = engine, options
        self.code, self.switches = uncoded(workers) if decider is None else decider.code, []  # type: Code, list[Switch]
        self._news: list[Switch] = []
        self._next: tuple[Code, Switch] | None = None
        self._rounds = self._step = 0
        self._ended, self._since = time.monotonic(), None  # type: float, float | None
        if decider is None:
            warm_up(workers, samples)
        began = time.monotonic()
        self._master = Master(self.code, engine(self.code), **options)
        started = 0.0 if isinstance(self.engine, Follows) else time.monotonic() - began
        self._decider = decider or Decider(self.code, samples=samples, worth=worth, cost=started)

    @property
    def engine(self) -> Engine:
        """That of the present code."""
        return self._master.engine

    @property
    def transfer(self) -> Transfer:
        """As that of a `Master`."""
        return self._master.transfer

    def room(self) -> Any:
        """As that of a `Master`."""
        self._change()
        return self._master.room()

    def coming(self) -> Any:
        """As that of a `Master`."""
        return self._master.coming()

    def gradient(self, params: Any, step: int | None = None, **more: Any) -> Estimate:
        """As that of a `Master`. A change that was decided after the last round is made now: its gradient has been used."""
        self._change()
        estimate = self._told(self._master.gradient(params, self._rounds if step is None else step, **more))
        self._rounds, self._step = self._rounds + 1, estimate.step + 1
        self._ended = time.monotonic()
        if not estimate.skipped:
            self._decide(estimate)
        return estimate

    def switch(self, code: Code, why: str = "as you say") -> None:
        """Go on with another code, over as many workers, from the next gradient on."""
        if code.n != self.code.n:
            raise Invalid(f"This run has {self.code.n} workers, but {code.name} is for {code.n}. Make another run.")
        self._next = code, replace(self._decider.expect(code, why), step=self._step)

    def _told(self, estimate: Estimate) -> Estimate:
        """With what was decided before it, and the time that a change took, which is part of the step."""
        news, self._news = self._news, []
        since, self._since = self._since, None
        if since is not None and not getattr(self.engine, "sampled", False):
            estimate = estimate.lasting(max(estimate.wall, time.monotonic() - since))
        return replace(estimate, switches=tuple(one.to_dict() for one in news)) if news else estimate

    def _decide(self, estimate: Estimate) -> None:
        began = time.monotonic()
        decision = self._decider.feed(seen(estimate, self.code))
        planning = time.monotonic() - began
        if decision.measured is not None:
            self._say(replace(decision.measured, step=self._step, planning=planning))
        if decision.code is not None and decision.switch is not None:
            self._next = decision.code, replace(decision.switch, step=self._step, planning=planning)

    def _change(self) -> None:
        """Go on with workers of another engine. Rounds and their numbers go on."""
        if self._next is None:
            return
        (code, switch), self._next = self._next, None
        began, self._since = time.monotonic(), self._ended
        engine = self._engine_after(code)
        self.code = code
        with contextlib.ExitStack() as undo:
            undo.callback(engine.close)
            self._master = Master(code, engine, **self._options, first=self._rounds)
            undo.pop_all()
        took = self._decider.cost = time.monotonic() - began
        self._decider.use(code, switch)
        for old in self._news:  # what the closed master had no round for
            self._master.note(old.to_dict())
        self._say(replace(switch, switching=took))

    def _engine_after(self, code: Code) -> Engine:
        """An engine for another code, with the workers of the present one where it can take them over; that one is closed."""
        before = self.engine
        if not isinstance(before, Follows):
            self._master.close()
            return self._engine(code)
        engine = self._engine(code)
        if isinstance(engine, Follows):
            engine.follow(before)
        self._master.close()
        return engine

    def _say(self, switch: Switch) -> None:
        took = f"Planning took {switch.planning:.2g} s, the change {switch.switching:.2g} s."
        log.info("Step %d: %s. %s", switch.step, switch, took)
        self._master.note(switch.to_dict())
        self.switches.append(switch)
        self._news.append(switch)

    def close(self) -> None:
        """End the workers and write what is left of the trace."""
        self._master.close()

    def __enter__(self) -> AdaptiveMaster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def warm_up(workers: int, samples: float) -> None:
    """Plan once for nothing: what is compiled on first use is compiled before the first round, not in the middle of a run."""
    began = time.monotonic()
    even = np.ones((1, workers))
    for code in candidates(even, samples):
        simulated(code, even)
        simulated(code, even, 1.0)
    took = time.monotonic() - began
    if took > 1.0:
        log.info("Compiling what plans are made with took %.1f s, once on this machine.", took)
