"""The search behind `orders`: successive halving, all designs on the same random numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..scheme.arrivals import Latency
from ..scheme.recovery import By
from ..statistics import NORMAL_975
from .designs import (
    Design,
    all_vectors,
    different_designs,
    floor_clock,
    neighbours,
    progressions,
    rule_clock,
    shared_designs,
    span_clock,
)
from .draws import Clock, Draws
from .front import distance, pareto, thinned

EVERY_VECTOR = 12
"""Up to this load all order vectors are tried; beyond, evenly spaced ones and what a local search finds from there."""
SEARCHES = 4
"""Steps of a local search at most."""
COARSE = 0.02
"""It starts from designs on the front that differ by more than this fraction in time."""
STAGES = ((128, 384), (32, 80), (8, 48))
"""Before the last, a stage simulates 1/128, 1/32, 1/8 of the rounds; 384, 80, 48 designs of each kind of recovery go on."""
FEWEST = 32
"""Rounds of a stage at least."""
SLACK = 0.02
"""How far from the front a finalist may be."""
DECODED = 8
"""By span one round in so many is decoded; from the others only the lower bound is taken."""
LARGEST_SPAN = 64
"""Clusters with more workers are not tried by span: this takes long, and random codes of that size lose digits."""

BATCHES = 16
"""Batches that rounds which follow one another are cut into for an interval, at least."""

Progress = Callable[[str, int, int], None]


class Estimate(NamedTuple):
    """A mean and its standard error."""

    mean: float
    se: float

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % confidence interval of the mean."""
        if not np.isfinite(self.mean):
            return self.mean, self.mean
        return self.mean - NORMAL_975 * self.se, self.mean + NORMAL_975 * self.se


@dataclass(frozen=True)
class Point:
    """A design and what a round of it takes."""

    design: Design
    time: Estimate
    messages: Estimate


