"""fit() finds the latency model for measured times, and says so when none of them fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from ..trace import Trace
from .base import Family, Times
from .empirical import Empirical
from .fixed_cost import CostEstimate, FixedCost, fixed_cost, without_fixed_cost
from .likelihood import Estimate, estimates

FEWEST, MOST = 10, 20_000
"""Times that are needed, and times that are used: of more, so many are drawn at random."""

CHANCE = {
    "Exponential": 1.34,
    "ShiftedExponential": 1.27,
    "Pareto": 1.30,
    "Gamma": 1.19,
    "Weibull": 1.06,
    "LogNormal": 1.02,
    "BurrXII": 0.97,
}
"""sqrt(n) times the KS distance that times of the family itself exceed once in a hundred samples, after their own fit.

The largest over several shapes, from 1,500 to 2,000 samples each (Burr XII: 400) of 50 and of 1,000 times. The usual limit,
1.63, is for parameters that are known beforehand; fitted ones follow the sample, so that it would let too much pass.
"""

UNLIKE = 0.01
"""Below this p-value workers or rounds are taken to differ."""

CONSTANT = 1e-9
"""Relative spread below which times count as equal."""


@dataclass(frozen=True)
class Candidate:
    """The most likely member of a family. ks: largest distance between its distribution and that of the times. limit: how far
    times of this family stay from their own fit in 99 of 100 samples.
    """

    name: str
    model: Family
    parameters: int
    log_likelihood: float
    ks: float
    limit: float

    @property
    def aic(self) -> float:
        """Akaike's criterion, 2 parameters - 2 log-likelihood: smaller is better."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def passes(self) -> bool:
        return self.ks <= self.limit

    def __str__(self) -> str:
        values = {f.name: getattr(self.model, f.name) for f in fields(self.model) if f.name != "per"}
        shown = [f"{name}={value:.4g}" for name, value in values.items()]
        return f"{self.name}({', '.join(shown[: self.parameters])})"  # an exponential has no shift to show


@dataclass(frozen=True, eq=False)
class Fit:
    """Candidates by AIC, the best model to go on with, and a verdict in words. Prints as a small table.

    best: the first candidate where it passes, otherwise `Empirical`, the measured times themselves. times: the finite times
    that were fitted, sorted. fixed: what a trace says of the fixed cost of a task; where there is one, the times are without
    it, and `best` has it (`FixedCost`).
    """

    ranking: tuple[Candidate, ...]
    best: Any
    verdict: str
    times: Times = field(repr=False)
    fixed: CostEstimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "best": repr(self.best),
            "verdict": self.verdict,
            "times": len(self.times),
            "fixed_cost": self.fixed.to_dict() if self.fixed else None,
            "ranking": [
                {"model": repr(c.model), "family": c.name, "aic": c.aic, "ks": c.ks, "limit": c.limit, "passes": c.passes}
                for c in self.ranking
            ],
        }

    def __str__(self) -> str:
        lines = [f"fit of {len(self.times)} times"]
        if self.ranking:
            lines.append(f"  {'':<54}{'AIC +':>8}{'KS':>8}{'limit':>8}")
        for one in self.ranking:
            worse = one.aic - self.ranking[0].aic
            text = f"{worse:.1f}" if worse < 1e5 else f"{worse:.1e}"
            lines.append(f"  {one!s:<54}{text:>8}{one.ks:>8.4f}{one.limit:>8.4f}")
        return "\n".join([*lines, self.verdict, *([str(self.fixed)] if self.fixed else [])])


