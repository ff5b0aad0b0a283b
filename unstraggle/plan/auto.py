"""Which scheme for this cluster, if any: all beside wait-for-all, chosen on one half of a trace, scored on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import fractional_repetition, uncoded, uncoded_mmc
from ..doors import door
from ..errors import Invalid
from ..latency import FixedCost, Latency, Network, OneSpeed, Replay
from ..latency.base import per_task
from ..latency.fixed_cost import without_fixed_cost
from ..randomness import Seed, generator
from ..runtime.terms import Transfer
from ..scheme.code import FULL_BITS, Code
from ..scheme.stop import Count, Recovered, Stop
from ..statistics import saving_of
from ..study.rounds import Sample
from ..study.simulation import simulate
from ..trace import Trace
from .advice import Advice, Candidate
from .base import Plan
from .block_sizes import block_sizes
from .by_part import ByPart, cells
from .by_speed import speed_plans
from .cause import Cause, cause
from .doubts import doubts
from .handed import about_handed, finest, handed_plans
from .links import Links, told
from .orders import orders
from .redundancy import redundancy

LEAST_ROUNDS = 20
"""A trace with fewer rounds is not split into a half to choose on and a half to score on."""

WORTH = 0.05
"""A code that does not surely save this share of the time is not worth the trouble."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Models to choose on and to score on, how many rounds of each, and whether tasks are carried over from round to round.

    design: without the network, for planners that know of none. pieces: the most into which a share is cut.
    told: what a task costs besides its work, where that was not left to the trace.
    """

    n: int
    design: Any
    seen: Any
    held: Any
    seen_rounds: int
    held_rounds: int
    carry: bool
    pieces: int
    told: float | None = None


@door
def auto(
    source: Any,
    n: int | None = None,
    *,
    dim: int | None = None,
    bandwidth: float | None = None,
    round_trip: float | None = None,
    master: float | None = None,
    max_bytes: float | None = None,
    max_load: int = 4,
    rounds: int = 20_000,
    rng: Seed = 0,
    progress: Callable[[str, int, int], None] | None = None,
    carry: bool = True,
    worth: float = WORTH,
    blocks: bool = False,
    task_cost: float | None = None,
) -> Advice:
    """Rank all schemes for a latency model or a trace, and say which to use, or why none.

    source: a `Trace`, times (rounds, workers), or a latency model together with n. dim, bandwidth (bytes/s per worker), master
    (bytes/s of the master's link, which all share) and round_trip add the way of the messages; what is not given is taken from
    the trace where it says when messages arrived, and is nothing otherwise. max_bytes limits what is sent per round. max_load:
    most partitions a worker computes in multi-message codes, and most shares that it holds where tasks are handed out
    (`work_conserving`). Traces are cut in two: schemes are chosen on the first half and scored on the second. carry: workers
    stay in the tasks that they are in when a round ends, as real ones do, and begin the next one late. A fixed cost per task is
    taken from the trace where its tasks differ in work, or from a latency model that has one (`FixedCost`). task_cost: one that
    was measured otherwise, in seconds, for traces that do not tell it; `Coded` probes it. Where links are given, each scheme is
    scored with messages that are sent and with messages that are fetched, which costs a round trip (`Candidate.transfer`); the
    faster one counts. worth: the least share of the time that a code must save for sure to be advised. blocks: whether a block
    code may be advised, which is ranked anyway: it presumes that parts of the gradient can be computed in turn, which most
    networks cannot.

    It may answer that coding does not help here, or that it cannot predict, then without candidates: a worker is gone, the
    rounds of a code ended before everyone was heard, the trace drifts, or time is not proportional to work.

    >>> from unstraggle.latency import ShiftedExponential
    >>> auto(ShiftedExponential(rate=100, shift=1), n=6, rounds=2000).verdict
    'Coding does not help here: wait for all.'
    """
    trace = _trace(source)
    n = _workers(source, trace, n)
    _require(dim, bandwidth, round_trip, master, max_bytes, max_load, rounds)
    if not (task_cost is None or 0 <= task_cost < np.inf):
        raise Invalid(f"auto needs task_cost >= 0, the seconds of a task besides those for its work, but got {task_cost!r}.")
    if not 0 <= worth < 1:
        raise Invalid(f"auto needs the least saving worth having, 0 <= worth < 1, but got worth={worth!r}. Use 0.05 for 5 %.")
    why = cause(trace) if trace else None
    doubtful = doubts(trace)
    if doubtful:
        return Advice(f"Cannot predict: {'; '.join(doubtful)}.", tuple(_reasons(trace, why)), None, (), why, True)
    links = _links(trace, dim, bandwidth, round_trip, master)
    setting = _setting(source, trace, n, why, rounds, carry, links.around, task_cost)
    plans = list(_candidates(setting, n, max_load, dim, rng, progress))
    scored = [_score(plan, setting, rng) for plan in plans]
    wait = scored[0][1]
    candidates = [_candidate(plan, exact, wait, result, carry) for (plan, exact), result in zip(plans, scored, strict=True)]
    most = np.inf if max_bytes is None else max_bytes / (FULL_BITS / 8 * (dim or 1))
    return _advice(
        [c for c in _distinct(candidates) if c.volume <= most or c is candidates[0]], trace, why, setting, worth, blocks
    )


def _trace(source: Any) -> Trace | None:
    from ..trace import from_seconds

    if isinstance(source, Trace):
        return source
    return from_seconds(source) if isinstance(source, np.ndarray | list) else None


def _workers(source: Any, trace: Trace | None, n: int | None) -> int:
    workers = trace.n if trace else n
    if workers is None or (n is not None and n != workers) or not isinstance(workers, int | np.integer) or workers < 1:
        held = f"the trace has {trace.n} workers" if trace else "a latency model does not say how many workers there are"
        raise Invalid(f"auto needs the number of workers n >= 1; {held}, but got n={n!r}.")
    if trace is None and not isinstance(source, Latency):
        raise Invalid(f"auto needs a Trace, times (rounds, workers) or a latency model, but got {source!r}.")
    return int(workers)


def _require(dim: Any, bandwidth: Any, round_trip: Any, master: Any, max_bytes: Any, max_load: int, rounds: int) -> None:
    if any(limit is not None for limit in (bandwidth, master, max_bytes)) and dim is None:
        raise Invalid("auto needs dim, the coordinates of a gradient, to turn bandwidth or max_bytes into time or messages.")
    for name, link in (("bandwidth", bandwidth), ("master", master)):
        if link is not None and not link > 0:
            raise Invalid(f"auto needs a {name} > 0 bytes/s, but got {name}={link!r}. Without a link nothing can be sent.")
    if max_load < 1 or rounds < 2 or not (round_trip is None or round_trip >= 0):
        raise Invalid(f"auto needs max_load >= 1, rounds >= 2, round_trip >= 0, but got {max_load}, {rounds}, {round_trip}.")


def _setting(
    source: Any,
    trace: Trace | None,
    n: int,
    why: Cause | None,
    rounds: int,
    carry: bool,
    network: Callable[[Any], Any],
    task_cost: float | None,
) -> Setting:
    if trace is None:
        return Setting(n, source, network(source), network(source), rounds, rounds, carry, finest(None))
    seconds, cost = without_fixed_cost(trace, task_cost)
    if len(seconds) < LEAST_ROUNDS:
        raise Invalid(
            f"auto chooses on one half of a trace and scores on the other: it needs {LEAST_ROUNDS} rounds, got {len(seconds)}."
        )
    half = len(seconds) // 2
    design, seen, held = Replay(seconds[:half]), Replay(seconds[:half]), Replay(seconds[half:])  # type: Any, Any, Any
    if why and why.kind == "tasks":
        data = cells(trace, seconds)
        seen, held = ByPart(data[:half]), ByPart(data[half:])
    if cost:
        design, seen, held = (FixedCost(model, cost) for model in (design, seen, held))
    return Setting(
        n, design, network(seen), network(held), half, len(seconds) - half, carry, finest(trace, task_cost), task_cost
    )


def _links(
    trace: Trace | None, dim: int | None, bandwidth: float | None, round_trip: float | None, master: float | None
) -> Links:
    """What was given; of the rest, what the trace tells. Where a link is given, it is the only one."""
    found = told(trace) if trace else Links()
    if bandwidth is not None or master is not None:
        found = replace(found, bandwidth=bandwidth or np.inf, master=master or np.inf)
    return replace(found, dim=int(dim or found.dim), round_trip=found.round_trip if round_trip is None else round_trip)


Planned = tuple[Plan, bool]


def _candidates(
    setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed, progress: Callable[[str, int, int], None] | None
) -> Iterator[Planned]:
    """(plan, whether it is exact); waiting for all comes first."""
    stages = [_baselines, _one_message, _blocks, _multi_message, _handed, _by_speed]
    for number, stage in enumerate(stages):
        if progress:
            progress("planning", number, len(stages))
        yield from stage(setting, n, max_load, dim, rng)


def _fixed(code: Code, stop: Stop | None = None, name: str | None = None) -> Plan:
    return Plan(name or code.name, lambda: code, np.nan, (np.nan, np.nan), stop or Recovered("span"))


def _baselines(setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed) -> Iterator[Planned]:
    yield _fixed(uncoded(n), name="wait for all"), True
    for gone in (1, 2):
        if gone < n:
            yield _fixed(uncoded(n), Count(n - gone), f"ignore the {gone} slowest" if gone > 1 else "ignore the slowest"), False
    for copies in range(2, n + 1):
        if n % copies == 0:
            yield _fixed(fractional_repetition(n, copies - 1)), True


def _one_message(setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed) -> Iterator[Planned]:
    if n > 1:
        yield from _exact(lambda: (redundancy(setting.design, n, rng=rng, carry=setting.carry),))


def _by_speed(setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed) -> Iterator[Planned]:
    yield from _exact(lambda: speed_plans(setting.design, setting.seen, n, setting.seen_rounds, rng, setting.carry))


def _blocks(setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed) -> Iterator[Planned]:
    """Designed by closed forms, for rounds that start with free workers and tasks without fixed cost; scored like all."""
    model = setting.design.base if isinstance(setting.design, FixedCost) else setting.design
    if n > 1 and isinstance(model, OneSpeed) and not per_task(model):
        yield from _exact(lambda: (block_sizes(model, n, dim or 10_000, rng=rng),))
        yield from _exact(lambda: (block_sizes(model, n, dim or 10_000, "tandon_tuned", rng=rng),))


def _multi_message(setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed) -> Iterator[Planned]:
    rounds = max(200, setting.seen_rounds // 10)
    for load in range(2, min(max_load, n) + 1):
        yield _fixed(uncoded_mmc(n, load)), True
        yield from _exact(partial(orders, setting.design, n, load, rounds=rounds, rng=rng, carry=setting.carry))


def _handed(setting: Setting, n: int, max_load: int, dim: int | None, rng: Seed) -> Iterator[Planned]:
    model, rounds = setting.seen, setting.seen_rounds
    yield from _exact(lambda: handed_plans(model, n, max_load, rounds, rng, setting.carry, setting.pieces))


def _exact(planner: Callable[[], Iterable[Plan]]) -> Iterator[Planned]:
    """Plans of a planner; none where it finds nothing that ends in finite time."""
    try:
        plans = list(planner())
    except Invalid:
        return
    yield from ((plan, True) for plan in plans)


Scored = tuple[float, NDArray[np.float64], float, float, Transfer]


def _score(planned: Planned, setting: Setting, rng: Seed) -> Scored:
    """By the faster transfer: fetching pays where links are slow and a code sends what is not used."""
    pushed = _scored(planned[0], setting, rng, "push")
    if not isinstance(setting.seen, Network) or planned[0].code.handing is not None:
        return pushed
    pulled = _scored(planned[0], setting, rng, "pull")
    return pulled if pulled[0] < pushed[0] else pushed


def _scored(plan: Plan, setting: Setting, rng: Seed, transfer: Transfer) -> Scored:
    """Mean time on the rounds seen; times, and mean messages, on those held out; mean size of a message in gradients."""
    code = plan.code
    seeds = generator(rng if rng is None or isinstance(rng, int) else 0).spawn(2)
    by = plan.stop.by if isinstance(plan.stop, Recovered) else "rule"
    run = partial(simulate, code, stop=plan.stop, by=by, carry=setting.carry, transfer=transfer)
    seen = run(latency=setting.seen, rounds=setting.seen_rounds, rng=seeds[0])
    held = run(latency=setting.held, rounds=setting.held_rounds, rng=seeds[1])
    size = float((np.asarray(code.blocks)[code.messages.block] * code.messages.bits).mean() / FULL_BITS)
    return seen.time.mean, held.time.values, held.messages.mean, size, transfer


def _candidate(plan: Plan, exact: bool, wait: NDArray[np.float64], scored: Scored, carry: bool) -> Candidate:
    seen, times, messages, size, transfer = scored
    sample = Sample(times, carry)
    saving, interval = saving_of(times, wait, carry)
    about = plan.name, plan, exact, seen, sample.mean, sample.ci95, saving, interval
    return Candidate(*about, messages, messages * size, transfer)


def _advice(
    candidates: list[Candidate], trace: Trace | None, why: Cause | None, setting: Setting, worth: float, blocks: bool
) -> Advice:
    """The exact scheme that was best on the rounds seen, if it also saves time on the others."""
    wait = candidates[0]
    best = min((c for c in candidates if c.exact and (blocks or not in_blocks(c))), key=lambda c: c.seen)
    helps = best is not wait and best.saving_ci95[0] > worth
    if not np.isfinite(best.time):
        why_not = "Cannot predict: with every exact scheme some rounds never end, for workers finish nothing in them."
        return Advice(why_not, tuple(_reasons(trace, why)), None, (), why, trace is not None)
    reasons = [*_reasons(trace, why), *_outcome(best, wait, worth)]
    reasons += _about_blocks(candidates, best)
    reasons += about_handed(candidates, best, setting.seen, setting.n, trace, setting.told)
    if helps and not np.isfinite(wait.time):
        verdict = f"Use {best.name}: waiting for all never ends, for workers finish nothing in some rounds."
    elif helps:
        low, high = best.saving_ci95
        name = best.name if best.transfer == "push" else f'{best.name} with transfer="pull"'
        verdict = f"Use {name}: saves {100 * low:.1f} to {100 * high:.1f} % of the time of waiting for all."
    else:
        verdict = "Coding does not help here: wait for all."
    ranking = tuple(sorted(candidates, key=lambda c: c.time))
    return Advice(verdict, tuple(reasons), best if helps else None, ranking, why, trace is not None)


def in_blocks(candidate: Candidate) -> bool:
    """Whether it is a block code, as far as its parts have to be computed in turn."""
    return len(candidate.plan.code.blocks) > 1


def _about_blocks(candidates: list[Candidate], best: Candidate) -> Iterator[str]:
    """What block codes presume, where one is chosen, or would be."""
    presumed = "parts of the gradient can be computed in turn, at a cost in proportion to their size"
    faster = min((c for c in candidates if c.exact and in_blocks(c) and c.seen < best.seen), key=lambda c: c.seen, default=None)
    if in_blocks(best):
        yield f"blocks presume that {presumed}"
    elif faster is not None:
        yield f"{faster.name} would save {100 * faster.saving:.1f} % if {presumed} (blocks=True)"


def _distinct(candidates: list[Candidate]) -> list[Candidate]:
    """The first of those that do the same: equal times and messages."""
    first: dict[tuple[float, ...], Candidate] = {}
    for candidate in candidates:
        first.setdefault((candidate.seen, candidate.time, candidate.messages, candidate.volume), candidate)
    return list(first.values())


def _reasons(trace: Trace | None, why: Cause | None) -> Iterator[str]:
    if trace is None or why is None:
        return
    yield f"lateness: {why}"
    if why.kind == "persistent":
        yield f"replace worker {why.slowest}, or give it less data, before coding"
    if why.kind == "tasks":
        yield "a copy of slow data is as slow elsewhere, so the data are scored, not the workers; balance the batches instead"


def _outcome(best: Candidate, wait: Candidate, worth: float) -> Iterator[str]:
    if best is wait:
        yield "on the rounds used for choosing, no exact scheme was faster than waiting for all"
        return
    low, high = best.saving_ci95
    saves = f"saves {100 * best.saving:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)" if np.isfinite(wait.time) else "ends"
    yield (
        f"chosen: {best.name}; on rounds that it was not chosen on it {saves} and sends {best.volume:.1f} gradients per round"
    )
    if low <= worth and high > 0:
        yield f"that is not surely {100 * worth:.0f} % or more, the least that is worth the trouble (worth=)"
