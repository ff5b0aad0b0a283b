"""What an engine promises that carries words to workers (`engines.Tells`): none is lost, repeated or mistaken."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import work_conserving
from ..engines.base import Engine, tells
from ..runtime.events import Failed, Finished, Joined, Lost
from ..runtime.instructions import Tell
from ..runtime.message import Message
from ..scheme.code import Code
from ..scheme.handing import table_of
from .trial import FAILS, FILE, PAUSE, SLOW, TASKS, WORKERS, Trial, require
from .watched import BrokenEngine, WatchedTelling

PARTS = WORKERS * TASKS
FAILING = 1
"""The partition whose task fails in a round of the step FAILS."""


@cache
def handing_code() -> Code:
    """Every worker may do every partition, and sends one sum."""
    return work_conserving(WORKERS, load=WORKERS, pieces=TASKS)


@dataclass(frozen=True, eq=False)
class Summands:
    """Gradients whose sum says which partitions are in it, how often, and of which round; a line in a file for each."""

    file: str
    k: int = PARTS
    dim: int = PARTS + 2
    heard: list[bytes] = field(default_factory=list)

    def hear(self, context: bytes) -> None:
        self.heard[:] = [context]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float64)

    def grad(self, params: NDArray[Any], part: int, where: slice = slice(None), step: int = 0) -> NDArray[Any]:
        with open(self.file, "a") as file:
            file.write(f"{part} {params[0]:.0f}\n")
        if step == SLOW:
            time.sleep(PAUSE)
        if step == FAILS and part == FAILING:
            raise ArithmeticError("a task that was handed out fails on purpose")
        answer = np.zeros(self.dim)
        answer[part], answer[-2:] = 1.0, (params[0], int.from_bytes(self.heard[0], "little"))
        return answer[where]


class WordTrial(Trial):
    """An engine whose workers do what they are told. Words are given by partition; tickets count on."""

    dim = PARTS + 2

    def __init__(self, make: Callable[[Any], Engine], folder: Path, within: float) -> None:
        self._tasks, self._tickets, self.asked = table_of(handing_code()).task, 0, dict[int, int]()
        self.reported: list[tuple[int, int, int, int]] = []
        super().__init__(make, folder, within)

    def problem(self) -> Any:
        return Summands(str(self.file))

    def code(self) -> Code:
        return handing_code()

    # What the master does

    def tell(self, worker: int, part: int = -1, *, round: int | None = None, done: int = -1, **word: Any) -> None:
        """A word. part, done: partitions; round: by default this one."""
        assert isinstance(self.engine, WatchedTelling)
        task, result = (int(self._tasks[worker, one]) if one >= 0 else -1 for one in (part, done))
        told = Tell(worker, self.round if round is None else round, task=task, done=result, **word)
        try:
            self.engine.tell(told)
        except BrokenEngine:
            raise
        except Exception as error:
            raise BrokenEngine(f"tell raises {error!r}: words to workers that are lost are lost with them.") from error

    def sum_of(self, worker: int, count: int, epoch: int = 0) -> Counter[int]:
        """Ask for a worker's sum, and give the partitions in it."""
        self._tickets += 1
        self.asked[self._tickets] = worker
        self.tell(worker, ticket=self._tickets, count=count, epoch=epoch)
        self.wait("the sum of a worker that was asked for it", lambda: bool(self._answers() or self._failures()))
        require(not self._failures(), f"worker {worker} cannot give its sum: {self._failures()}")
        return _parts(self._answers()[0])

    def _failures(self) -> list[str]:
        return [one.details for one in self.seen if isinstance(one, Failed)]

    def _answers(self) -> list[Message]:
        return [one for one in self.seen if isinstance(one, Message) and one.ticket == self._tickets]

    # What has happened

    def done(self, worker: int, round: int | None = None) -> list[int]:
        """Partitions that a worker says it has done, in that order, in this round or another."""
        number = self.round if round is None else round
        parts = {int(task): part for part, task in enumerate(self._tasks[worker])}
        return [parts.get(task, -1) for who, task, which, _ in self.reported if (who, which) == (worker, number)]

    def begun(self) -> Counter[int]:
        """Partitions whose tasks were begun in this round."""
        lines = [line.split() for line in self.file.read_text().splitlines()]
        return Counter(int(part) for part, params in lines if int(params) == self.round)

    def _check(self, event: Any, clock: float) -> None:
        super()._check(event, clock)
        if isinstance(event, Finished):
            require(event.round <= self.round, f"a task of round {event.round} is finished in round {self.round}.")
            self.reported.append((event.worker, event.task, event.round, event.epoch))

    def _check_message(self, message: Message) -> None:
        known = message.index == message.worker and self.asked.get(message.ticket) == message.worker
        require(known, f"worker {message.worker} sends message {message.index} for ticket {message.ticket}, unasked.")
        if message.round != self.round:
            return
        numbers = np.frombuffer(bytes(message.payload))
        results = numbers[:PARTS].sum()
        right = len(numbers) == self.dim and (numbers[-2:] == results * self.round).all()
        require(bool(right), f"the sum of worker {message.worker} is not one of round {self.round}.")


def _parts(message: Message) -> Counter[int]:
    numbers = np.frombuffer(bytes(message.payload))
    return Counter({part: int(times) for part, times in enumerate(numbers[:PARTS]) if times})


# What is tried. Each begins a round of its own


