"""The rules of a diagnosis: are there stragglers, of which kind, what do they cost, and would coding help or something else?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from ..plan.advice import Advice
from ..plan.auto import LEAST_ROUNDS, WORTH, auto
from ..plan.cause import FEWEST, Cause, cause
from ..plan.doubts import gone
from ..randomness import Seed
from ..statistics import saving_of
from ..trace import Trace, from_seconds
from .remedies import Remedy, named, remedies
from .result import Answer, Diagnosis, Kind, Worker

HEALTHY = WORTH
"""Workers that wait for less than this share of their time are well."""

WHOLE = 0.9
"""From this share of complete rounds on, a trace tells how late everyone is, and the incomplete rounds are left out."""

SLOWER = 1.05
"""A worker that takes this much longer than the median one, on average, is slow."""

SURPRISE = 0.001
"""A worker is slowest conspicuously often where chance alone would do that with less than this probability."""

LASTING = 0.3
"""Lateness whose correlation from one round to the next is above this lasts for several rounds."""

KINDS: dict[str, Kind] = {"even": "healthy", "persistent": "persistent", "changing": "transient", "tasks": "data"}


@door
def diagnose(
    trace: Trace | NDArray[np.float64],
    *,
    schemes: bool = True,
    rng: Seed = 0,
    progress: Callable[[str, int, int], None] | None = None,
    worth: float = WORTH,
) -> Diagnosis:
    """Say of recorded rounds whether stragglers are transient, persistent or caused by the data, and what would help.

    trace: a `Trace`, or seconds (rounds, workers). schemes: whether to try codes as well (`plan.auto`), which takes a second or
    so. worth: the least saving that is worth a change, by a code or by what is done instead. It says "nothing to do" where
    waiting costs less than that, and prefers what saves more to a code that saves less.

    >>> rng = np.random.default_rng(0)
    >>> times = (1 + 0.05 * rng.random((60, 4))) * [1.0, 1.0, 1.0, 1.8]
    >>> print(diagnose(times).verdict)
    Persistent stragglers (worker 3): 33.3 % of the workers' time is spent waiting. Replace worker 3...
    """
    recorded = trace if isinstance(trace, Trace) else from_seconds(trace)
    if recorded.n < 2:
        raise Invalid(f"A diagnosis compares workers, so it needs at least 2, but the trace has {recorded.n}.")
    usable, where = _usable(recorded)
    if usable is None:
        return _unknown(recorded)
    why = cause(usable)
    waste, interval = _idle(usable.seconds)
    table = _table(recorded, usable)
    if why.kind == "unknown":
        return _too_short(len(usable), why, where, waste, interval, table)
    kind: Kind = "healthy" if waste < worth else KINDS.get(why.kind, "mixed")
    workers = _culprits(kind, why, table, len(usable))
    others = tuple(remedies(usable.seconds, kind, workers))
    advice = auto(usable, rng=rng, progress=progress, worth=worth) if schemes and len(usable) >= LEAST_ROUNDS else None
    answer, action = _answer(kind, others, advice, schemes, worth)
    reasons = tuple(_reasons(recorded, usable, where, why, kind, advice))
    return Diagnosis(kind, answer, action, waste, interval, where, workers, table, reasons, others, why, advice)


def _usable(trace: Trace) -> tuple[Trace | None, Literal["compute", "link"]]:
    """The rounds in which everyone's time is known, and what made it: computing, or the way of the messages."""
    ended = np.asarray(np.isfinite(trace.end).all(axis=(1, 2)))
    if ended.mean() >= WHOLE:
        whole = _some(trace, ended)
    elif (heard := np.isfinite(trace.seconds).all(axis=1)).mean() >= WHOLE:
        whole = from_seconds(trace.seconds[heard])  # of those that were cut off in a round, the tasks that they finished
    else:
        return None, "compute"
    arrived = np.where(np.isfinite(whole.arrival), whole.arrival, np.nan)
    if np.isnan(arrived).all(axis=2).any():
        return whole, "compute"
    last = np.nanmax(arrived, axis=2)
    computing, arriving = _idle(whole.seconds)[0], _idle(last)[0]
    if arriving < HEALTHY or computing > arriving / 2:
        return whole, "compute"
    return from_seconds(last / whole.work.sum(axis=-1)), "link"


def _some(trace: Trace, rounds: NDArray[np.bool_]) -> Trace:
    arrays = (trace.start[rounds], trace.end[rounds], trace.arrival[rounds], trace.bytes[rounds])
    return Trace(*arrays, trace.work_of(rounds), trace.numbers[rounds], trace.meta)


def _idle(seconds: NDArray[np.float64]) -> tuple[float, tuple[float, float]]:
    """1 - mean / max, over all rounds, with its interval."""
    if len(seconds) < 2:
        share = float(1 - seconds.mean() / seconds.max(axis=1).mean())
        return share, (0.0, 1.0)
    return saving_of(seconds.mean(axis=1), seconds.max(axis=1))


