"""Codes that hand out tasks, as candidates of `plan.auto`: into how many pieces, and what speaks for and against them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ..codes import sums_on_request, uncoded, work_conserving
from ..latency import FixedCost, fixed_cost
from ..randomness import Seed, generator
from ..scheme.arrivals import computing, task_seconds, way_of
from ..scheme.code import Code
from ..scheme.stop import Recovered
from ..study.simulation import simulate
from ..trace import Trace
from .advice import Candidate
from .base import Plan

PIECES = (1, 2, 4, 8, 16)
"""Into how many a share is cut, as far as it is tried."""

UNTOLD = 4
"""The most of them where nobody knows what a task costs however small it is: no trace of whole shares shows that."""

TRIAL = 400
"""Rounds on which pieces and shares are chosen; what is chosen is scored on all."""

SLACK = 0.02
"""Fewer pieces and shares are chosen where they take at most so much longer: each costs something that no trace shows."""

DEAR = 0.1
"""A cost of a piece that is more than this share of its work is named."""


def handed_plans(model: Any, n: int, max_load: int, rounds: int, rng: Seed, carry: bool, most: int) -> Iterator[Plan]:
    """Two that conserve work, about the best on few rounds with few pieces and the best of the others; the first without
    helpers; and the best with a fixed order.

    model: with the network around it, so that words and sums count. Pieces are given ahead where words take time. most: pieces
    of a share.
    """
    reserves = (0, 1) if way_of(model, uncoded(n)).word else (0,)
    loads, cuts = range(2, min(max_load, n) + 1), [pieces for pieces in PIECES if pieces <= most]
    mean = partial(mean_time, model, rounds=min(rounds, TRIAL), rng=rng, carry=carry)
    options: list[dict[str, Any]] = [
        {"load": load, "pieces": pieces, "reserve": ahead} for load in loads for pieces in cuts for ahead in reserves
    ]
    if not options:
        return
    took = np.array([mean(work_conserving(n, **one)) for one in options])
    cheap = np.lexsort([[one[key] for one in options] for key in ("reserve", "load", "pieces")])
    first = next(at for at in cheap if took[at] <= (1 + SLACK) * took.min())
    best, second = options[first], options[np.delete(np.arange(len(took)), first)[np.delete(took, first).argmin()]]
    orders = [{"load": load, "pieces": pieces} for load in loads for pieces in PIECES[:3]]
    yield from map(plan_of, (work_conserving(n, **best), work_conserving(n, **second)))
    yield plan_of(work_conserving(n, **best, helpers=False))
    yield plan_of(min((sums_on_request(n, **one) for one in orders), key=mean))


def finest(trace: Trace | None, cost: float | None = None) -> int:
    """Into how many pieces a share may be cut: as many as are tried where the cost of a task is known, by the trace or
    otherwise, or was given as a model.

    >>> from unstraggle.trace import from_seconds
    >>> [finest(from_seconds(np.ones((30, 4, tasks)), work=1 / tasks)) for tasks in (1, 8)]
    [4, 8]
    """
    if trace is None or cost is not None or fixed_cost(trace).why is None:
        return PIECES[-1]
    return max(UNTOLD, int(trace.end.shape[2]))  # tasks as small as those that were recorded took their time with their cost


def mean_time(model: Any, code: Code, rounds: int, rng: Seed, carry: bool) -> float:
    """Seconds of a round, simulated."""
    seed = generator(rng if rng is None or isinstance(rng, int) else 0)
    return simulate(code, model, rounds=rounds, rng=seed, carry=carry, threads=1).time.mean


def plan_of(code: Code) -> Plan:
    """A code that is to be scored."""
    return Plan(code.name, lambda: code, np.nan, (np.nan, np.nan), Recovered())


def about_handed(
    candidates: list[Candidate], chosen: Candidate, model: Any, n: int, trace: Trace | None, cost: float | None = None
) -> Iterator[str]:
    """Why work-conserving rounds are best here, or what makes them dear."""
    conserving = [one for one in candidates if one.name.startswith("work_conserving")]
    helped = min((one for one in conserving if "helpers=False" not in one.name), key=lambda one: one.seen, default=None)
    if helped is None:
        return
    rivals = [one for one in candidates if one.exact and one.plan.code.handing is None and one is not candidates[0]]
    if chosen.plan.code.handing is not None:
        fixed = min(rivals, key=lambda one: one.time, default=None)
        static = f"; the best fixed scheme, {fixed.name}, saves {_percent(fixed)}" if fixed else ""
        yield f"pieces go to whoever is free, and nothing is computed twice while there is something fresh{static}"
        if trace is not None and cost is None and fixed_cost(trace).why is not None:
            yield (
                "what a task costs however small it is, this trace does not tell; it counts as nothing, and shares are cut "
                f"into {finest(trace)} at most: measure it (--uneven)"
            )
    else:
        yield f"handing out pieces, {helped.name}, saves {_percent(helped)}"
    yield from _costs(helped, model, n)
    alone = next((one for one in conserving if "helpers=False" in one.name), None)
    if alone is not None and alone.time > (1 + DEAR) * helped.time:
        yield (
            f"helpers are needed: with helpers=False a round waits for the last piece of the slowest worker, and takes "
            f"{alone.time / helped.time:.1f} times as long"
        )


def _percent(candidate: Candidate) -> str:
    return f"{100 * candidate.saving:.1f} %"


def _costs(helped: Candidate, model: Any, n: int) -> Iterator[str]:
    """What a piece costs beside its work."""
    inner, pieces = computing(model), helped.plan.code.k // n
    fixed = float(np.mean(inner.seconds)) if isinstance(inner, FixedCost) else 0.0
    share = float(task_seconds(inner, uncoded(n), 100, np.random.default_rng(0)).mean()) - fixed
    piece, trip = share / pieces, 2 * way_of(model, helped.plan.code).word
    if fixed > DEAR * piece:
        yield f"small pieces are dear: each has a fixed cost of {fixed:.3g} s beside {piece:.3g} s of work"
    if trip > DEAR * piece:
        yield f"words are dear: a round trip of {trip:.3g} s beside {piece:.3g} s of work in a piece"
