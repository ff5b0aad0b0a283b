"""The way of the messages to the master."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from ..scheme.arrivals import Resumes, Way, delivered, task_seconds
from ..scheme.code import Code
from .base import Times, literal


@door
@dataclass(frozen=True, repr=False)
class Network:
    """A latency model plus the way of the messages to the master, over one link per worker and over the master's own.

    dim: coordinates of the gradient. bandwidth: bytes per second of a worker's link, for all or one each; its messages queue
    there. master: bytes per second of the master's link, which all messages share, in the order in which they come. round_trip:
    seconds for an order out and a message back, once a round; where tasks are handed out, for every note and the word that
    answers it, and again when messages are asked for (sums, or `transfer="pull"`). Links are free when a round begins: messages
    of the round before that have not left yet are dropped. What the master sends, parameters, is not counted.

    >>> from unstraggle.latency import TwoSpeed
    >>> from unstraggle.codes import uncoded
    >>> slow = Network(TwoSpeed(1, 1, 0), dim=1000, master=4000.0)  # a gradient a second
    >>> slow.sample(uncoded(3), 1, np.random.default_rng(0)).tolist()
    [[2.0, 3.0, 4.0]]
    """

    base: Any
    dim: int
    bandwidth: float | tuple[float, ...] = np.inf
    round_trip: float = 0.0
    master: float = np.inf

    def __post_init__(self) -> None:
        rates = np.atleast_1d(np.asarray(self.bandwidth, dtype=float))
        if np.ndim(self.bandwidth):
            object.__setattr__(self, "bandwidth", tuple(rates.tolist()))
        if not (rates > 0).all() or not self.master > 0 or self.dim < 1 or not self.round_trip >= 0:
            raise Invalid(
                f"Network needs dim >= 1, bandwidth > 0 and master > 0 bytes/s and round_trip >= 0 s, but got dim={self.dim}, "
                f"bandwidth={self.bandwidth}, master={self.master}, round_trip={self.round_trip}."
            )

    def __repr__(self) -> str:
        """The expression that makes the model."""
        given = [each for each in fields(self) if each.default is MISSING or getattr(self, each.name) != each.default]
        return f"Network({', '.join(f'{each.name}={_shown(getattr(self, each.name))}' for each in given)})"

    def seconds(self, code: Code) -> Times:
        """(M,) time that each message occupies its worker's link."""
        rates = np.asarray(self.bandwidth, dtype=float)
        if rates.ndim and len(rates) != code.n:
            raise Invalid(f"Network has bandwidths for {len(rates)} workers, but the code has {code.n}.")
        return np.asarray(self._bytes(code) / np.broadcast_to(rates, code.n)[code.messages.worker])

    def _bytes(self, code: Code) -> Times:
        return np.asarray(np.asarray(code.blocks)[code.messages.block] * self.dim * code.messages.bits / 8)

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        return self._links(code, self.base.sample(code, rounds, rng))

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, T) seconds that tasks take: the way of the messages does not make them longer."""
        return task_seconds(self.base, code, rounds, rng)

    def deliver(self, code: Code, ready: Times) -> Times:
        """(rounds, M) when messages are with the master that are ready to leave at these times."""
        return self._links(code, delivered(self.base, code, ready))

    def way(self, code: Code) -> Way:
        """Of words, notes and messages on request: half a round trip each way."""
        return Way(self.round_trip / 2, self.seconds(code), self._bytes(code) / self.master)

    def from_round(self, first: int) -> Network:
        """The same network, where the model behind it has rounds with numbers beginning with a later one."""
        return replace(self, base=self.base.from_round(first)) if isinstance(self.base, Resumes) else self

    def _links(self, code: Code, ready: Times) -> Times:
        times = self._own_link(code, ready) if np.isfinite(self.bandwidth).any() else np.asarray(ready)
        if np.isfinite(self.master):
            times = in_turn(times, self._bytes(code) / self.master)
        return np.asarray(times + self.round_trip)

    def _own_link(self, code: Code, ready: Times) -> Times:
        times = np.array(ready)  # a copy: a model may hand out an array that it keeps
        seconds, free = self.seconds(code), np.zeros((len(times), code.n))
        for which in _by_place(code):
            workers = code.messages.worker[which]
            free[:, workers] = np.maximum(times[:, which], free[:, workers]) + seconds[which]
            times[:, which] = free[:, workers]
        return times


@lru_cache(maxsize=64)
def _by_place(code: Code) -> list[NDArray[np.int64]]:
    """The first messages of all workers, the second ones, and so on, each in the order in which they are ready."""
    order = np.lexsort((code.ready(), code.messages.worker))
    worker = code.messages.worker[order]
    place = np.arange(len(order)) - np.searchsorted(worker, worker)
    return [order[place == each] for each in range(int(place.max(initial=-1)) + 1)]


def in_turn(times: Times, seconds: Times) -> Times:
    """(R, M) when messages are through a link that takes one after the other, in the order of their times (R, M).

    seconds: (M,) that each occupies the link.

    >>> in_turn(np.array([[1.0, 5.0, 1.5]]), np.array([1.0, 1.0, 1.0])).tolist()
    [[2.0, 6.0, 3.0]]
    """
    order = np.argsort(times, axis=1, kind="stable")
    come, took = np.take_along_axis(times, order, axis=1), seconds[order]
    before = np.cumsum(took, axis=1) - took  # if the link is busy without a break; else it waits for whoever comes last
    through = np.maximum.accumulate(come - before, axis=1) + before + took
    out = np.empty(times.shape)
    np.put_along_axis(out, order, through, axis=1)
    return out


def _shown(value: Any) -> str:
    """A field as text that can be parsed again."""
    return literal(value) if isinstance(value, int | float | np.number) else repr(value)
