"""Common random numbers for planners: when the workers finish their tasks, the same for every design that is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import Invalid
from ..latency.base import Family
from ..scheme.arrivals import Delivers, Latency, Resumes, Speeds, checked, task_seconds
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import Span
from ..study.carry import SEGMENT, WARM, EqualTasks, OwnTimes, Work, chained

CHUNK_BYTES = 1 << 24
"""Memory for the arrival times of the rounds that are looked at together."""

KEPT_BYTES = 1 << 27
"""Task times that take more memory than this are drawn again instead of kept."""

Times = NDArray[np.float64]

Clock = Callable[[Times], Times]
"""From arrivals (r, n, steps) to the ends (r,) of the rounds."""

LANES, SHORTEST = 32, 8
"""Few rounds that follow one another are cut into so many segments side by side, of at least so many rounds."""


class Draws:
    """Rounds of n workers with `load` tasks each: `arrivals(steps)` says when messages arrive that leave after these tasks.

    Every call answers for the same rounds. Where a worker has one speed per round, or a time for every task, that is drawn
    once; other models (a network, on which messages queue) are sampled again from the same seed for every set of steps.
    carry: rounds follow one another, and workers stay in the tasks that they are in when one ends.
    """

    def __init__(self, latency: Latency, n: int, load: int, rounds: int, rng: np.random.Generator, carry: bool = False) -> None:
        self.latency, self.n, self.load, self.rounds, self.carry = latency, n, load, rounds, carry
        self._chunks = list(self._pieces(load))
        self._seeds: list[int] = rng.integers(2**62, size=1 + len(self._chunks)).tolist()
        self._kept: dict[int, Times] = {}
        self._own: dict[tuple[int, int], Times] = {}

    @property
    def independent(self) -> bool:
        """Whether a message arrives when its last task is done, whatever else is sent."""
        return self.speeds is not None or isinstance(self.latency, Family)

    def ends(self, steps: Sequence[int], clusters: int, clock: Clock, rounds: int | None = None) -> tuple[Times, Times]:
        """(rounds,) ends of the first rounds, or of all, by a clock, and the messages that came until then."""
        asked = rounds or self.rounds
        if self.carry:
            return self._chained_ends(tuple(steps), clusters, clock, asked)
        times, messages, done = [], [], 0
        for piece in self.arrivals(steps, clusters):
            arrivals = piece[: asked - done]
            times.append(clock(arrivals))
            messages.append(sent(arrivals, times[-1]))
            done += len(arrivals)
            if done == asked:
                break
        return np.concatenate(times), np.concatenate(messages)

    def _chained_ends(self, steps: tuple[int, ...], clusters: int, clock: Clock, rounds: int) -> tuple[Times, Times]:
        way: Any = self.latency if isinstance(self.latency, Delivers) else None

        def play(ends: Times) -> tuple[tuple[NDArray[Any], ...], Times]:
            if way is not None:
                code = probe(self.n, steps[-1], steps, clusters)
                ends = checked(way.deliver(code, ends.reshape(len(ends), -1)), way).reshape(ends.shape)
            times = clock(ends)
            return (times, sent(ends, times)), times[:, None]

        kept, free = [], np.zeros(self.n)
        for size, work in self._work(steps, clusters, rounds):
            segment = min(SEGMENT, max(SHORTEST, size // LANES))
            columns, free = chained(size, work, play, free, segment, min(WARM, 2 * segment))
            kept.append(columns)
        times, messages = (np.concatenate(column) for column in zip(*kept, strict=True))
        return times, messages

    def _work(self, steps: tuple[int, ...], clusters: int, rounds: int) -> Iterator[tuple[int, Work]]:
        """Pieces of the first rounds, as many as fit into memory, and what is done in them."""
        if self.speeds is not None:
            yield rounds, EqualTasks(self.speeds, steps)
            return
        queues = np.arange(self.n * self.load).reshape(self.n, self.load)
        for number, piece in enumerate(self._chunks):
            if piece.start < rounds:
                yield min(piece.stop, rounds) - piece.start, SomeTasks(self._tasks(number, clusters), queues, steps)

    def _tasks(self, number: int, clusters: int) -> Times:
        """(r, n * load) seconds of the tasks of a chunk."""
        if (number, clusters) in self._own:
            return self._own[number, clusters]
        chunk, model = self._chunks[number], self._from(number)
        code = probe(self.n, self.load, (self.load,), clusters)
        times = task_seconds(model, code, chunk.stop - chunk.start, np.random.default_rng(self._seeds[number]))
        if 8 * self.rounds * self.n * self.load <= KEPT_BYTES:
            self._own[number, clusters] = times
        return times

    def _from(self, number: int) -> Any:
        """The model for a chunk: a replay goes on where the chunk before ended."""
        start = self._chunks[number].start
        return self.latency.from_round(start) if start and isinstance(self.latency, Resumes) else self.latency

    def arrivals(self, steps: Sequence[int], clusters: int = 1) -> Iterator[Times]:
        """Pieces (r, n, len(steps)) that together are all rounds: arrivals of what worker i sends after steps[q] tasks.

        clusters: into how many the workers are cut, for models that look at the partitions.
        """
        if self.speeds is not None:
            work = np.array(steps, dtype=float)
            yield from (self.speeds[piece, :, None] * work for piece in self._pieces(len(steps)))
        elif isinstance(self.latency, Family):
            places = np.array(steps) - 1
            yield from (self._every_task(number)[:, :, places] for number in range(len(self._chunks)))
        else:
            yield from (self._sampled(number, tuple(steps), clusters) for number in range(len(self._chunks)))

    @cached_property
    def speeds(self) -> Times | None:
        """(rounds, n) where a worker has one speed per round; in one go, so that a replayed trace goes on piece by piece."""
        if not isinstance(self.latency, Speeds):
            return None
        speeds = self.latency.speeds(self.n, self.rounds, np.random.default_rng(self._seeds[-1]))
        return None if speeds is None else checked(speeds, self.latency)

    def _pieces(self, width: int) -> Iterator[slice]:
        """Rounds that fit into memory together, with `width` times for each worker."""
        size = max(1, CHUNK_BYTES // (8 * self.n * width))
        return (slice(at, min(at + size, self.rounds)) for at in range(0, self.rounds, size))

    def _every_task(self, number: int) -> Times:
        """(r, n, load) when each task is done."""
        if number in self._kept:
            return self._kept[number]
        times = self._sampled(number, tuple(range(1, self.load + 1)))
        if 8 * self.rounds * self.n * self.load <= KEPT_BYTES:
            self._kept[number] = times
        return times

    def _sampled(self, number: int, steps: tuple[int, ...], clusters: int = 1) -> Times:
        chunk, random = self._chunks[number], np.random.default_rng(self._seeds[number])
        size = chunk.stop - chunk.start
        times = checked(self._from(number).sample(probe(self.n, self.load, steps, clusters), size, random), self.latency)
        return times.reshape(size, self.n, len(steps))


@dataclass(frozen=True, eq=False)
class SomeTasks(OwnTimes):
    """Tasks with times of their own, of which workers do the first steps[-1], and send after those in `steps`."""

    steps: tuple[int, ...]

    def ends(self, rows: NDArray[np.int64], late: Times) -> Times:
        return np.ascontiguousarray(self._all(rows, late)[:, :, np.array(self.steps) - 1])

    def left(self, rows: NDArray[np.int64], ends: Times, late: Times, over: Times, told: Times) -> Times:
        return super().left(rows, np.ascontiguousarray(self._all(rows, late)[:, :, : self.steps[-1]]), late, over, told)

    def _all(self, rows: NDArray[np.int64], late: Times) -> Times:
        return super().ends(rows, late)


@lru_cache(maxsize=256)
def probe(n: int, load: int, steps: tuple[int, ...], clusters: int = 1) -> Code:
    """A code to sample arrivals with: tasks and senders are real, but every message is only its worker's first gradient."""
    size = n // clusters
    doer, step = np.divmod(np.arange(n * load), load)
    tasks = Tasks(doer, doer // size * size + (doer % size + step) % size)
    worker = np.repeat(np.arange(n), len(steps))
    coef = csr_array((np.ones(len(worker)), (np.arange(len(worker)), worker)), shape=(len(worker), n))
    return Code("probe", n, tasks, Messages(worker, np.tile(steps, n), coef), Span(coef))


def sent(arrivals: Times, ends: Times) -> NDArray[np.int64]:
    """(r,) messages that arrive until the round ends, copies included."""
    return np.asarray(((arrivals <= ends[:, None, None]) & (arrivals < np.inf)).sum(axis=(1, 2)))


def smallest(values: Times, count: int) -> Times:
    """The count-th smallest along the last axis."""
    if count == 1:
        return np.asarray(values.min(axis=-1))
    if count == values.shape[-1]:
        return np.asarray(values.max(axis=-1))
    return np.asarray(np.partition(values, count - 1, axis=-1)[..., count - 1])


def require_rounds(planner: str, rounds: Any, least: int = 2) -> int:
    """A number of simulated rounds from which an interval can be computed."""
    if isinstance(rounds, bool) or not isinstance(rounds, int | np.integer) or rounds < least:
        raise Invalid(f"{planner} needs a whole number of rounds >= {least}, but got rounds={rounds!r}.")
    return int(rounds)


def require_latency(planner: str, latency: Any) -> None:
    """A latency model, recognised by its method."""
    if not isinstance(latency, Latency):
        raise Invalid(f"{planner} needs a latency model such as Exponential(rate=10), but got {latency!r}.")
