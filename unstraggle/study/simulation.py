"""simulate() draws rounds and evaluates them all at once; replay() of `replaying` is its slow twin."""

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
from ..runtime.round import Round
from ..runtime.terms import Terms, Transfer, require_sending, require_stop_by, require_transfer
from ..scheme.arrivals import (
    Latency,
    Resumes,
    Speeds,
    checked,
    computing,
    delivered,
    noted,
    notes,
    task_seconds,
    way_of,
)
from ..scheme.code import Code
from ..scheme.decoders import parts_of
from ..scheme.recovery import By, Sending, recovery_of
from ..scheme.stop import Planned, Recovered, Stop, code_and_stop, ends, vectorised
from ..statistics import NORMAL_975
from ..threads import cores
from .replaying import Result, exact, replay_rounds, told, worth
from .rounds import Rounds, Sample

CHUNK = 8192
"""Rounds drawn from one random stream. Fixed, so that results depend on neither threads nor memory."""

CHUNK_BYTES = 1 << 25
"""Memory for the arrival times that a thread holds at once."""


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
    carry: bool = False,
    transfer: Transfer = "push",
) -> Rounds:
    """Simulate rounds of a code, or of a plan with its stop rule, under a latency model.

    stop: when a round ends, by default as soon as the gradient is recovered `by` the code's rule, or by span where it has none.
    Which rounds are exact is the decoder's word, as in a live run. sending: count "all" messages up to the end of the round, or
    let a cluster stop sending when it is recovered ("cluster_stop"). precision: end early once the 95 % interval of the mean
    time is within that fraction of it. Equal seeds give equal draws, also for different codes on the same number of workers.

    carry: a task cannot be interrupted, so that a worker that is inside one when a round ends begins the next one late: rounds
    follow one another, as in a live run, and planners go by that. Without it every round starts with free workers, as in the
    papers and their closed forms, which is too fast for codes whose workers have more to do when a round ends.

    transfer: "pull" lets workers announce their messages; those that the decoder will use are fetched, at the cost of a round
    trip (`latency.Network`). `notes` counts what was announced, `messages` what was fetched. A cluster that stops fetches
    when it is recovered by what was announced, and lets its workers go when that is here.

    >>> from unstraggle.codes import cyclic_repetition
    >>> from unstraggle.latency import ShiftedExponential
    >>> result = simulate(cyclic_repetition(40, s=9), ShiftedExponential(rate=10, shift=0.01), rounds=20_000, rng=1)
    >>> round(result.time.mean, 2), result.messages.mean
    (1.55, 31.0)
    >>> round(simulate(cyclic_repetition(40, s=9), ShiftedExponential(10, 0.01), rounds=20_000, rng=1, carry=True).time.mean, 2)
    1.58
    """
    if not 1 <= rounds <= MOST_ROUNDS or (precision is not None and not precision > 0):
        raise Invalid(
            f"simulate needs rounds >= 1, at most {MOST_ROUNDS}, and precision > 0, but got {rounds} and {precision}."
        )
    code, stop = code_and_stop(code, stop, by)
    if require_sending(sending) == "cluster_stop":
        require_stop_by(stop)
    pull = require_transfer(transfer) == "pull" and code.handing is None
    chunk = partial(_chained_chunk if carry else _chunk, code, latency, stop, sending, pull)
    if code.handing is not None:
        chunk = partial(_handed_chunk, code, latency, carry)
    elif carry:
        threads = 1  # a chain is many short calls: threads would fight for Python's lock, which takes 2.6 times the processor
    result = _collect(chunk, rounds, generator(rng), precision, threads, progress, carry, pull)
    return Rounds(code.name, *(Sample(values, carry) for values in result))


