"""Rounds whose messages are announced and fetched (`transfer="pull"`): all at once, and event by event through a `Round`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..engines.virtual_fetches import VirtualFetches
from ..latency.network import in_turn
from ..runtime.events import Announced, Arrived, Elapsed, Event
from ..runtime.instructions import Cancel, Instruction, Tell
from ..runtime.round import Round
from ..runtime.states import State
from ..scheme.arrivals import Way
from ..scheme.code import Code
from ..scheme.fetching import sure_of, to_fetch

Times = NDArray[np.float64]


def fetched(
    code: Code, way: Way, notes: Times, met: Times, part: NDArray[np.int64] | None = None
) -> tuple[Times, NDArray[np.bool_]]:
    """(R, 1) ends of rounds, and (R, M) the payloads that were fetched.

    notes: (R, M) when messages were announced. met: (R, 1) when the stop rule was met by that. What is sure to be used is asked
    for as soon as it is announced, else when the stop rule is met. part: (M,) numbers of the parts of messages, where clusters
    stop; met and ends are then those of parts, (R, parts).
    """
    of = np.zeros(notes.shape[1], dtype=np.int64) if part is None else part
    wanted = to_fetch(code, (notes <= met[:, of]) & (notes < np.inf), notes, apart=part is not None)
    asked = notes if sure_of(code) is not None else met[:, of]
    heard = np.where(wanted, asked + way.word, np.inf)
    come = in_turn(_own_links(code, way, heard), way.master) if way.master.any() else _own_links(code, way, heard)
    here = np.where(wanted, come + way.word, 0.0)
    last = np.stack([here[:, of == number].max(axis=1, initial=0.0) for number in range(met.shape[1])], axis=1)
    return np.maximum(met, last), wanted


def _own_links(code: Code, way: Way, heard: Times) -> Times:
    """(R, M) when payloads are through their workers' links, on which they queue."""
    if not way.link.any():
        return heard
    through = np.empty(heard.shape)
    for worker in range(code.n):
        mine = np.flatnonzero(code.messages.worker == worker)
        through[:, mine] = in_turn(heard[:, mine], way.link[mine])
    return through


def replay_pulled(round: Round, notes: Times, way: Way) -> tuple[Round, dict[int, float]]:
    """Drive one round, event by event: notes at their times (M,), what the round asks for on its way, cancelled workers silent;
    and when workers were cancelled."""
    fetches, senders, cancelled = VirtualFetches(round.code, way), round.code.messages.worker, dict[int, float]()
    order = [int(m) for m in np.argsort(notes, kind="stable") if notes[m] < np.inf]
    while round.open:
        time = min(float(notes[order[0]]) if order else np.inf, fetches.soonest)
        if (alarm := _alarm(round, time)) is not None:
            _follow(round.feed(Elapsed(alarm)), fetches, alarm, cancelled)
            continue
        if time == np.inf:
            break
        events: list[Event] = []
        while order and notes[order[0]] == time:
            message = order.pop(0)
            if int(senders[message]) not in cancelled:
                events.append(Announced(int(senders[message]), message, time))
        events += [Arrived(m, time, ticket=ticket) for m, ticket in fetches.take(time)]
        if events:
            _follow(round.feed(*events), fetches, time, cancelled)
    return round, cancelled


def _follow(instructions: tuple[Instruction, ...], fetches: VirtualFetches, clock: float, cancelled: dict[int, float]) -> None:
    for one in instructions:
        if isinstance(one, Tell):
            fetches.ask(one, clock)
        elif isinstance(one, Cancel):
            cancelled |= {worker: clock for worker in one.workers if worker not in cancelled}


def _alarm(round: Round, until: float) -> float | None:
    """The next alarm of the stop rule before a time; one that was met has none."""
    alarm = round.stop.alarm(round) if round.state is not State.FETCHING else None
    return None if alarm is None or alarm >= until or alarm <= round.clock else alarm
