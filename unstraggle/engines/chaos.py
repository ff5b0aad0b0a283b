"""Chaos: any engine, made unreliable on purpose. For tests, rehearsals and experiments with stragglers."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import os
import signal
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from ..runtime import frame
from ..runtime.events import Announced
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Message, Order
from ..scheme.arrivals import Latency, Resumes, checked
from ..scheme.code import Code
from .base import Engine, Lends, Processes, keeps, require_tells
from .wrapper import Wrapper


@door
class Chaos(Wrapper):
    """Wraps an engine. All probabilities are 0 unless given; what happens is drawn from `rng`.

    latency: a model or trace; a message may not leave its worker before the drawn time, and waits are cut short when the round
    ends. drop: a message vanishes. duplicate: it comes twice. corrupt: one of its bits is flipped, or its end is cut off.
    hold: it comes up to `hold_seconds` late, after others. kill, pause: a random worker gets SIGKILL, or SIGSTOP for
    `pause_seconds`, within `within` seconds of the start of a round; needs workers that are processes of this machine, others
    are left alone.

    >>> from unstraggle import engines, latency, problems
    >>> problem = problems.LeastSquares.split(np.eye(4), np.arange(4.0), parts=4)
    >>> engine = Chaos(engines.Virtual(problem, latency.ShiftedExponential(rate=1.0), rng=0), duplicate=0.5, rng=1)
    """

    def __init__(
        self,
        engine: Engine,
        *,
        latency: Latency | None = None,
        drop: float = 0.0,
        duplicate: float = 0.0,
        corrupt: float = 0.0,
        hold: float = 0.0,
        hold_seconds: float = 0.01,
        kill: float = 0.0,
        pause: float = 0.0,
        pause_seconds: float = 1.0,
        within: float = 0.01,
        rng: Seed = None,
    ) -> None:
        chances = {"drop": drop, "duplicate": duplicate, "corrupt": corrupt, "hold": hold, "kill": kill, "pause": pause}
        for name, value in chances.items():
            if not 0 <= value <= 1:
                raise Invalid(f"Chaos needs a probability {name} between 0 and 1, but got {value}.")
        if (kill or pause) and not isinstance(engine, Processes):
            raise Invalid(f"Chaos can kill and pause only processes, which {type(engine).__name__} does not have. Use Local.")
        super().__init__(engine)
        self._chances, self._latency = chances, latency
        self._hold_seconds, self._pause_seconds, self._within = hold_seconds, pause_seconds, within
        self._draws, self._events = generator(rng).spawn(2)
        self._held: list[tuple[float, int, Incoming]] = []
        self._due: list[tuple[float, int, int, int]] = []
        self._tie, self._round = count(), -1
        self.delays: NDArray[np.float64] | None = None

    @property
    def keeps(self) -> bool:
        """Whether workers of the engine keep messages until they are asked for."""
        return keeps(self.engine)

    def open(self, code: Code) -> None:
        self._code = code
        require_tells(self.engine, code)
        self.engine.open(code)

    def start(self, order: Order) -> None:
        """Pass the order on, with drawn delays; messages held back from the last round are released into this one."""
        if order.round != self._round:
            self._round = order.round
            self._held = [(0.0, next(self._tie), incoming) for _, _, incoming in self._held]
            elapsed = self.engine.clock()
            self._due = [(max(0.0, when - elapsed), tie, worker, number) for when, tie, worker, number in self._due]
            self.delays = self._draw(order.round)
            self._plan_signals()
        if self.delays is not None:
            order = dataclasses.replace(order, delays=self.delays)
        self.engine.start(order)

    def lend(self, round: int) -> Any:
        return self.engine.lend(round) if isinstance(self.engine, Lends) else None

    def gather(self, code: Code) -> Any:
        return self.engine.gather(code) if isinstance(self.engine, Lends) else None

    def next(self, until: float | None) -> list[Incoming]:
        while True:
            stops = [until, self._held[0][0] if self._held else None, self._due[0][0] if self._due else None]
            incoming = self.engine.next(min((stop for stop in stops if stop is not None), default=None))
            self._send_signals()
            events = [out for one in incoming for out in self._mangled(one)] + self._released()
            if events or (until is not None and self.clock() >= until):
                return events

    def tell(self, word: Tell) -> None:
        self.engine.tell(word)  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the workers; those that are paused go on first."""
        self._due = [due for due in self._due if due[3] == signal.SIGCONT]
        self._send_signals(everything=True)
        super().close()

    def _draw(self, round: int) -> NDArray[np.float64] | None:
        if self._latency is None:
            return None
        model: Any = self._latency
        if round and isinstance(model, Resumes):
            model = model.from_round(round)
        return np.asarray(checked(model.sample(self._code, 1, self._draws), model)[0])

    def _mangled(self, incoming: Incoming) -> list[Incoming]:
        """What becomes of a message, or of a note that announces one. Other news of workers are left alone."""
        if not isinstance(incoming, Announced) and not (isinstance(incoming, Message) and len(incoming.payload)):
            return [incoming]
        chance = dict(zip(self._chances, self._events.random(len(self._chances)) < list(self._chances.values()), strict=True))
        if chance["drop"]:
            return []
        if chance["corrupt"] and isinstance(incoming, Message):
            if incoming.checksum is None:  # a channel that damages messages would come with checksums
                incoming = dataclasses.replace(incoming, checksum=frame.checksum(incoming.payload))
            incoming = dataclasses.replace(incoming, payload=self._damaged(incoming.payload))
        copies: list[Incoming] = [incoming] * (2 if chance["duplicate"] else 1)
        if not chance["hold"]:
            return copies
        late = self.clock() + self._hold_seconds * float(self._events.random())
        for copy in copies:
            heapq.heappush(self._held, (late, next(self._tie), copy))
        return []

    def _damaged(self, payload: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if self._events.random() < 0.2:
            return payload[: len(payload) // 2]
        copy = payload.copy()
        copy[self._events.integers(len(copy))] ^= np.uint8(1 << self._events.integers(8))
        return copy

    def _released(self) -> list[Incoming]:
        free = []
        while self._held and self._held[0][0] <= self.clock():
            _, _, incoming = heapq.heappop(self._held)
            free.append(dataclasses.replace(incoming, time=self.clock()))
        return free

    def _plan_signals(self) -> None:
        for name, number in (("kill", signal.SIGKILL), ("pause", signal.SIGSTOP)):
            if self._events.random() < self._chances[name]:
                worker, when = int(self._events.integers(self._code.n)), self._within * float(self._events.random())
                heapq.heappush(self._due, (when, next(self._tie), worker, number))
                if number == signal.SIGSTOP:
                    heapq.heappush(self._due, (when + self._pause_seconds, next(self._tie), worker, signal.SIGCONT))

    def _send_signals(self, everything: bool = False) -> None:
        while self._due and (everything or self._due[0][0] <= self.clock()):
            _, _, worker, number = heapq.heappop(self._due)
            self._signal(worker, number)

    def _signal(self, worker: int, number: int) -> None:
        """Signal a worker's process, by a descriptor: a process that got its number meanwhile is none of ours."""
        pid = self.pid(worker)
        if pid is None or pid <= 1:
            return
        with contextlib.suppress(ProcessLookupError):
            if not hasattr(os, "pidfd_open"):
                os.kill(pid, number)
                return
            process = os.pidfd_open(pid)
            try:
                if self.pid(worker) == pid:
                    signal.pidfd_send_signal(process, number)
            finally:
                os.close(process)