def _collect(
    chunk: Callable[[int, int, np.random.Generator], Result],
    rounds: int,
    rng: np.random.Generator,
    precision: float | None,
    threads: int | None,
    progress: Callable[[int, int], None] | None,
    chained: bool,
    pull: bool,
) -> Result:
    """Run chunks on threads, take their results in order, and stop when the mean is known well enough."""
    kinds = (np.float64, np.int32, np.bool_, np.float64, *([np.int32] if pull else []))
    result: Result = tuple(np.empty(rounds, dtype=kind) for kind in kinds)
    done = 0
    for piece in _in_order(chunk, rounds, rng, threads or cores()):
        for whole, values in zip(result, piece, strict=True):
            whole[done : done + len(values)] = values
        done += len(piece[0])
        if progress:
            progress(done, rounds)
        if precision and _precise(Sample(result[0][:done], chained), precision):
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


def _precise(sample: Sample, precision: float) -> bool:
    return NORMAL_975 * sample.se <= precision * sample.mean


def _chunk(
    code: Code, latency: Latency, stop: Stop, sending: Sending, pull: bool, first: int, rounds: int, rng: np.random.Generator
) -> Result:
    """Rounds from one random stream, in pieces that fit into memory."""
    one_speed = isinstance(latency, Speeds) and latency.speeds(code.n, 0, rng) is not None
    fused = stop == Recovered("rule") and one_speed and not pull
    width = code.n if fused else max(len(code.messages), len(code.tasks))
    step = max(1, CHUNK_BYTES // (8 * width))
    pieces = []
    for at in range(0, rounds, step):
        model, size = _from_round(latency, first + at), min(step, rounds - at)
        if fused:
            pieces.append(_fused_piece(code, model, sending, size, rng))
        elif pull:
            pieces.append(_pulled_piece(code, latency, notes(model, code, size, rng), stop, sending)[0])
        else:
            pieces.append(_piece(code, checked(model.sample(code, size, rng), latency), stop, sending))
    return tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


def _chained_chunk(
    code: Code, latency: Latency, stop: Stop, sending: Sending, pull: bool, first: int, rounds: int, rng: np.random.Generator
) -> Result:
    """Rounds from one random stream that follow one another; the first one starts with free workers."""
    from .carry import chained

    free, pieces = np.zeros(code.n), []
    one_speed = isinstance(latency, Speeds) and latency.speeds(code.n, 0, rng) is not None
    step = max(1, CHUNK_BYTES // (8 * (code.n if one_speed else len(code.tasks))))
    play = partial(_play, code, latency, stop, sending, pull)
    for at in range(0, rounds, step):
        model, size = _from_round(latency, first + at), min(step, rounds - at)
        piece, free = chained(size, _work(code, model, size, rng, one_speed), play, free)
        pieces.append(piece)
    return tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


def _handed_chunk(code: Code, latency: Any, carry: bool, first: int, rounds: int, rng: np.random.Generator) -> Result:
    """Rounds of a code that hands out tasks, from one random stream and one after the other."""
    from .handed import handed

    free, pieces = np.zeros(code.n), []
    model = computing(latency)
    one_speed = isinstance(model, Speeds) and model.speeds(code.n, 0, rng) is not None
    step = max(1, CHUNK_BYTES // (8 * (code.n if one_speed else len(code.tasks))))
    for at in range(0, rounds, step):
        size = min(step, rounds - at)
        times, sent, free = handed(code, _from_round(latency, first + at), size, rng, free, carry)
        pieces.append(exact(times, sent, np.zeros(size)))
    return tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


def _work(code: Code, latency: Any, rounds: int, rng: np.random.Generator, one_speed: bool) -> Any:
    """When tasks end; where a worker has one speed in a round, their times are not written out."""
    from .carry import OneSpeed, OwnTimes

    queues = _queues(code)
    if not one_speed:
        return OwnTimes(task_seconds(latency, code, rounds, rng), queues)
    speeds = checked(latency.speeds(code.n, rounds, rng), latency)
    return OneSpeed(speeds, np.append(code.tasks.work, 0.0)[queues].cumsum(axis=1))


def _queues(code: Code) -> NDArray[np.int64]:
    """(n, longest) task numbers of all workers, also of those behind the last that has any."""
    missing = code.n - len(code.tasks.queues)
    return np.pad(code.tasks.queues, ((0, missing), (0, 0)), constant_values=-1)


def _play(
    code: Code, latency: Any, stop: Stop, sending: Sending, pull: bool, finish: NDArray[np.float64]
) -> tuple[Result, NDArray[np.float64]]:
    """Rounds from the ends of their tasks, and when workers are told to stop."""
    place = code.messages.worker * finish.shape[2] + code.messages.after - 1
    arrivals = finish.reshape(len(finish), -1).take(place, axis=1)
    if pull:
        return _pulled_piece(code, latency, noted(latency, code, arrivals), stop, sending)
    arrivals = delivered(latency, code, arrivals)
    result = _piece(code, arrivals, stop, sending)
    early = sending == "cluster_stop"
    return result, _released(code, _part_times(code, arrivals, stop, result[0])) if early else result[0][:, None]


def _part_times(code: Code, arrivals: NDArray[np.float64], stop: Stop, ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, parts) when the parts of a code are recovered."""
    from ..scheme import recovery_times

    if stop == Recovered("span"):
        return recovery_times.span_part_times(code, arrivals)
    rules = [(part.decoder.rule, part.messages) for part in parts_of(code.decoder)]
    return np.stack([rule.time(arrivals[:, own]) if rule else ends for rule, own in rules], axis=1)


def _released(code: Code, parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, n) when workers are told to stop because all that they serve is done, (R, parts)."""
    from ..scheme import recovery_times

    return np.stack([parts[:, list(served)].max(axis=1) for served in recovery_times.served_parts(code)], axis=1)


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
        return told(replay_rounds(code, stop, Terms(sending=sending), arrivals))
    times = ends(stop, code, arrivals)
    residual = _residuals(code, (arrivals <= times[:, None]) & (arrivals < np.inf))
    return times, _sent(arrivals, times[:, None]), *worth(times, residual)


def _pulled_piece(
    code: Code, latency: Any, notes: NDArray[np.float64], stop: Stop, sending: Sending
) -> tuple[Result, NDArray[np.float64]]:
    """Rounds whose messages were announced at these times (R, M), and are fetched; and when workers are told to stop."""
    from .pulled import fetched, replay_pulled

    way = way_of(latency, code)
    if not vectorised(stop):
        rounds = [replay_pulled(Round(code, stop, terms=Terms(transfer="pull")), row, way)[0] for row in notes]
        result = told(rounds)
        return result, result[0][:, None]
    part = recovery_of(code, require_stop_by(stop)).part if sending == "cluster_stop" else None
    met = ends(stop, code, notes)
    fetches = fetched(code, way, notes, met[:, None] if part is None else _part_times(code, notes, stop, met), part)
    return _counted(code, notes, stop, *fetches, part is not None)


def _counted(
    code: Code, notes: NDArray[np.float64], stop: Stop, ended: NDArray[np.float64], wanted: NDArray[np.bool_], early: bool
) -> tuple[Result, NDArray[np.float64]]:
    """What is kept of rounds that fetched what was `wanted` (R, M), and when workers are told to stop.

    ended: (R, 1) with the rounds, or early, (R, parts), with the parts that they serve.
    """
    over, times = _released(code, ended) if early else ended, ended.max(axis=1)
    heard = over[:, code.messages.worker] if early else over
    residual = np.zeros(len(times)) if isinstance(stop, Recovered) else _residuals(code, wanted)
    return (times, wanted.sum(axis=1, dtype=np.int32), *worth(times, residual), _sent(notes, heard)), over


def _recovered(times: NDArray[np.float64], sent: NDArray[np.int32]) -> Result:
    """Rounds that end when the gradient is exact: what is left of its error is rounding."""
    return times, sent, *worth(times, np.zeros(len(times)))


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
