"""Rounds whose messages are announced and fetched (`transfer="pull"`): all at once, and event by event through a `Round`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..engines.virtual_fetches import VirtualFetches
from ..latency.network import in_turn
from ..runtime.events import Announced, Arrived, Elapsed, Event
from ..runtime.instructions import Instruction, Tell
from ..runtime.round import Round
from ..runtime.states import State
from ..scheme.arrivals import Way
from ..scheme.code import Code
from ..scheme.fetching import sure_of, to_fetch

Times = NDArray[np.float64]


def fetched(code: Code, way: Way, notes: Times, met: Times) -> tuple[Times, NDArray[np.bool_]]:
    """(R,) ends of rounds, and (R, M) the payloads that were fetched.

    notes: (R, M) when messages were announced. met: (R,) when the stop rule was met by that. What is sure to be used is asked
    for as soon as it is announced, else when the stop rule is met.
    """
    wanted = to_fetch(code, (notes <= met[:, None]) & (notes < np.inf), notes)
    asked = notes if sure_of(code) is not None else np.broadcast_to(met[:, None], notes.shape)
    heard = np.where(wanted, asked + way.word, np.inf)
    come = in_turn(_own_links(code, way, heard), way.master) if way.master.any() else _own_links(code, way, heard)
    last = np.where(wanted, come + way.word, 0.0).max(axis=1, initial=0.0)
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


def replay_pulled(round: Round, notes: Times, way: Way) -> Round:
    """Drive one round, event by event: notes at their times (M,), and what the round asks for on its way."""
    fetches, senders = VirtualFetches(round.code, way), round.code.messages.worker
    order = [int(m) for m in np.argsort(notes, kind="stable") if notes[m] < np.inf]
    while round.open:
        time = min(float(notes[order[0]]) if order else np.inf, fetches.soonest)
        if (alarm := _alarm(round, time)) is not None:
            _follow(round.feed(Elapsed(alarm)), fetches, alarm)
            continue
        if time == np.inf:
            break
        events: list[Event] = []
        while order and notes[order[0]] == time:
            events.append(Announced(int(senders[order[0]]), order[0], time))
            del order[0]
        events += [Arrived(m, time, ticket=ticket) for m, ticket in fetches.take(time)]
        if events:
            _follow(round.feed(*events), fetches, time)
    return round


def _follow(instructions: tuple[Instruction, ...], fetches: VirtualFetches, clock: float) -> None:
    for one in instructions:
        if isinstance(one, Tell):
            fetches.ask(one, clock)


def _alarm(round: Round, until: float) -> float | None:
    """The next alarm of the stop rule before a time; one that was met has none."""
    alarm = round.stop.alarm(round) if round.state is not State.FETCHING else None
    return None if alarm is None or alarm >= until or alarm <= round.clock else alarm