@dataclass(frozen=True)
class Search:
    """What is searched: designs for n workers with at most `load` tasks, by these kinds of recovery, up to so many messages."""

    latency: Latency
    n: int
    load: int
    kinds: tuple[By, ...]
    limit: float
    progress: Progress | None = None
    carry: bool = False

    def finalists(self, rounds: int, rng: np.random.Generator, all_kinds: bool) -> list[Design]:
        """Stages with few rounds for many designs and more for the better ones, each on fresh draws.

        all_kinds: keep the best by rule even where others by span are better.
        """
        designs = self._candidates()
        for number, (share, kept) in enumerate(STAGES, 1):
            draws = Draws(self.latency, self.n, self.load, max(FEWEST, rounds // share), rng, self.carry)
            run = partial(self.evaluate, draws=draws, bound=number == 1)
            points = run(designs, label=f"stage {number} of {len(STAGES) + 1}")
            if number == 2 or (number == 1 and self.load > EVERY_VECTOR):
                points = self._local_search(points, run)
            designs = self._survivors(points, kept)
        return designs if all_kinds else self._near(points, designs)

    def evaluate(self, designs: list[Design], draws: Draws, label: str, bound: bool = False, real: bool = False) -> list[Point]:
        """Points of designs: by span the lower bound only, or corrected with random or with real coefficients."""
        points: list[Point] = []
        with ThreadPoolExecutor(1 if self.carry else os.cpu_count()) as pool:  # chains: see `simulate`
            for point in pool.map(partial(_measure, draws=draws, bound=bound, real=real), designs):
                points.append(point)
                if self.progress:
                    self.progress(label, len(points), len(designs))
        return points

    def front(self, points: Sequence[Point]) -> list[int]:
        """Places of the Pareto-optimal points within the limit."""
        times, messages = _means(points)
        return pareto(np.where(messages <= self.limit, times, np.inf).tolist(), messages.tolist())

    def _candidates(self) -> list[Design]:
        vectors = all_vectors(self.load) if self.load <= EVERY_VECTOR else progressions(self.load)
        return self._by([*shared_designs(self.n, self.load), *different_designs(self.n, self.load, vectors)])

    def _by(self, designs: Iterable[Design]) -> list[Design]:
        """Designs for each kind of recovery; by span only where it differs from the rule, unless nothing else is asked for."""
        rule = list(designs)
        differ = [d for d in rule if d.gains_by_span and d.size <= LARGEST_SPAN]
        same = [d for d in rule if not d.gains_by_span and "rule" not in self.kinds]
        span = [replace(d, by="span") for d in same + differ]
        return (rule if "rule" in self.kinds else []) + (span if "span" in self.kinds else [])

    def _local_search(self, points: list[Point], run: Callable[..., list[Point]]) -> list[Point]:
        """Try the neighbours of what is on the front until nothing new comes up."""
        for _ in range(SEARCHES):
            seen = {point.design for point in points}
            places = self.front(points)
            front = [points[places[i]].design for i in thinned([points[place].time.mean for place in places], COARSE)]
            near = dict.fromkeys(d for design in front for d in neighbours(design, self.load))
            fresh = [d for d in near if d not in seen and (d.by == "rule" or d.gains_by_span or "rule" not in self.kinds)]
            if not fresh:
                break
            points = points + run(fresh, label="local search")
        return points

    def _survivors(self, points: list[Point], count: int) -> list[Design]:
        """Those nearest to the front; what is by rule is not compared with what is by span, which may be bounds only."""
        kept: list[Design] = []
        for kind in self.kinds:
            rivals = [point for point in points if point.design.by in ("rule", kind)]
            order = np.argsort(self._distance(rivals), kind="stable").tolist()
            mine = [rivals[place].design for place in order if rivals[place].design.by == kind]
            kept += mine[:count]
        return kept

    def _near(self, points: list[Point], designs: list[Design]) -> list[Design]:
        """The designs within SLACK of the front of all, and whichever is nearest."""
        away = dict(zip((point.design for point in points), self._distance(points).tolist(), strict=True))
        slack = max(SLACK, min(away.values()))
        return [design for design in designs if away[design] <= slack]

    def _distance(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """How far points are from the front and from the limit."""
        times, messages = _means(points)
        front = self.front(points) or pareto(times.tolist(), messages.tolist())
        return distance(times, messages, front) + np.log(np.maximum(messages / self.limit, 1))


def _measure(design: Design, draws: Draws, bound: bool, real: bool) -> Point:
    if design.by == "rule" or bound:
        return _plain(design, draws, rule_clock(design) if design.by == "rule" else floor_clock(design))
    return _corrected(design, draws, floor_clock(design), span_clock(design, real))


def _plain(design: Design, draws: Draws, clock: Clock) -> Point:
    times, messages = draws.ends(design.steps, design.clusters, clock)
    return Point(design, _estimate(times, chained=draws.carry), _estimate(messages, chained=draws.carry))


def _corrected(design: Design, draws: Draws, floor: Clock, clock: Clock) -> Point:
    """The mean of the cheap lower bound over all rounds, plus the mean of what it lacks over some of them."""
    some = -(-draws.rounds // DECODED)
    bounds = draws.ends(design.steps, design.clusters, floor)
    decoded = draws.ends(design.steps, design.clusters, clock, some)
    lacks = _gap(decoded[0], bounds[0][:some]), decoded[1] - bounds[1][:some]
    if np.isinf(bounds[0]).any():  # the rule of a correlated design is no bound: by span it may end where by rule it never does
        return _plain(design, draws, clock)
    parts = ([bounds[kind][:some], lacks[kind]] for kind in (0, 1))
    return Point(design, *(_estimate(values, part, draws.carry) for values, part in zip(bounds, parts, strict=True)))


def _gap(ends: NDArray[np.float64], low: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the bound lacks; infinite where the round never ends."""
    return np.asarray(np.subtract(ends, low, out=np.full(len(ends), np.inf), where=np.isfinite(ends)))


def _estimate(values: NDArray[Any], decoded: Sequence[NDArray[Any]] = (), chained: bool = False) -> Estimate:
    """The mean of values, or with `decoded` (some of the values, their gaps) the mean of values + gaps.

    The decoded rounds are among the others, so the two means share a covariance. Rounds that follow one another hang together,
    the means of batches of them hardly.
    """
    mean = float(values.mean() + (decoded[1].mean() if decoded else 0.0))
    if not np.isfinite(mean) or (decoded and len(decoded[1]) < 2):
        return Estimate(mean, np.inf)
    if chained:
        size = max(1, min(len(part) for part in (values, *decoded)) // BATCHES)
        values, decoded = _batched(values, size), [_batched(part, size) for part in decoded]
    variance = values.var(ddof=1) / len(values)
    if decoded:
        shared = np.cov(decoded[0], decoded[1])
        variance += shared[1, 1] / len(decoded[1]) + 2 * shared[0, 1] / len(values)
    return Estimate(mean, float(np.sqrt(max(variance, 0.0))))


def _batched(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Means of so many values each."""
    count = len(values) // size
    return np.asarray(values[: count * size].reshape(count, size).mean(axis=1))


def _means(points: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.array([point.time.mean for point in points]), np.array([point.messages.mean for point in points])
