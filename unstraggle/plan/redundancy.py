"""How much redundancy: the number of stragglers that a one-message code should tolerate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..checks import require_workers
from ..codes import cyclic_repetition, fractional_repetition, uncoded
from ..doors import door
from ..errors import Invalid
from ..latency.base import Family, OneSpeed, per_task
from ..randomness import Seed, generator
from ..scheme.arrivals import Latency, OrderStatistics
from ..study.rounds import Sample
from .base import Plan
from .draws import Draws, Times, require_latency, require_rounds, smallest
from .recipe import Recipe


class Option(NamedTuple):
    """A scheme that tolerates s stragglers, the mean time of a round and its 95 % interval."""

    scheme: str
    s: int
    time: float
    ci95: tuple[float, float]

    def recipe(self, n: int) -> Recipe:
        """How the code is made."""
        if self.scheme == "uncoded":
            return Recipe(uncoded, n)
        return Recipe(fractional_repetition if self.scheme == "fractional_repetition" else cyclic_repetition, n, s=self.s)

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON, which has no infinity: null stands for it."""
        finite = np.isfinite(self.time)
        return {
            "scheme": self.scheme,
            "s": self.s,
            "time": self.time if finite else None,
            "ci95": list(self.ci95) if finite else None,
        }


@door
def redundancy(latency: Latency, n: int, *, rounds: int = 20_000, rng: Seed = 0, carry: bool = True) -> Plan:
    """The s for which a code with one message per worker takes least time, among cyclic and fractional repetition.

    Waiting for all n workers is s = 0 and may win: then coding does not pay. All is simulated on common random numbers, in
    rounds that follow one another: workers stay in the tasks that they are in when one ends. carry=False lets every round
    start with free workers, as closed forms do; cyclic repetition then takes exactly (s + 1) E[T_(n - s)] where the latency
    model knows its order statistics. Means of known families that are infinite count as such; `Invalid` if nothing finite is
    left.

    params: "n", "scheme", "s" and "table", a row for every scheme and s with time and ci95 (None where infinite), which
    `plots.redundancy_curve` draws. Codes that send several messages use slow workers better: see `orders`.

    >>> from unstraggle.latency import ShiftedExponential
    >>> [redundancy(ShiftedExponential(rate=10, shift=0.05), n=20, rounds=4000, carry=carry).name for carry in (False, True)]
    ['fractional_repetition(20, s=1)', 'uncoded(20)']
    """
    n = require_workers("redundancy", n)
    require_latency("redundancy", latency)
    draws = Draws(latency, n, n, require_rounds("redundancy", rounds), generator(rng), carry)
    options = list(_cyclic(draws))
    options += [_repetition(draws, s, options[-1]) for s in range(1, n) if n % (s + 1) == 0]
    best = min(options, key=lambda option: (option.time, option.s, option.scheme == "cyclic_repetition"))
    if not np.isfinite(best.time):
        raise Invalid(
            f"redundancy needs a finite mean time for some s, but with {latency} and n={n} it is infinite for all. "
            "Use an approximate code and a deadline."
        )
    recipe, params = best.recipe(n), {"n": n, "scheme": best.scheme, "s": best.s, "table": [o.to_dict() for o in options]}
    return Plan(recipe.name, recipe.code, best.time, best.ci95, messages=_messages(draws, best), params=params)


def _cyclic(draws: Draws) -> Iterator[Option]:
    """Any n - s workers that have done s + 1 tasks; s = 0 waits for all."""
    exact = _exact(draws.latency, draws.n)
    samples = _cyclic_times(draws) if draws.carry or exact is None else None
    for s in range(draws.n):
        scheme, time = "cyclic_repetition" if s else "uncoded", np.inf
        if exact is not None:
            time = float((s + 1) * exact[draws.n - 1 - s])
        if samples is None or (exact is not None and (np.isinf(time) or s == 0)):
            yield Option(scheme, s, time, (time, time))  # waiting for all leaves nobody in a task
        else:
            sample = Sample(samples[s], draws.carry)
            yield Option(scheme, s, sample.mean, sample.ci95)


def _exact(latency: Any, n: int) -> Times | None:
    """(n,) means of the ordered speeds; None where they are not computed exactly or a worker has more than one speed."""
    if not isinstance(latency, OrderStatistics) or per_task(latency):
        return None
    if isinstance(latency, OneSpeed) and type(latency).order_statistics is OneSpeed.order_statistics:
        return None
    means = np.asarray(latency.order_statistics(n), dtype=float)
    if np.isnan(means).any():
        raise Invalid(f"redundancy needs order statistics that are numbers, but {latency} gave {means.tolist()}.")
    return means


def _cyclic_times(draws: Draws) -> Times:
    """(n, rounds) times of cyclic repetition for every s."""
    n = draws.n
    if draws.carry:
        return np.stack([_times(draws, s, clusters=1)[0] for s in range(n)])
    if draws.speeds is not None:
        return np.asarray(np.sort(draws.speeds, axis=1).T[::-1] * np.arange(1, n + 1.0)[:, None])
    if draws.independent:
        pieces = draws.arrivals(range(1, n + 1))
        return np.concatenate([[smallest(piece[:, :, s], n - s) for s in range(n)] for piece in pieces], axis=1)
    return np.stack([_times(draws, s, clusters=1)[0] for s in range(n)])


def _repetition(draws: Draws, s: int, whole: Option) -> Option:
    """The first worker of every group of s + 1; infinite where that has an infinite mean, which no sample shows.

    One group of all workers takes as long as cyclic repetition, `whole`.
    """
    if s + 1 == draws.n:
        return whole._replace(scheme="fractional_repetition")
    sample = Sample(_times(draws, s, clusters=draws.n // (s + 1))[0], draws.carry)
    first = _exact(draws.latency, s + 1) if isinstance(draws.latency, Family) else None
    if first is not None and np.isinf(first[0]):
        return Option("fractional_repetition", s, np.inf, (np.inf, np.inf))
    return Option("fractional_repetition", s, sample.mean, sample.ci95)


def _times(draws: Draws, s: int, clusters: int) -> tuple[Times, Times]:
    """(rounds,) times and messages of a one-message code of load s + 1 in equal clusters."""
    size = draws.n // clusters

    def clock(arrivals: Times) -> Times:
        return np.asarray(smallest(arrivals.reshape(-1, clusters, size), size - s).max(axis=1))

    return draws.ends((s + 1,), clusters, clock)


def _messages(draws: Draws, option: Option) -> float:
    """Mean messages until the round ends."""
    clusters = draws.n // (option.s + 1) if option.scheme == "fractional_repetition" else 1
    return float(_times(draws, option.s, clusters)[1].mean())
