"""Latency: the role of a model that says when messages arrive, and what is asked of its times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import Invalid
from .code import Code, Messages
from .decoders import Span

Times = NDArray[np.float64]


@runtime_checkable
class Latency(Protocol):
    """A sampler of arrival times. Rounds are drawn one after the other, so that two codes with equal n and seed share draws.

    `sample` is all that a model needs. What else it may know makes simulations faster and planners exact: `Speeds`, `Resumes`,
    `Durations`, `Delivers`, `Survival` and `OrderStatistics`, which are recognised by their methods.
    """

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, M) times at which the messages of the code reach the master; infinite for never."""
        ...


@runtime_checkable
class Speeds(Protocol):
    """A latency model in which a worker may have one speed per round; the simulator then need not write out every arrival."""

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times | None:
        """(rounds, n) seconds that a worker takes for a unit of work, or None where its tasks differ."""
        ...


@runtime_checkable
class Resumes(Protocol):
    """A latency model whose rounds have numbers, such as a replayed trace: draws in chunks go on where the one before ended."""

    def from_round(self, first: int) -> Latency:
        """The same rounds, beginning with a later one."""
        ...


@runtime_checkable
class Durations(Protocol):
    """A latency model that knows how long each task takes, which says what a worker has left of it when a round ends."""

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, T) seconds that the tasks of the code take once they are begun; infinite for never."""
        ...


@runtime_checkable
class Delivers(Protocol):
    """A latency model in which messages have a way to go, such as a network."""

    def deliver(self, code: Code, ready: Times) -> Times:
        """(rounds, M) times at which messages are ready to leave, to times at which they are with the master."""
        ...


@dataclass(frozen=True, eq=False)
class Way:
    """What words and messages cost where messages are sent on request: sums of tasks that are handed out, or `transfer="pull"`.

    word: seconds of a word to a worker, or of a note back. link, master: (M,) seconds that a message occupies the link of its
    worker, and that of the master.
    """

    word: float
    link: Times
    master: Times


@runtime_checkable
class Connects(Protocol):
    """A latency model with a network around another one, which says how long tasks take."""

    base: Any

    def way(self, code: Code) -> Way:
        """Of words, notes and messages on request."""
        ...


@runtime_checkable
class Survival(Protocol):
    """A latency model that knows how probable it is to be late; `plan.deadline` needs it."""

    def survival(self, work: Any, deadline: Any) -> Times:
        """P(a worker takes longer than `deadline` for `work` units)."""
        ...


@runtime_checkable
class OrderStatistics(Protocol):
    """A latency model that knows the mean time of the q-th fastest worker; `plan.block_sizes` needs it."""

    def order_statistics(self, n: int) -> Times:
        """(n,) mean of the q-th smallest of n times of a unit of work."""
        ...


def checked(times: Times, source: object) -> Times:
    """Sampled times, refused if any is negative or not a number."""
    if times.size and not times.min() >= 0:
        raise Invalid(
            f"Latency models must give times >= 0, but {source} gave {times.min()}. Check its parameters or its trace."
        )
    return times


def task_seconds(model: Any, code: Code, rounds: int, rng: np.random.Generator) -> Times:
    """(rounds, T) seconds that each task takes: what the model says, or the time between messages if every task sent one."""
    if isinstance(model, Durations):
        return checked(model.durations(code, rounds, rng), model)
    finish: Times = checked(model.sample(sending_every_task(code), rounds, rng), model)
    before = np.where(code.tasks.position > 0, finish[:, _previous(code)], 0.0)
    lasted = np.subtract(finish, before, out=np.full(finish.shape, np.inf), where=np.isfinite(finish))
    if (lasted < 0).any():
        raise Invalid(
            f"Carry-over needs to know how long tasks take, but under {model} a task ends before the one before it. Give the "
            "model durations(code, rounds, rng), (rounds, T) seconds of each task; see latency.Durations."
        )
    return np.asarray(lasted)


def delivered(model: Any, code: Code, ready: Times) -> Times:
    """(rounds, M) times at which messages are with the master that are ready to leave at these times."""
    kind: Any = type(model)
    if not _delivers(kind):
        return ready
    return checked(model.deliver(code, ready), model)


def computing(model: Any) -> Any:
    """The model of how long tasks take, without the network around it."""
    return computing(model.base) if isinstance(model, Connects) else model


def way_of(model: Any, code: Code) -> Way:
    """The way of words and messages under a model; without a network they take no time."""
    return model.way(code) if isinstance(model, Connects) else no_way(code)


def no_way(code: Code) -> Way:
    """Words and messages that take no time."""
    return Way(0.0, np.zeros(len(code.messages)), np.zeros(len(code.messages)))


def notes(model: Any, code: Code, rounds: int, rng: np.random.Generator) -> Times:
    """(rounds, M) times at which notes that messages are ready are with the master (`transfer="pull"`)."""
    if isinstance(model, Connects):
        return notes(model.base, code, rounds, rng) + 2 * model.way(code).word
    return checked(require_no_way(model, code).sample(code, rounds, rng), model)


def noted(model: Any, code: Code, ready: Times) -> Times:
    """The same of messages that are ready at these times (rounds, M)."""
    if isinstance(model, Connects):
        return noted(model.base, code, ready) + 2 * model.way(code).word
    require_no_way(model, code)
    return ready


def require_no_way(model: Any, code: Code) -> Any:
    """Refuse a network of one's own that does not tell the way of a note from that of a message."""
    ready: Times = np.zeros((1, len(code.messages)))
    if delivered(model, code, ready) is not ready:  # models around one without a network hand on what they are given
        raise Invalid(
            f'transfer="pull" needs to know what a note costs, and what a message, but {model} only knows the latter. Use '
            'latency.Network, or transfer="push".'
        )
    return model


@lru_cache(maxsize=64)
def _delivers(kind: type) -> bool:
    """Asked in every round of a chain, which is slow for protocols."""
    return issubclass(kind, Delivers)


@lru_cache(maxsize=64)
def sending_every_task(code: Code) -> Code:
    """The same tasks, with a message after each of them, in their order."""
    tasks, count = code.tasks, len(code.tasks)
    coef = csr_array((np.ones(count), (np.arange(count), tasks.part)), shape=(count, code.k))
    messages = Messages(tasks.worker, tasks.position + 1, coef, tasks.block)
    return Code(f"tasks of {code.name}", code.n, tasks, messages, Span(coef), code.blocks)


@lru_cache(maxsize=64)
def _previous(code: Code) -> NDArray[np.int64]:
    """(T,) the task before each one on its worker; any where there is none."""
    queues, tasks = code.tasks.queues, code.tasks
    return np.asarray(queues[tasks.worker, np.maximum(tasks.position - 1, 0)])
