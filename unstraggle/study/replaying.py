"""replay() feeds arrivals one by one through a real Round: the slow twin of `simulate`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from ..runtime.events import Arrived, Elapsed, Event
from ..runtime.instructions import Cancel
from ..runtime.round import Round
from ..runtime.states import State
from ..runtime.terms import Terms, Transfer, require_transfer
from ..scheme.arrivals import checked, no_way
from ..scheme.busy import Busy
from ..scheme.code import Code
from ..scheme.decoders import TOLERANCE
from ..scheme.recovery import By, Sending
from ..scheme.stop import Planned, Stop, code_and_stop
from .rounds import Rounds, Sample

Result = tuple[NDArray[Any], ...]
"""Ends of the rounds, messages sent, whether the gradient was exact, its relative error, and notes where these are counted."""


@door
def replay(
    code: Code | Planned,
    times: NDArray[np.float64],
    stop: Stop | None = None,
    *,
    by: By | None = None,
    sending: Sending = "all",
    carry: bool = False,
    transfer: Transfer = "push",
) -> Rounds:
    """Feed (R, M) arrival times, one event after the other, through a real `Round`: the slow twin of `simulate`.

    carry: the times are the (R, T) seconds that tasks take, and workers stay in those that they are in when a round ends. So
    they are for codes that hand out tasks, with carry-over and without. transfer: with "pull" they are those of notes, and
    payloads are fetched in no time.
    """
    code, stop = code_and_stop(code, stop, by)
    width = len(code.tasks) if carry or code.handing is not None else len(code.messages)
    if np.shape(times)[1:] != (width,):
        what = "seconds of tasks" if width == len(code.tasks) else "arrival times"
        raise Invalid(f"replay needs {what} (rounds, {width}), but got shape {np.shape(times)}.")
    checked(times, "replay")
    if code.handing is not None:
        from .handed import replayed

        return Rounds(code.name, *(Sample(values, carry) for values in exact(*replayed(code, times, carry))))
    terms = Terms(sending=sending, transfer=require_transfer(transfer))
    rounds = _replay_chain(code, stop, terms, times) if carry else replay_rounds(code, stop, terms, times)
    return Rounds(code.name, *(Sample(values, carry) for values in told(rounds)))


def replay_rounds(code: Code, stop: Stop, terms: Terms, arrivals: NDArray[np.float64]) -> list[Round]:
    return [_replay_round(Round(code, stop, terms=terms), row)[0] for row in arrivals]


def _replay_chain(code: Code, stop: Stop, terms: Terms, durations: NDArray[np.float64]) -> list[Round]:
    """Rounds that follow one another, each beginning when the one before ended."""
    busy, ended = Busy(code.n), []
    for row in durations:
        round, cancelled = _replay_round(Round(code, stop, terms=terms), busy.begin(code, row))
        for worker, time in cancelled.items():
            busy.stop((worker,), time)
        busy.end(_end(round))
        ended.append(round)
    return ended


def _end(round: Round) -> float:
    return np.inf if round.time is None or round.state is State.FAILED else float(round.time)


def told(ended: list[Round]) -> Result:
    times = np.array([_end(round) for round in ended])
    sent = np.array([int(round.got.sum()) for round in ended])
    counted = [np.array([round.notes for round in ended])] if ended and ended[0].terms.transfer == "pull" else []
    return times, sent, *worth(times, np.array([round.decoded.residual for round in ended])), *counted


def exact(times: NDArray[np.float64], sent: NDArray[Any], residual: NDArray[np.float64]) -> Result:
    return times, sent, *worth(times, residual)


def worth(times: NDArray[np.float64], residual: NDArray[np.float64]) -> Result:
    """Whether gradients are exact, and their errors: a round that never ends has none."""
    ended = np.isfinite(times)
    return ended & (residual <= TOLERANCE), np.where(ended, residual, np.nan)


def _replay_round(round: Round, arrivals: NDArray[np.float64]) -> tuple[Round, dict[int, float]]:
    """Drive one round: messages in order of time, equal times together, alarms in between, cancelled workers silent; and when
    workers were cancelled."""
    if round.terms.transfer == "pull":
        from .pulled import replay_pulled

        return replay_pulled(round, arrivals, no_way(round.code))
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
