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
from ..scheme.arrivals import Delivers, Latency, Resumes, Speeds, checked, computing, task_seconds
from ..scheme.busy import Busy
from ..scheme.code import Code
from ..scheme.decoders import TOLERANCE, parts_of
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
    carry: bool = False,
) -> Rounds:
    """Simulate rounds of a code, or of a plan with its stop rule, under a latency model.

    stop: when a round ends, by default as soon as the gradient is recovered `by` the code's rule, or by span where it has none.
    Which rounds are exact is the decoder's word, as in a live run. sending: count "all" messages up to the end of the round, or
    let a cluster stop sending when it is recovered ("cluster_stop"). precision: end early once the 95 % interval of the mean
    time is within that fraction of it. Equal seeds give equal draws, also for different codes on the same number of workers.

    carry: a task cannot be interrupted, so that a worker that is inside one when a round ends begins the next one late: rounds
    follow one another, as in a live run, and planners go by that. Without it every round starts with free workers, as in the
    papers and their closed forms, which is too fast for codes whose workers have more to do when a round ends.

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
    chunk = partial(_chained_chunk if carry else _chunk, code, latency, stop, sending)
    if code.handing is not None:
        chunk = partial(_handed_chunk, code, latency, carry)
    elif carry:
        threads = 1  # a chain is many short calls: threads would fight for Python's lock, which takes 2.6 times the processor
    result = _collect(chunk, rounds, generator(rng), precision, threads, progress, carry)
    return Rounds(code.name, *(Sample(values, carry) for values in result))


@door
def replay(
    code: Code | Planned,
    times: NDArray[np.float64],
    stop: Stop | None = None,
    *,
    by: By | None = None,
    sending: Sending = "all",
    carry: bool = False,
) -> Rounds:
    """Feed (R, M) arrival times, one event after the other, through a real `Round`: the slow twin of `simulate`.

    carry: the times are the (R, T) seconds that tasks take, and workers stay in those that they are in when a round ends. So
    they are for codes that hand out tasks, with carry-over and without.
    """
    code, stop = code_and_stop(code, stop, by)
    width = len(code.tasks) if carry or code.handing is not None else len(code.messages)
    if np.shape(times)[1:] != (width,):
        what = "seconds of tasks" if width == len(code.tasks) else "arrival times"
        raise Invalid(f"replay needs {what} (rounds, {width}), but got shape {np.shape(times)}.")
    checked(times, "replay")
    if code.handing is not None:
        from .handed import replayed

        return Rounds(code.name, *(Sample(values, carry) for values in _exact(*replayed(code, times, carry))))
    rounds = _replay_chain(code, stop, sending, times) if carry else _replay_rounds(code, stop, sending, times)
    return Rounds(code.name, *(Sample(values, carry) for values in _told(rounds)))


def _replay_rounds(code: Code, stop: Stop, sending: Sending, arrivals: NDArray[np.float64]) -> list[Round]:
    return [_replay_round(Round(code, stop, terms=Terms(sending=sending)), row)[0] for row in arrivals]


def _replay_chain(code: Code, stop: Stop, sending: Sending, durations: NDArray[np.float64]) -> list[Round]:
    """Rounds that follow one another, each beginning when the one before ended."""
    busy, ended = Busy(code.n), []
    for row in durations:
        round, cancelled = _replay_round(Round(code, stop, terms=Terms(sending=sending)), busy.begin(code, row))
        for worker, time in cancelled.items():
            busy.stop((worker,), time)
        busy.end(_end(round))
        ended.append(round)
    return ended


def _end(round: Round) -> float:
    return np.inf if round.time is None or round.state is State.FAILED else float(round.time)


def _told(ended: list[Round]) -> Result:
    times = np.array([_end(round) for round in ended])
    sent = np.array([int(round.got.sum()) for round in ended])
    return times, sent, *_worth(times, np.array([round.decoded.residual for round in ended]))


def _collect(
    chunk: Callable[[int, int, np.random.Generator], Result],
    rounds: int,
    rng: np.random.Generator,
    precision: float | None,
    threads: int | None,
    progress: Callable[[int, int], None] | None,
    chained: bool,
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


def _chained_chunk(
    code: Code, latency: Latency, stop: Stop, sending: Sending, first: int, rounds: int, rng: np.random.Generator
) -> Result:
    """Rounds from one random stream that follow one another; the first one starts with free workers."""
    from .carry import chained

    free, pieces = np.zeros(code.n), []
    one_speed = isinstance(latency, Speeds) and latency.speeds(code.n, 0, rng) is not None
    step = max(1, CHUNK_BYTES // (8 * (code.n if one_speed else len(code.tasks))))
    play = partial(_play, code, latency if isinstance(latency, Delivers) else None, stop, sending)
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
        pieces.append(_exact(times, sent, np.zeros(size)))
    return tuple(np.concatenate(column) for column in zip(*pieces, strict=True))


def _exact(times: NDArray[np.float64], sent: NDArray[Any], residual: NDArray[np.float64]) -> Result:
    return times, sent, *_worth(times, residual)


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
    code: Code, way: Delivers | None, stop: Stop, sending: Sending, finish: NDArray[np.float64]
) -> tuple[Result, NDArray[np.float64]]:
    """Rounds from the ends of their tasks, and when workers are told to stop."""
    place = code.messages.worker * finish.shape[2] + code.messages.after - 1
    arrivals = finish.reshape(len(finish), -1).take(place, axis=1)
    if way is not None:
        arrivals = checked(way.deliver(code, arrivals), way)
    result = _piece(code, arrivals, stop, sending)
    return result, _released(code, arrivals, stop, result[0]) if sending == "cluster_stop" else result[0][:, None]


def _released(code: Code, arrivals: NDArray[np.float64], stop: Stop, ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, n) when workers are told to stop because all that they serve is recovered."""
    from ..scheme import recovery_times

    if stop == Recovered("span"):
        parts = recovery_times.span_part_times(code, arrivals)
    else:
        rules = [(part.decoder.rule, part.messages) for part in parts_of(code.decoder)]
        parts = np.stack([rule.time(arrivals[:, own]) if rule else ends for rule, own in rules], axis=1)
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
        return _told(_replay_rounds(code, stop, sending, arrivals))
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


def _replay_round(round: Round, arrivals: NDArray[np.float64]) -> tuple[Round, dict[int, float]]:
    """Drive one round: messages in order of time, equal times together, alarms in between, cancelled workers silent; and when
    workers were cancelled."""
    order = np.argsort(arrivals, kind="stable")
    groups = np.split(order, np.flatnonzero(arrivals[order][1:] != arrivals[order][:-1]) + 1)
    senders, cancelled = round.code.messages.worker, {}  # type: Any, dict[int, float]
    for group in groups:
        time = float(arrivals[group[0]])
        _ring(round, time)
        heard = [int(m) for m in group if int(senders[m]) not in cancelled]
        if not round.open or time == np.inf:
            break
        events: list[Event] = [Arrived(m, time) for m in heard]
        for one in round.feed(*events):
            if isinstance(one, Cancel):
                cancelled |= {worker: time for worker in one.workers if worker not in cancelled}
    _ring(round, np.inf)
    return round, cancelled


def _ring(round: Round, until: float) -> None:
    """Let every alarm before `until` go off."""
    while round.open:
        alarm = round.stop.alarm(round)
        if alarm is None or alarm >= until or alarm <= round.clock:
            return
        round.feed(Elapsed(alarm))
