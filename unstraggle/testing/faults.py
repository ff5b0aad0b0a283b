"""What an engine promises besides right gradients: what it does with orders, cancellations, errors, stops and kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..engines.base import Engine
from ..errors import Invalid
from ..runtime.events import Failed, Joined, Lost
from ..runtime.message import Message
from .trial import FAILS, LATE, LONG, PAUSE, SLOW, TASKS, WORKERS, Trial, require, witness_code
from .watched import BrokenEngine

ATTEMPTS = 3
"""How often a promise is tried that a busy machine may keep too late."""

# What is tried. Each begins a round of its own


def answers(trial: Trial) -> None:
    """Everybody computes each task once, and all messages come."""
    trial.begin()
    trial.wait("a round without faults", trial.all_came)
    counts = [trial.computed(worker) for worker in range(WORKERS)]
    require(counts == [TASKS] * WORKERS, f"workers have {TASKS} tasks each, but computed {counts}.")


def one_code(trial: Trial) -> None:
    """An engine that is open is not opened again."""
    with suppress(Invalid):
        trial.engine.open(witness_code())
        raise BrokenEngine("The engine is broken: it can be opened twice, but serves one code. Raise Invalid.")


def until(trial: Trial) -> None:
    """It comes back when the time has come, and a delay is cut short by the next round."""
    delays = np.zeros(WORKERS * TASKS)
    delays[TASKS : 2 * TASKS] = LONG
    trial.begin(delays=delays)
    trial.wait("the messages that are not delayed", lambda: trial.came(0) and trial.came(2))
    trial.rest(2 * PAUSE)
    early = [one for one in trial.seen if isinstance(one, Message) and one.worker == 1 and one.round == trial.round]
    require(not early, f"a message that is due after {LONG:g} s comes at once.")
    answers(trial)


def repeated(trial: Trial) -> None:
    """A repeated order is for those that it names, and leaves alone what the master may be reading."""
    answers(trial)
    trial.again(1)
    trial.wait("the answer of a worker that was asked again", lambda: trial.came(1, times=2))
    trial.rest(PAUSE)
    counts = [trial.computed(worker) for worker in (0, 2)]
    require(counts == [TASKS, TASKS], f"an order for worker 1 was repeated, but the others computed {counts} tasks in all.")
    trial.unchanged()


def cancelled(trial: Trial) -> None:
    """Workers leave a round between two tasks."""
    for _ in range(ATTEMPTS):
        trial.begin(SLOW)
        trial.wait("the first message of slow workers", lambda: any(isinstance(one, Message) for one in trial.seen))
        trial.engine.cancel(trial.round, tuple(range(WORKERS)))
        trial.rest(TASKS * PAUSE)
        counts = [trial.computed(worker) for worker in range(WORKERS)]
        if max(counts) < TASKS:
            break
    else:
        raise BrokenEngine(
            f"The engine is broken: a round was cancelled after the first message, but workers did {counts} tasks."
        )
    answers(trial)


def error(trial: Trial) -> None:
    """An error of the problem is reported once, and its worker goes on with the next round."""
    trial.begin(FAILS)
    trial.wait("the report of an error", lambda: any(isinstance(one, Failed) for one in trial.seen))
    trial.wait("what the others send beside an error", lambda: trial.came(0) and trial.came(2))
    trial.rest(PAUSE)
    failures = [one for one in trial.seen if isinstance(one, Failed)]
    told = [(one.worker, one.round) for one in failures]
    require(told == [(1, trial.round)], f"worker 1 failed in round {trial.round}, once, but reported were {told}.")
    require("on purpose" in failures[0].details, "the traceback of an error is missing.")
    answers(trial)


def late(trial: Trial) -> None:
    """What comes late says of which round it is, and who is late takes part in the next round."""
    for _ in range(ATTEMPTS):
        trial.begin(LATE)
        trial.wait("the messages of those that are in time", lambda: trial.came(1) and trial.came(2))
        trial.wait("the first task of one that is late", lambda: trial.computed(0) > 0)  # who has not begun sends nothing late
        behind = not trial.came(0)
        trial.begin(cancel=False)
        trial.wait("the round after one with late messages", trial.all_came)
        if behind:
            break


def stopped(trial: Trial) -> None:
    """A worker without a sign of life is lost, and joins when it goes on."""
    pid = trial.engine.pid(1)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        trial.begin()
        trial.wait("the loss of a worker that was stopped", lambda: isinstance(trial.last(1), Lost))
    finally:
        os.kill(pid, signal.SIGCONT)
    _back(trial, 1)
    answers(trial)


def killed(trial: Trial, worker: int = 2) -> None:
    """A worker that was killed is lost; if it may return, it does, and gets its order again."""
    pid = trial.engine.pid(worker)
    assert pid is not None
    trial.begin(SLOW)
    os.kill(pid, signal.SIGKILL)
    trial.wait("the loss of a worker that was killed", lambda: isinstance(trial.last(worker), Lost))
    _back(trial, worker)


def stopped_and_killed(trial: Trial) -> None:
    """The same, for one that counts as lost already."""
    pid = trial.engine.pid(0)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    trial.begin()
    trial.wait("the loss of a worker that was stopped", lambda: isinstance(trial.last(0), Lost))
    known = len(trial.seen)
    os.kill(pid, signal.SIGKILL)
    trial.wait("news of a worker that was stopped, then killed", lambda: _news(trial, 0, known))
    _back(trial, 0)


def _news(trial: Trial, worker: int, known: int) -> bool:
    return any(isinstance(one, Joined) or _gone(one) for one in trial.seen[known:] if getattr(one, "worker", -1) == worker)


def _back(trial: Trial, worker: int) -> None:
    """Wait for a lost worker, if it returns, and for its messages."""
    trial.wait("the return of a worker, or word that it does not", lambda: _settled(trial.last(worker)))
    news = trial.last(worker)
    if isinstance(news, Joined):
        if news.fresh:
            trial.again(worker)
        trial.wait("the messages of a worker that has returned", lambda: trial.came(worker) or _gone(trial.last(worker)))


def _settled(news: Lost | Joined | None) -> bool:
    return isinstance(news, Joined) or _gone(news)


def _gone(news: Any) -> bool:
    return isinstance(news, Lost) and not news.returns


PROMISES = (answers, one_code, until, repeated, cancelled, error, late)
SIGNALS = (stopped, killed, stopped_and_killed)
"""Those that need processes of this machine."""


def check_faults(make: Callable[[Any], Engine], folder: Path, within: float, signals: bool) -> tuple[str, ...]:
    """Try everything on one engine; gives the names of what was tried."""
    trial = Trial(make, folder, within)
    tried = []
    try:
        processes = signals and all(trial.engine.pid(worker) is not None for worker in range(WORKERS))
        for promise in (*PROMISES, *(SIGNALS if processes else ())):
            promise(trial)
            tried.append(promise.__name__)
    finally:
        trial.engine.close()
    try:
        trial.engine.engine.close()
    except Exception as error:
        raise BrokenEngine(f"The engine is broken: the second close raises {error!r}.") from error
    return (*tried, "closed_twice")
