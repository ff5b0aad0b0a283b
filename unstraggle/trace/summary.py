"""What recorded rounds say before any model is fitted: unevenness, persistence, load and drift."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]


@dataclass(frozen=True)
class TraceSummary:
    """Numbers of a trace; prints as a small table. NaN where the trace is too short, or no round has all its workers.

    unfinished: rounds in which a worker finished nothing; all that follows leaves them out. slowest, slowest_p95: time of the
    slowest worker over that of the median one, mean and 95 % quantile over the rounds. idle_share: of the workers' time, what
    is spent waiting for the slowest, 1 - mean / max. persistence: how often the slowest worker is the slowest of the next
    recorded round, too. chance: how often it would be if all were alike, 1 / n. autocorrelation: of a worker's time over the
    mean of the round, from one round to the next. load_curve: time of the first q tasks over q times that of the first (by
    work), q = 1, 2, ...; 1 means that time is proportional to work. drift: median of the second half of the rounds over that
    of the first. drift_p: p-value of a two-sample Kolmogorov-Smirnov test that the slowest times of both halves have one
    distribution.
    """

    rounds: int
    workers: int
    tasks: int
    unfinished: int
    slowest: float
    slowest_p95: float
    idle_share: float
    persistence: float
    chance: float
    autocorrelation: float
    load_curve: tuple[float, ...]
    drift: float
    drift_p: float

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON, which has no NaN: null stands for it."""
        curve = {"load_curve": list(self.load_curve)}
        return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in (asdict(self) | curve).items()}

    def __str__(self) -> str:
        rows = [
            ("slowest / median worker", f"{self.slowest:.3g} mean, {self.slowest_p95:.3g} p95"),
            ("idle, waiting for it", f"{100 * self.idle_share:.3g} % of the workers' time"),
            ("slowest twice in a row", f"{100 * self.persistence:.3g} %, by chance {100 * self.chance:.3g} %"),
            ("autocorrelation, lag 1", f"{self.autocorrelation:.2f}"),
            ("second / first half", f"{self.drift:.3f} median, p = {self.drift_p:.2g} (slowest times)"),
        ]
        if self.load_curve:
            last = len(self.load_curve)
            rows.insert(4, (f"time of {last} tasks", f"{self.load_curve[-1]:.3g} x {last} x that of the first"))
        if self.unfinished:
            rows.insert(0, ("rounds left out", f"{self.unfinished}, in which a worker finished nothing"))
        lines = [f"trace: {shape(self.rounds, self.workers, self.tasks)}"]
        return "\n".join(lines + [f"  {name:<24}{text}" for name, text in rows]).replace("nan", "-")


def shape(rounds: int, workers: int, tasks: int) -> str:
    """Numbers of rounds, workers and tasks, in words."""
    counts = {"round": rounds, "worker": workers, "task": tasks}
    return ", ".join(f"{count} {name}" + "s" * (count != 1) for name, count in counts.items())


def summary(seconds: Times, durations: Times, work: Times) -> TraceSummary:
    """From (rounds, n) seconds per unit of work, (rounds, n, tasks) durations and (n, tasks) work."""
    whole = seconds[np.isfinite(seconds).all(axis=1)]
    slowest, n = whole.max(axis=1), seconds.shape[1]
    ratios = slowest / np.median(whole, axis=1) if len(whole) else np.array([np.nan])
    idle = 1 - float(whole.mean(axis=1).sum() / slowest.sum()) if slowest.sum() > 0 else float("nan")
    drift, drift_p = _halves(whole)
    return TraceSummary(
        rounds=len(seconds),
        workers=n,
        tasks=durations.shape[2],
        unfinished=len(seconds) - len(whole),
        slowest=float(ratios.mean()),
        slowest_p95=float(np.quantile(ratios, 0.95)),
        idle_share=idle,
        persistence=_persistence(whole),
        chance=1 / n,
        autocorrelation=_autocorrelation(whole),
        load_curve=load_curve(durations, work),
        drift=drift,
        drift_p=drift_p,
    )


def _persistence(times: Times) -> float:
    """How often the slowest stays the slowest; where several are, one of them is picked at random."""
    if len(times) < 2:
        return float("nan")
    slow = times == times.max(axis=1, keepdims=True)
    shares = slow / slow.sum(axis=1, keepdims=True)
    return float((shares[1:] * shares[:-1]).sum(axis=1).mean())


def _autocorrelation(times: Times) -> float:
    """Correlation of what a worker needs, relative to the round's mean, with what it needs in the next round."""
    if len(times) < 3:
        return float("nan")
    relative = times / times.mean(axis=1, keepdims=True) - 1
    before, after = relative[:-1].ravel(), relative[1:].ravel()
    spread = float(before.std() * after.std())
    return float((before * after).mean() - before.mean() * after.mean()) / spread if spread > 1e-12 else float("nan")


def load_curve(durations: Times, work: Times) -> tuple[float, ...]:
    """Over the workers and rounds in which all tasks ended, so that the slow ones count for every q or for none."""
    if durations.shape[2] == 1:
        return ()
    done = np.isfinite(durations).all(axis=2)
    time = durations[done].sum(axis=0).cumsum()
    units = np.broadcast_to(work, durations.shape)[done].sum(axis=0).cumsum()
    if not done.any() or not time[0] > 0:
        return ()
    return tuple(float(ratio) for ratio in (time / units) / (time[0] / units[0]))


def _halves(times: Times) -> tuple[float, float]:
    half = len(times) // 2
    if half < 2:
        return float("nan"), float("nan")
    from scipy.stats import ks_2samp  # takes long to import

    first, second = times[:half], times[half:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where the exact p-value overflows it takes the asymptotic one
        test = ks_2samp(first.max(axis=1), second.max(axis=1))
    return float(np.median(second) / np.median(first)), float(test.pvalue)