def told(trial: WordTrial) -> None:
    """Workers do what they are told, once and in that order, and say so; untold they do nothing."""
    trial.begin()
    for worker, part in ((0, 0), (1, 7), (0, 5)):
        trial.tell(worker, part)
    trial.wait("what workers were told to do", lambda: len(trial.done(0)) >= 2 and len(trial.done(1)) >= 1)
    trial.rest(PAUSE)
    done = [trial.done(worker) for worker in range(WORKERS)]
    require(done == [[0, 5], [7], []], f"workers were told to do [[0, 5], [7], []], but say that they have done {done}.")
    begun = trial.begun()
    require(begun == Counter((0, 5, 7)), f"workers were told to do 0, 5 and 7, once, but began {dict(begun)}.")


def summed(trial: WordTrial) -> None:
    """A sum holds what counts and nothing else; asked again it comes again, and with what was added meanwhile."""
    told(trial)
    trial.tell(0, done=0, counts=True)
    trial.tell(0, done=5, counts=False)
    for _ in range(2):
        found = trial.sum_of(0, count=1)
        require(found == Counter((0,)), f"of a worker's results 0 counts and 5 does not, but its sum holds {dict(found)}.")
    trial.tell(0, 9)
    trial.wait("a task after a sum", lambda: 9 in trial.done(0))
    trial.tell(0, done=9, counts=True)
    found = trial.sum_of(0, count=2)
    require(found == Counter((0, 9)), f"of a worker's results 0 and 9 count, but its sum holds {dict(found)}.")


def out_of_date(trial: WordTrial) -> None:
    """Words of a round that is over are not heeded."""
    told(trial)
    trial.begin()
    trial.tell(0, 2, round=trial.round - 1)
    trial.tell(0, 3)
    trial.wait("a task after a word that came too late", lambda: 3 in trial.done(0))
    trial.rest(PAUSE)
    begun = trial.begun()
    require(begun == Counter((3,)), f"a word of the round before was for 2, one of this for 3, but begun is {dict(begun)}.")


def forgotten(trial: WordTrial) -> None:
    """With a new epoch a worker begins the round anew, and what is said of the one before is not for it."""
    told(trial)
    trial.tell(0, done=0, counts=True)
    trial.tell(0, 2, epoch=1)
    trial.tell(0, 4, epoch=0)
    trial.wait("a task of a new epoch", lambda: 2 in trial.done(0))
    trial.tell(0, done=2, counts=True, epoch=1)
    found, epochs = trial.sum_of(0, count=1, epoch=1), {task: epoch for _, task, _, epoch in trial.reported}
    require(found == Counter((2,)), f"a worker was to begin anew and has done 2 since, but its sum holds {dict(found)}.")
    require(epochs[int(trial._tasks[0, 2])] == 1, "a task of epoch 1 is finished in another.")


def left_behind(trial: WordTrial) -> None:
    """Who is in a task when the round ends says so when it is done, with that round's number, and takes part in the next."""
    sampled = trial.engine.sampled
    trial.begin(SLOW)
    trial.tell(0, 6)
    if not sampled:
        trial.wait("the begin of a slow task", lambda: bool(trial.begun()))
    trial.begin()
    trial.tell(0, 8)
    trial.wait("a task after one of the round before", lambda: 8 in trial.done(0))
    trial.rest(PAUSE)
    before, now = trial.done(0, trial.round - 1), trial.done(0)
    stays = [6] if trial.engine.carry or not sampled else []  # else every round starts with free workers
    require(
        (before, now) == (stays, [8]),
        f"a worker did {stays} in the round before and [8] in this, but says {before} and {now}.",
    )


def failing(trial: WordTrial) -> None:
    """An error in a task that was handed out is reported once, and its worker goes on with the next round."""
    trial.begin(FAILS)
    trial.tell(0, FAILING)
    trial.wait("the report of an error", lambda: any(isinstance(one, Failed) for one in trial.seen))
    trial.rest(PAUSE)
    failures = [(one.worker, one.round) for one in trial.seen if isinstance(one, Failed)]
    require(failures == [(0, trial.round)], f"worker 0 failed in round {trial.round}, once, but reported were {failures}.")
    require(not trial.done(0), "a task that failed counts as done.")
    told(trial)


def lost_words(trial: WordTrial) -> None:
    """Words to a worker that is killed are lost with it; one that returns gets its order again, and does what it is told."""
    pid = trial.engine.pid(2)
    assert pid is not None
    trial.begin()
    os.kill(pid, signal.SIGKILL)
    trial.wait("the loss of a worker that was killed", lambda: isinstance(trial.last(2), Lost))
    trial.tell(2, 8, epoch=1)
    trial.wait("the return of a worker, or word that it does not", lambda: _settled(trial.last(2)))
    if isinstance(trial.last(2), Joined):
        trial.again(2)
        trial.tell(2, 10, epoch=2)
        trial.wait("a task of a worker that has returned", lambda: 10 in trial.done(2))
        trial.tell(2, done=10, counts=True, epoch=2)
        found = trial.sum_of(2, count=1, epoch=2)
        require(found == Counter((10,)), f"a worker that has returned has done 10, but its sum holds {dict(found)}.")


def _settled(news: Lost | Joined | None) -> bool:
    return isinstance(news, Joined) or (isinstance(news, Lost) and not news.returns)


PROMISES = (told, summed, out_of_date, forgotten, left_behind, failing)


def check_words(make: Callable[[Any], Engine], folder: Path, within: float, signals: bool) -> tuple[str, ...]:
    """Try all on one engine, if it carries words; gives the names of what was tried."""
    (folder / "words").mkdir()
    engine = make(Summands(str(folder / "words" / FILE)))
    if not tells(engine):
        return ()
    trial, tried = WordTrial(lambda _: engine, folder / "words", within), list[str]()
    try:
        killing = (lost_words,) if signals and trial.engine.pid(2) is not None else ()
        for promise in (*PROMISES, *killing):
            promise(trial)
            tried.append(promise.__name__)
    finally:
        trial.engine.close()
    return tuple(tried)