def _table(trace: Trace, usable: Trace) -> tuple[Worker, ...]:
    times = np.maximum(usable.seconds, 1e-300)
    factors = np.exp(np.log(times / np.median(times, axis=1, keepdims=True)).mean(axis=0))
    slowest = np.bincount(times.argmax(axis=1), minlength=trace.n) / len(times)
    unfinished = np.isinf(trace.seconds).mean(axis=0)
    return tuple(Worker(w, *map(float, (factors[w], slowest[w], unfinished[w]))) for w in range(trace.n))


def _culprits(kind: Kind, why: Cause, table: tuple[Worker, ...], rounds: int) -> tuple[int, ...]:
    """Workers to look at: those that are slow on average, or slowest more often than chance explains."""
    if kind in ("healthy", "data"):
        return ()
    if kind == "persistent":
        slow = tuple(row.worker for row in table if row.factor >= SLOWER)
        return slow or (why.slowest,)
    from scipy.stats import binom  # takes long to import

    often = [binom.sf(round(row.slowest * rounds) - 1, rounds, 1 / len(table)) < SURPRISE for row in table]
    return tuple(row.worker for row, conspicuous in zip(table, often, strict=True) if conspicuous)


def _answer(kind: Kind, others: tuple[Remedy, ...], advice: Advice | None, schemes: bool, worth: float) -> tuple[Answer, str]:
    if kind == "healthy":
        return "nothing", "nothing to do"
    chosen = advice.chosen if advice else None
    best = next((remedy for remedy in others if remedy.name != "more work" and remedy.saving_ci95[0] > worth), None)
    untried = None if advice else _untried(schemes)
    if best and chosen is None:
        return "instead", f"{untried or 'no code'}: {best}"
    if best and chosen and best.saving > chosen.saving:
        return "instead", f"{best}; as it is, use {chosen.name}: saves {100 * chosen.saving:.1f} %"
    if chosen:
        low, high = chosen.saving_ci95
        return "scheme", f"use {chosen.name}: saves {100 * low:.1f} to {100 * high:.1f} % of the time of a step"
    if advice and advice.verdict.startswith("Cannot predict"):
        return "cannot tell", advice.verdict[:-1]
    more = next((remedy for remedy in others if remedy.saving_ci95[0] > 0), None)
    said = untried or "no code helps"
    return "cannot tell" if untried else "instead", f"{said}: {more}" if more else f"{said}; wait for all"


def _untried(schemes: bool) -> str:
    return f"codes were not tried, for which a trace needs {LEAST_ROUNDS} rounds" if schemes else "codes were not asked for"


def _reasons(trace: Trace, usable: Trace, where: str, why: Cause, kind: Kind, advice: Advice | None) -> list[str]:
    reasons = [str(why)]
    if where == "link":
        reasons.append("workers compute alike, but their messages arrive at different times: the links are the cause")
    silent = np.isinf(trace.seconds).any(axis=1).mean()
    if silent:
        reasons.append(
            f"in {100 * silent:.1f} % of the rounds a worker finished nothing; a code with s >= 1 goes on without it"
        )
    lasting = usable.summary().autocorrelation
    if kind == "transient" and lasting > LASTING:
        reasons.append(f"slowness lasts for several rounds at a time (correlation {lasting:.2f} from one to the next)")
    if kind == "persistent":
        reasons.append(
            "the same data every round on the same worker look like a slow machine: compare the sizes of the data first"
        )
    if advice and advice.verdict.startswith("Cannot predict"):
        reasons.append(advice.verdict[:-1])
    return reasons


def _too_short(
    rounds: int,
    why: Cause,
    where: Literal["compute", "link"],
    waste: float,
    interval: tuple[float, float],
    table: tuple[Worker, ...],
) -> Diagnosis:
    """Too few rounds to say whether who was slow in them is slow always, or was by chance."""
    action = f"record at least {FEWEST} rounds that wait for all, and diagnose those"
    waited = f"in {_count(rounds)} the workers were idle for {100 * waste:.1f} % of their time, waiting for the slowest"
    reasons = (str(why), waited)
    return Diagnosis("unknown", "cannot tell", action, waste, interval, where, (), table, reasons, (), why, None)


def _count(rounds: int) -> str:
    return f"{rounds} round" + "s" * (rounds != 1)


def _unknown(trace: Trace) -> Diagnosis:
    """Rounds that ended before everyone was heard, as those of a code do."""
    late = np.isinf(trace.seconds).mean(axis=0)
    table = tuple(Worker(w, float("nan"), float("nan"), float(late[w])) for w in range(trace.n))
    workers = tuple(w for w in range(trace.n) if late[w] > 0.5)
    code = trace.meta.get("code")
    reasons = list(gone(trace))
    where = f"under {code}, whose rounds" if code else "in rounds that"
    reasons.append(f"recorded {where} end before everyone is heard: who is late is known, but not how late")
    if workers:
        reasons.append(f"{named(workers)}: not heard of in more than half of the rounds")
    nothing, none = float("nan"), (float("nan"), float("nan"))
    why = Cause("even", nothing, nothing, nothing, None, int(late.argmax()), nothing)
    action = f'record rounds that wait for all ("uncoded({trace.n})"), and diagnose those'
    return Diagnosis("unknown", "cannot tell", action, nothing, none, "compute", workers, table, tuple(reasons), (), why, None)
