"""simulate() draws rounds and evaluates them all at once; replay() feeds arrivals one by one through a real Round."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from ..runtime.events import Arrived, Elapsed, Event
from ..runtime.instructions import Cancel
from ..runtime.round import Round, Terms, require_sending, require_stop_by
from ..runtime.states import State
from ..scheme.arrivals import Latency, Resumes, Speeds, checked
from ..scheme.code import Code
from ..scheme.decoders import TOLERANCE
from ..scheme.recovery import By, Sending
from ..scheme.stop import Planned, Recovered, Stop, code_and_stop, ends, vectorised
from ..statistics import NORMAL_975
from ..threads import cores
from .rounds import Rounds, Sample

CHUNK = 8192
"""Rounds drawn from one random stream. Fixed, so that results depend on neither threads nor memory."""

CHUNK_BYTES = 1 << 25
"""Memory for the arrival times that a thread holds at once."""

Result = tuple[NDArray[Any], ...]
"""Ends of the rounds, messages sent, whether the gradient was exact, and its relative error."""


MOST_ROUNDS = 10**9
"""More do not fit into memory."""


@door
def simulate(
    code: Code | Planned,
    latency: Latency,
    stop: Stop | None = None,
    *,
    rounds: int = 10_000,
    rng: Seed = None,
    by: By | None = None,
    sending: Sending = "all",
    precision: float | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Rounds:
    """Simulate rounds of a code, or of a plan with its stop rule, under a latency model.

    stop: when a round ends, by default as soon as the gradient is recovered `by` the code's rule, or by span where it has none.
    Which rounds are exact is the decoder's word, as in a live run. sending: count "all" messages up to the end of the round, or
    let a cluster stop sending when it is recovered ("cluster_stop"). precision: end early once the 95 % interval of the mean
    time is within that fraction of it. Equal seeds give equal draws, also for different codes on the same number of workers.

    >>> from unstraggle.codes import cyclic_repetition
    >>> from unstraggle.latency import ShiftedExponential
    >>> result = simulate(cyclic_repetition(40, s=9), ShiftedExponential(rate=10, shift=0.01), rounds=20_000, rng=1)
    >>> round(result.time.mean, 2), result.messages.mean
    (1.55, 31.0)
    """
    if not 1 <= rounds <= MOST_ROUNDS or (precision is not None and not precision > 0):
        raise Invalid(
            f"simulate needs rounds >= 1, at most {MOST_ROUNDS}, and precision > 0, but got {rounds} and {precision}."
        )
    code, stop = code_and_stop(code, stop, by)
    if require_sending(sending) == "cluster_stop":
        require_stop_by(stop)
    result = _collect(partial(_chunk, code, latency, stop, sending), rounds, generator(rng), precision, threads, progress)
    return Rounds(code.name, *map(Sample, result))


@door
def replay(
    code: Code | Planned,
    arrivals: NDArray[np.float64],
    stop: Stop | None = None,
    *,
    by: By | None = None,
    sending: Sending = "all",
) -> Rounds:
    """Feed (R, M) arrival times, one event after the other, through a real `Round`: the slow twin of `simulate`."""
    code, stop = code_and_stop(code, stop, by)
    if np.shape(arrivals)[1:] != (len(code.messages),):
        raise Invalid(f"replay needs arrival times (rounds, {len(code.messages)}), but got shape {np.shape(arrivals)}.")
    checked(arrivals, "replay")
    return Rounds(code.name, *map(Sample, _replayed(code, stop, sending, arrivals)))


def _replayed(code: Code, stop: Stop, sending: Sending, arrivals: NDArray[np.float64]) -> Result:
    ended = [_replay_round(Round(code, stop, terms=Terms(sending=sending)), row) for row in arrivals]
    times = np.array([np.inf if round.time is None or round.state is State.FAILED else round.time for round in ended])
    sent = np.array([int(round.got.sum()) for round in ended])
    return times, sent, *_worth(times, np.array([round.decoded.residual for round in ended]))


def _collect(
    chunk: Callable[[int, int, np.random.Generator], Result],
    rounds: int,
    rng: np.random.Generator,
    precision: float | None,
    threads: int | None,
    progress: Callable[[int, int], None] | None,
) -> Result:
    """Run chunks on threads, take their results in order, and stop when the mean is known well enough."""
    kinds = (np.float64, np.int32, np.bool_, np.float64)
    result: Result = tuple(np.empty(rounds, dtype=kind) for kind in kinds)
    done = 0
    for piece in _in_order(chunk, rounds, rng, threads or cores()):
        for whole, values in zip(result, piece, strict=True):
            whole[done : done + len(values)] = values
        done += len(piece[0])
        if progress:
            progress(done, rounds)
        if precision and _precise(result[0][:done], precision):
            break
    return tuple(whole[:done] for whole in result)


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
    code: Code, latency: Latency, stop: Stop, sending: Sending, first: int, rounds: int, rng: np.random.Generator
) -> Result:
    """Rounds from one random stream, in pieces that fit into memory."""
    fused = stop == Recovered("rule") and isinstance(latency, Speeds) and latency.speeds(code.n, 0, rng) is not None
    width = code.n if fused else max(len(code.messages), len(code.tasks))
    step = max(1, CHUNK_BYTES // (8 * width))
    pieces = []
    for at in range(0, rounds, step):
        model, size = _from_round(latency, first + at), min(step, rounds - at)
        if fused:
            pieces.append(_fused_piece(code, model, sending, size, rng))
        else:
            pieces.append(_piece(code, checked(model.sample(code, size, rng), latency), stop, sending))
    return tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


def _from_round(latency: Any, first: int) -> Any:
    """The model from a later round on, for models that replay rounds in order."""
    return latency.from_round(first) if first and isinstance(latency, Resumes) else latency


def _fused_piece(code: Code, latency: Any, sending: Sending, rounds: int, rng: np.random.Generator) -> Result:
    """Rounds in which every worker has one speed: the kernel scales it, and no arrival is written down."""
    from ..scheme import recovery_times

    speeds = checked(latency.speeds(code.n, rounds, rng), latency)
    return _recovered(*recovery_times.rule_rounds(code, speeds, sending, speeds=True))


def _piece(code: Code, arrivals: NDArray[np.float64], stop: Stop, sending: Sending) -> Result:
    from ..scheme import recovery_times

    if stop == Recovered("rule"):
        return _recovered(*recovery_times.rule_rounds(code, arrivals, sending))
    if stop == Recovered("span"):
        return _span_piece(code, arrivals, sending)
    if not vectorised(stop):
        return _replayed(code, stop, sending, arrivals)
    times = ends(stop, code, arrivals)
    residual = _residuals(code, (arrivals <= times[:, None]) & (arrivals < np.inf))
    return times, _sent(arrivals, times[:, None]), *_worth(times, residual)


def _recovered(times: NDArray[np.float64], sent: NDArray[np.int32]) -> Result:
    """Rounds that end when the gradient is exact: what is left of its error is rounding."""
    return times, sent, *_worth(times, np.zeros(len(times)))


def _worth(times: NDArray[np.float64], residual: NDArray[np.float64]) -> Result:
    """Whether gradients are exact, and their errors: a round that never ends has none."""
    ended = np.isfinite(times)
    return ended & (residual <= TOLERANCE), np.where(ended, residual, np.nan)


def _span_piece(code: Code, arrivals: NDArray[np.float64], sending: Sending) -> Result:
    from ..scheme import recovery_times

    part_times = recovery_times.span_part_times(code, arrivals)
    times = part_times.max(axis=1)
    ends = times[:, None]
    if sending == "cluster_stop":
        ends = np.stack([part_times[:, list(parts)].max(axis=1) for parts in recovery_times.served_parts(code)], axis=1)
        ends = ends[:, code.messages.worker]
    return _recovered(times, _sent(arrivals, ends))


def _residuals(code: Code, got: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(R,) relative errors of (R, M) arrived sets: the decoder is asked once for sets that are equal."""
    _, first, place = np.unique(np.packbits(got, axis=1), axis=0, return_index=True, return_inverse=True)
    return np.asarray(code.decoder.residual(got[first])[place.ravel()])


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
        for one in round.feed(*events):
            if isinstance(one, Cancel):
                silent[list(one.workers)] = True
    _ring(round, np.inf)
    return round


def _ring(round: Round, until: float) -> None:
    """Let every alarm before `until` go off."""
    while round.open:
        alarm = round.stop.alarm(round)
        if alarm is None or alarm >= until or alarm <= round.clock:
            return
        round.feed(Elapsed(alarm))
