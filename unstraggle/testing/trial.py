"""A trial of an engine: a problem that bears witness, and a look at whatever the engine reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.base import Engine
from ..runtime import frame
from ..runtime.events import Announced, Dropped, Failed, Finished, Joined, Lost
from ..runtime.message import Incoming, Message, Order
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from .watched import BrokenEngine, watched

WORKERS, TASKS, DIM = 3, 4, 8
QUICK, SLOW, LATE, FAILS = 0, 1, 2, 3
"""Steps: what the witness does in a round. LATE: the tasks of worker 0 take long. FAILS: the second task of worker 1 does."""
PAUSE = 0.25
"""Seconds of a slow task."""
LONG = 3600.0
"""A delay that is not waited for."""
FILE = "computed"
"""Where the witness writes."""
GRACE = 10.0
"""Seconds by which a busy machine may be late."""


def witness_code() -> Code:
    """Every worker has partitions of its own, and sends each partial gradient by itself: message m is partition m."""
    worker, all_ = np.repeat(np.arange(WORKERS), TASKS), np.arange(WORKERS * TASKS)
    messages = Messages(worker, np.tile(np.arange(TASKS) + 1, WORKERS), np.eye(len(all_)))
    return Code("witness", WORKERS, Tasks(worker, all_), messages, Span(messages.coef))


@dataclass(frozen=True, eq=False)
class Witness:
    """Gradients that say which round and partition they are of, and are never the same twice; a line in a file for each."""

    file: str
    k: int = WORKERS * TASKS
    dim: int = DIM
    heard: list[bytes] = field(default_factory=list)

    def hear(self, context: bytes) -> None:
        self.heard[:] = [context]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        with open(self.file, "a") as file:
            file.write(f"{part} {params[0]:.0f}\n")
        if step == SLOW or (step == LATE and part < TASKS):
            time.sleep(PAUSE)
        if step == FAILS and part == TASKS + 1:
            raise ArithmeticError("the witness fails on purpose")
        answer = np.full(self.dim, float(time.monotonic_ns()))
        answer[:4] = params[0], part, params[-1], int.from_bytes(self.heard[0], "little")
        return answer[where]


class Trial:
    """An engine with the witness. Whatever it reports is checked against what was computed."""

    dim, pull = DIM, False

    def __init__(self, make: Callable[[Any], Engine], folder: Path, within: float) -> None:
        self.file, self.within, self.round = folder / FILE, within, -1
        self.file.touch()
        self.engine = watched(make(self.problem()), within)
        self.engine.open(self.code())
        self.order = Order(-1, 0, np.zeros(self.dim))
        self.seen: list[Incoming] = []
        self._kept: list[tuple[Message, bytes]] = []

    def problem(self) -> Any:
        return Witness(str(self.file))

    def code(self) -> Code:
        return witness_code()

    # What the master does

    def begin(self, step: int = QUICK, delays: Any = None, cancel: bool = True) -> None:
        """The next round. The parameters change as soon as `start` has returned."""
        self.unchanged()
        if cancel and self.round >= 0:
            self.engine.cancel(self.round, tuple(range(WORKERS)))
        self.round += 1
        self.seen, self._kept = [], []
        params, began = np.full(self.dim, float(self.round)), time.monotonic()
        context = self.round.to_bytes(1 + self.round * 1000, "little")
        self.order = Order(self.round, step, params, None, delays, context=context, pull=self.pull)
        self.engine.start(self.order)
        params[:] = -1.0
        clock, passed = self.engine.clock(), time.monotonic() - began
        require(0 <= clock <= passed + 0.1, f"a round has just started, but its clock shows {clock:.3g} s.")

    def again(self, *workers: int) -> None:
        """The same order, for some."""
        self.engine.start(replace(self.order, params=np.full(self.dim, float(self.round)), workers=workers))

    def next(self, seconds: float) -> list[Incoming]:
        """What comes in a time of the engine's clock."""
        until = self.engine.clock() + seconds
        try:
            events = self.engine.next(until)
        except BrokenEngine:
            raise
        except Exception as error:
            raise BrokenEngine(f"next raises {error!r}: what happens to workers is reported by events.") from error
        clock = self.engine.clock()
        require(clock <= until + GRACE, f"next({until:.3g}) waits until {clock:.3g} s.")
        require(bool(events) or clock >= until, f"next({until:.3g}) brings nothing, and the time has not come: {clock:.3g} s.")
        for event in events:
            self._check(event, clock)
        self.seen += events
        return events

    def rest(self, seconds: float) -> None:
        """Take what comes until that time has passed."""
        end = self.engine.clock() + seconds
        while (left := end - self.engine.clock()) > 0:
            self.next(left)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Take what comes until it has happened."""
        limit, end = time.monotonic() + self.within, self.engine.clock() + LONG / 2  # sampled clocks run ahead
        while not condition():
            late = time.monotonic() > limit or self.engine.clock() > end
            require(not late, f"{what} did not happen within {self.within:g} s.")
            self.next(PAUSE)

    # What has happened

    def came(self, worker: int, times: int = 1) -> bool:
        """Whether all messages of a worker have come in this round, so many times."""
        count = Counter(one.index for one in self.seen if isinstance(one, Message) and one.round == self.round)
        return all(count[index] >= times for index in range(worker * TASKS, (worker + 1) * TASKS))

    def all_came(self) -> bool:
        return all(map(self.came, range(WORKERS)))

    def last(self, worker: int) -> Lost | Joined | None:
        """The newest news of a worker in this round."""
        news = [one for one in self.seen if isinstance(one, Lost | Joined) and one.worker == worker]
        return news[-1] if news else None

    def computed(self, worker: int) -> int:
        """How many tasks of this round a worker has begun."""
        lines = [line.split() for line in self.file.read_text().splitlines()]
        return sum(int(part) // TASKS == worker and int(params) == self.round for part, params in lines)

    def unchanged(self) -> None:
        """Payloads stay as they are until the next round starts."""
        for message, data in self._kept:
            require(bytes(message.payload) == data, f"the payload of message {message.index} changed while it could be read.")

    def _check(self, event: Incoming, clock: float) -> None:
        require(-1e-6 <= event.time <= clock + 1e-6, f"{type(event).__name__} is dated {event.time:.6g} s, at {clock:.6g} s.")
        if isinstance(event, Message):
            self._check_message(event)
        elif not isinstance(event, Dropped | Lost | Joined | Failed | Finished | (Announced if self.pull else Finished)):
            raise BrokenEngine(f"next gives {event!r}, which is no event.")

    def _check_message(self, message: Message) -> None:
        known = 0 <= message.index < WORKERS * TASKS and message.worker == message.index // TASKS
        require(known, f"message {message.index} comes as one of worker {message.worker}.")
        require(message.round <= self.round, f"a message of round {message.round} comes in round {self.round}.")
        if message.round != self.round:
            return
        require(not message.payload.flags.writeable, "a payload can be written to.")
        numbers = np.frombuffer(bytes(message.payload))
        right = len(numbers) == DIM and numbers[:4].tolist() == [self.round, message.index, self.round, self.round]
        held = f"message {message.index} of round {self.round} holds {numbers[:4].tolist()}"
        require(right, f"{held}: another one's payload, or another round's context.")
        if message.checksum is not None:
            require(frame.checksum(message.payload) == message.checksum, "a checksum is not that of its payload.")
        self._kept.append((message, bytes(message.payload)))


def require(promise: bool, broken: str) -> None:
    if not promise:
        raise BrokenEngine(f"The engine is broken: {broken}")
