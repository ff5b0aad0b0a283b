"""simulate() draws rounds and evaluates them all at once; replay() feeds arrivals one by one through a real Round."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..randomness import Seed, generator
from ..runtime.events import Arrived, Elapsed, Event
from ..runtime.round import Round, State, require_load, require_stop_by
from ..scheme.arrivals import Latency, Resumes, Speeds, checked
from ..scheme.code import Code
from ..scheme.recovery import By, Load, require_by
from ..scheme.stop import Recovered, Stop
from ..statistics import NORMAL_975
from ..threads import cores
from .rounds import Rounds, Sample

CHUNK = 8192
"""Rounds drawn from one random stream. Fixed, so that results depend on neither threads nor memory."""

CHUNK_BYTES = 1 << 25
"""Memory for the arrival times that a thread holds at once."""

Result = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Ends of the rounds, messages sent, and whether the gradient was exact."""


def simulate(
    code: Code,
    latency: Latency,
    stop: Stop | None = None,
    *,
    rounds: int = 10_000,
    rng: Seed = None,
    by: By = "rule",
    load: Load = "all",
    precision: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rounds:
    """Simulate rounds of a code under a latency model.

    stop: when a round ends, by default as soon as the gradient is recovered `by` rule or span (with another stop rule, `by`
    says which rounds count as exact). load: count "all" messages up to the end of the round, or let a cluster stop sending
    when it is recovered ("cluster_stop"). precision: end early once the 95 % interval of the mean time is within that
    fraction of it. Equal seeds give equal draws, also for different codes on the same number of workers.

    >>> from unstraggle.codes import cyclic_repetition
    >>> from unstraggle.latency import ShiftedExponential
    >>> result = simulate(cyclic_repetition(40, s=9), ShiftedExponential(rate=10, shift=0.01), rounds=20_000, rng=1)
    >>> round(result.time.mean, 2), result.messages.mean
    (1.55, 31.0)
    """
    if rounds < 1 or (precision is not None and not precision > 0):
        raise Invalid(f"simulate needs rounds >= 1 and precision > 0, but got rounds={rounds}, precision={precision}.")
    stop = _stop(code, stop, by)
    if require_load(load) == "cluster_stop":
        require_stop_by(stop)
    result = _collect(partial(_chunk, code, latency, stop, by, load), rounds, generator(rng), precision, threads, progress)
    return Rounds(code.name, Sample(result[0]), Sample(result[1]), Sample(result[2]))


def replay(
    code: Code, arrivals: NDArray[np.float64], stop: Stop | None = None, *, by: By = "rule", load: Load = "all"
) -> Rounds:
    """Feed (R, M) arrival times, one event after the other, through a real `Round`: the slow twin of `simulate`."""
    stop = _stop(code, stop, by)
    checked(arrivals, "replay")
    ended = [_replay_round(Round(code, stop, load=load), row) for row in arrivals]
    exact = [round.recovered(stop.by if isinstance(stop, Recovered) else by) for round in ended]
    sent = [int(round.got.sum()) for round in ended]
    times = [np.inf if round.time is None or round.state is State.FAILED else round.time for round in ended]
    return Rounds(code.name, Sample(np.array(times)), Sample(np.array(sent)), Sample(np.array(exact)))


def _stop(code: Code, stop: Stop | None, by: By) -> Stop:
    require_by(code.decoder, by)
    return Recovered(by) if stop is None else stop


def _collect(
    chunk: Callable[[int, int, np.random.Generator], Result],
    rounds: int,
    rng: np.random.Generator,
    precision: float | None,
    threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> Result:
    """Run chunks on threads, take their results in order, and stop when the mean is known well enough."""
    result: Result = (np.empty(rounds), np.empty(rounds, dtype=np.int32), np.empty(rounds, dtype=bool))
    done = 0
    for piece in _in_order(chunk, rounds, rng, threads or cores()):
        for whole, values in zip(result, piece, strict=True):
            whole[done : done + len(values)] = values
        done += len(piece[0])
        if progress:
            progress(done, rounds)
        if precision and _precise(result[0][:done], precision):
            break
    return result[0][:done], result[1][:done], result[2][:done]


def _in_order(
    chunk: Callable[[int, int, np.random.Generator], Result], rounds: int, rng: np.random.Generator, threads: int
) -> Iterator[Result]:
    starts = range(0, rounds, CHUNK)
    if len(starts) == 1 or threads == 1:
        yield from (chunk(at, min(CHUNK, rounds - at), rng.spawn(1)[0]) for at in starts)
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for at in starts:
                waiting.append(pool.submit(chunk, at, min(CHUNK, rounds - at), rng.spawn(1)[0]))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _precise(times: NDArray[np.float64], precision: float) -> bool:
    sample = Sample(times)
    return NORMAL_975 * sample.se <= precision * sample.mean


def _chunk(
    code: Code, latency: Latency, stop: Stop, by: By, load: Load, first: int, rounds: int, rng: np.random.Generator
) -> Result:
    """Rounds from one random stream, in pieces that fit into memory."""
    fused = stop == Recovered("rule") and isinstance(latency, Speeds) and latency.speeds(code.n, 0, rng) is not None
    width = code.n if fused else max(len(code.messages), len(code.tasks))
    step = max(1, CHUNK_BYTES // (8 * width))
    pieces = []
    for at in range(0, rounds, step):
        model, size = _from_round(latency, first + at), min(step, rounds - at)
        if fused:
            pieces.append(_fused_piece(code, model, load, size, rng))
        else:
            pieces.append(_piece(code, checked(model.sample(code, size, rng), latency), stop, by, load))
    times, sent, exact = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return times, sent, exact


def _from_round(latency: Any, first: int) -> Any:
    """The model from a later round on, for models that replay rounds in order."""
    return latency.from_round(first) if first and isinstance(latency, Resumes) else latency


def _fused_piece(code: Code, latency: Any, load: Load, rounds: int, rng: np.random.Generator) -> Result:
    """Rounds in which every worker has one speed: the kernel scales it, and no arrival is written down."""
    from ..scheme import recovery_times as kernels

    times, sent = kernels.rule_rounds(code, checked(latency.speeds(code.n, rounds, rng), latency), load, speeds=True)
    return times, sent, np.isfinite(times)


def _piece(code: Code, arrivals: NDArray[np.float64], stop: Stop, by: By, load: Load) -> Result:
    from ..scheme import recovery_times as kernels

    if stop == Recovered("rule"):
        times, sent = kernels.rule_rounds(code, arrivals, load)
        return times, sent, np.isfinite(times)
    if stop == Recovered("span"):
        return _span_piece(code, arrivals, load)
    times = stop.time(code, arrivals)
    recovered = Recovered(by).time(code, arrivals)
    exact = (recovered <= times) & np.isfinite(recovered)
    return times, _sent(arrivals, times[:, None]), exact


def _span_piece(code: Code, arrivals: NDArray[np.float64], load: Load) -> Result:
    from ..scheme import recovery_times as kernels

    part_times = kernels.span_part_times(code, arrivals)
    times = part_times.max(axis=1)
    ends = times[:, None]
    if load == "cluster_stop":
        ends = np.stack([part_times[:, list(parts)].max(axis=1) for parts in kernels.served_parts(code)], axis=1)
        ends = ends[:, code.messages.worker]
    return times, _sent(arrivals, ends), np.isfinite(times)


def _sent(arrivals: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.int32]:
    """(R,) messages that arrived by the end; those that never arrive do not count."""
    return np.asarray(((arrivals <= ends) & (arrivals < np.inf)).sum(axis=1, dtype=np.int32))


def _replay_round(round: Round, arrivals: NDArray[np.float64]) -> Round:
    """Drive one round: messages in order of time, equal times together, alarms in between, cancelled workers silent."""
    order = np.argsort(arrivals, kind="stable")
    groups = np.split(order, np.flatnonzero(arrivals[order][1:] != arrivals[order][:-1]) + 1)
    senders, silent = round.code.messages.worker, np.zeros(round.code.n, dtype=bool)
    for group in groups:
        time = float(arrivals[group[0]])
        _ring(round, time)
        heard = [int(m) for m in group if not silent[senders[m]]]
        if not round.open or time == np.inf:
            break
        events: list[Event] = [Arrived(m, time) for m in heard]
        for cancel in round.feed(*events):
            silent[list(cancel.workers)] = True
    _ring(round, np.inf)
    return round


def _ring(round: Round, until: float) -> None:
    """Let every alarm before `until` go off."""
    while round.open:
        alarm = round.stop.alarm(round)
        if alarm is None or alarm >= until or alarm <= round.clock:
            return
        round.feed(Elapsed(alarm))