@door
def fit(times: ArrayLike | Trace, rng: Seed = 0) -> Fit:
    """The family that explains measured times, if one does: by maximum likelihood, ranked by AIC, judged by the KS distance.

    times: seconds per unit of work, (samples,) or (rounds, workers), or a trace. From rounds, no family is best where workers
    or rounds differ (Kruskal-Wallis): independent times would be the wrong model, however well they fit together. Infinite
    times (never finished) are not fitted, and no family is best where there are any. Of more than 20,000 times, as many are
    drawn with `rng`. From a trace whose tasks differ in work the fixed cost of a task is told as well, and taken off first; see
    `fixed_cost`. Do not extrapolate: tails beyond the largest time are the family's guess.

    >>> fit(np.random.default_rng(1).exponential(0.1, 5000) + 1).best
    ShiftedExponential(rate=10.04..., shift=1.00...)
    """
    if isinstance(times, Trace):
        return _fit_trace(times, rng)
    values = _values(times)
    finite = values[np.isfinite(values)]
    if len(finite) < FEWEST:
        raise Invalid(f"fit needs at least {FEWEST} finite times, but got {len(finite)}. Record more, or use Empirical(times).")
    if len(finite) > MOST:
        finite = generator(rng).choice(finite, MOST, replace=False)
    sample = np.sort(finite)
    sample.flags.writeable = False
    if sample[-1] - sample[0] <= CONSTANT * sample[-1]:
        return Fit((), Empirical(values), f"Constant: all times are {sample[0]:.6g} s." + _never(values), sample)
    ranking = sorted((_candidate(one, sample) for one in estimates(sample)), key=lambda one: (one.aic, one.parameters))
    doubt = _doubt(ranking[0], values)
    if doubt:
        return Fit(tuple(ranking), Empirical(values), f"{doubt} Go on with the measured times themselves (Empirical).", sample)
    verdict = f"{ranking[0].name} fits: it {_distance(ranking[0])}."
    return Fit(tuple(ranking), ranking[0].model, verdict, sample)


def _fit_trace(trace: Trace, rng: Seed) -> Fit:
    seconds, cost = without_fixed_cost(trace)
    found = fit(seconds, rng)
    best = FixedCost(found.best, cost) if cost else found.best
    return replace(found, best=best, fixed=fixed_cost(trace))


def _values(times: ArrayLike) -> Times:
    values = np.asarray(times, dtype=float)
    if values.ndim not in (1, 2):
        raise Invalid(f"fit needs times (samples,) or (rounds, workers), but got shape {values.shape}.")
    if not (values > 0).all():
        bad = values[~(values > 0)][0]
        raise Invalid(f"fit needs positive times, but got {bad}. Leave out what was not measured; inf stands for never.")
    return values


def _candidate(estimate: Estimate, times: Times) -> Candidate:
    """Times are sorted."""
    below = estimate.model.cdf(times)
    ranks = np.arange(len(times) + 1) / len(times)
    distance = float(max((below - ranks[:-1]).max(), (ranks[1:] - below).max()))
    limit = CHANCE[estimate.name] / math.sqrt(len(times))
    return Candidate(estimate.name, estimate.model, estimate.parameters, estimate.log_likelihood, distance, limit)


def _doubt(first: Candidate, values: Times) -> str:
    """Why the first candidate is not the model of these times; empty if it may be."""
    if not first.passes:
        return f"No family fits: the best, {first.name}, {_distance(first)}."
    if never := _never(values):
        return f"{first.name} fits the finite times, but no family describes the others.{never}"
    if values.ndim == 2 and min(values.shape) > 1:
        for what, groups in (("workers", values.T), ("rounds", values)):
            if (p := _alike(groups)) < UNLIKE:
                return f"{first.name} fits all times together, but the {what} differ (Kruskal-Wallis, p = {p:.2g})."
    return ""


def _distance(one: Candidate) -> str:
    return f"has a KS distance of {one.ks:.4f}, and chance explains up to {one.limit:.4f}"


def _never(values: Times) -> str:
    count = int(np.isinf(values).sum())
    return f" {count} of {values.size} times are infinite: never finished." if count else ""


def _alike(groups: NDArray[np.float64]) -> float:
    """p-value of the test of Kruskal and Wallis that groups (groups, members) have one distribution."""
    from scipy.stats import chi2, rankdata  # takes long to import

    size = groups.size
    means = np.asarray(rankdata(groups)).reshape(groups.shape).mean(axis=1)
    statistic = 12 / (size * (size + 1)) * groups.shape[1] * float(((means - (size + 1) / 2) ** 2).sum())
    return float(chi2.sf(statistic, len(groups) - 1))
