"""Which multi-message code: clusters, design and orders, for every number of messages per round. [A] leaves this open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ..checks import require_load
from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from ..scheme.arrivals import Latency
from ..scheme.code import FULL_BITS
from ..scheme.noise import NoiseGain, set_noise_gain, survivor_sets
from ..scheme.recovery import By
from ..scheme.stop import Recovered
from .base import Plan
from .designs import Design, work_limit
from .draws import Draws, require_latency, require_rounds
from .front import Front, thinned
from .search import Point, Progress, Search

RESOLUTION = 0.005
"""Plans that gain less time than this fraction over a cheaper one are left out of the front."""


@door
def orders(
    latency: Latency,
    n: int,
    load: int,
    *,
    max_messages: float | None = None,
    max_bytes: float | None = None,
    dim: int | None = None,
    max_noise_gain: float | None = None,
    by: By | Sequence[By] = ("rule", "span"),
    rounds: int = 40_000,
    rng: Seed = 0,
    progress: Progress | None = None,
    carry: bool = True,
) -> Front:
    """The front of expected time against messages per round, over the codes of [A] with at most `load` tasks per worker.

    Searched are equal clusters of at least `load` workers; correlated designs of every order; uncorrelated ones and their
    hybrids with every order vector; recovery by rule and by span. Clusters take workers in their order: where these differ,
    list fast and slow ones mixed. max_messages limits the mean of messages sent per round, max_bytes that of bytes for
    gradients of `dim` coordinates at 32 bits, max_noise_gain the worst noise gain. All designs see the same random numbers:
    few rounds for all, `rounds` for those near the front. carry: workers stay in the tasks that they are in when a round ends,
    as real ones do; without it every round starts with free workers, as in [A]. Where workers may never answer, the designs
    are kept whose simulated rounds all ended; `Invalid` if there is none, or none within the limits. Simulated means do not
    show that a mean is infinite (Pareto with shape <= 1): ask `latency.order_statistics(n)`.

    Plans: messages (mean), bound (no exact code on whole partial gradients is faster), params with clusters, load, orders and
    design. Do not plan by a family of latencies when there is a trace: pass `Empirical` or `Replay`.

    >>> from unstraggle.latency import ShiftedExponential
    >>> front = orders(ShiftedExponential(rate=10, shift=0.01), n=8, load=4, rounds=2000)
    >>> front.best(max_messages=3).name
    'fractional_repetition(8, s=3)'
    """
    n, load = require_load("orders", n, load)
    require_latency("orders", latency)
    _require_limit("max_noise_gain", max_noise_gain)
    rounds, random = require_rounds("orders", rounds), generator(rng)
    search = Search(latency, n, load, _kinds(by), _message_limit(max_messages, max_bytes, dim), progress, carry)
    finalists = search.finalists(rounds, random, all_kinds=max_noise_gain is not None)
    draws = Draws(latency, n, load, rounds, random, carry)
    points = search.evaluate(finalists, draws, "last stage", real=True)
    bound = _work_limit(draws)
    return Front(tuple(_plan(point, bound, rounds, carry) for point in _chosen(search, points, max_noise_gain)))


def _chosen(search: Search, points: list[Point], max_noise_gain: float | None) -> list[Point]:
    """The front of the points within all limits; noise gains are computed only for designs that would be on it."""
    quiet = list(points)
    while True:
        front = [quiet[place] for place in search.front(quiet)]
        if not front:
            raise Invalid(_nothing_left(search, points, max_noise_gain))
        loud = [p for p in front if max_noise_gain is not None and design_noise_gain(p.design).worst > max_noise_gain]
        if not loud:
            kept = thinned([point.time.mean for point in front], RESOLUTION)
            return [front[place] for place in kept]
        quiet = [point for point in quiet if point not in loud]


@lru_cache(maxsize=1024)
def design_noise_gain(design: Design) -> NoiseGain:
    """As `noise_gain` of the code, over survivor sets that are just large enough for the design's kind of recovery."""
    code = design.build()
    gains = [set_noise_gain(code, got) for got in survivor_sets(code, 40, 0, by=design.by)]
    return NoiseGain(float(np.median(gains)), float(np.max(gains)))


def _nothing_left(search: Search, points: list[Point], max_noise_gain: float | None) -> str:
    ending = [point for point in points if np.isfinite(point.time.mean)]
    if not ending:
        return "orders found no design whose rounds all ended under this latency model. Use an approximate code and a deadline."
    least = min(ending, key=lambda point: point.messages.mean)
    if least.messages.mean > search.limit:
        return (
            f"orders needs a design that sends at most {search.limit:g} messages per round, but the cheapest, "
            f"{least.design.name}, sends {least.messages.mean:.2f}. Allow more, or another load."
        )
    return f"orders found no design with a noise gain of at most {max_noise_gain:g} within the other limits. Allow more of it."


def _plan(point: Point, bound: float | None, rounds: int, carry: bool) -> Plan:
    design = point.design
    params = {
        "clusters": design.clusters,
        "load": design.steps[-1],
        "design": design.kind,
        "orders": list(design.steps),
        "by": design.by,
        "messages_ci95": list(point.messages.ci95),
        "rounds": rounds,
        "carry": carry,
    }
    cost, ci95, messages = point.time.mean, point.time.ci95, point.messages.mean
    return Plan(design.name, design.build, cost, ci95, Recovered(design.by), bound, messages, params)


def _work_limit(draws: Draws) -> float | None:
    """Mean time until n tasks are done, where a message arrives when its task is done; None where messages queue."""
    if not draws.independent:
        return None
    limits = [work_limit(draws.n, arrivals) for arrivals in draws.arrivals(range(1, draws.load + 1))]
    return float(np.concatenate(limits).mean())


def _kinds(by: By | Sequence[By]) -> tuple[By, ...]:
    asked = (by,) if isinstance(by, str) else tuple(by)
    if not asked or any(kind not in ("rule", "span") for kind in asked):
        raise Invalid(f'orders needs by="rule", by="span" or both, but got by={by!r}.')
    return tuple(sorted(set(asked)))


def _message_limit(max_messages: float | None, max_bytes: float | None, dim: int | None) -> float:
    _require_limit("max_messages", max_messages)
    _require_limit("max_bytes", max_bytes)
    if max_bytes is None:
        return np.inf if max_messages is None else max_messages
    if dim is None or not dim >= 1:
        raise Invalid(f"orders needs dim, the coordinates of a gradient, to turn max_bytes into messages, but got dim={dim!r}.")
    return min(max_bytes / (dim * FULL_BITS / 8), np.inf if max_messages is None else max_messages)


def _require_limit(name: str, value: float | None) -> None:
    if value is not None and not (isinstance(value, int | float | np.number) and value > 0):
        raise Invalid(f"orders needs a positive {name}, but got {name}={value!r}.")
