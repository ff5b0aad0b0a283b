"""What compiled rounds of codes that hand out tasks keep: workers, partitions, and who is next.

Places stand in rows. Each row knows which of its places is next and when, so that the next of all is found by looking at rows,
and a change needs one row. Partitions that somebody is at stand in a list, those that were given first in front.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from numba import njit

NEVER, ROW = np.inf, 8
OWN, BEFORE, AT, IDLE = range(4)
"""What a worker is at: its own partitions, which need no looking at; a task of an earlier round; a task; nothing."""

untyped: Any = njit
compiled = untyped(nogil=True, cache=True, _nrt=False)
"""For functions that make no arrays: counting the references to those that they are given takes longer than what they do."""
inlined = untyped(nogil=True, inline="always")
"""For functions that take a board: handing over its many arrays takes longer than what most of them do."""

Rules = namedtuple("Rules", "task may work own first others helpers reserve")
"""Who may do what. task: (n, k) rows of the table; may: (n, k) whether there is one. work: (k,). own: partitions by owner,
those of worker i from first[i] on. others: (n, most) owners from whom a worker may take, padded with -1."""

Seconds = namedtuple("Seconds", "tasks speeds one_speed")
"""tasks: (R, T) seconds of tasks, or speeds: (R, n) of a unit of work if `one_speed`."""

Way = namedtuple("Way", "word link order master")
"""word: seconds of a word to a worker, or back. link: (n,) of a sum on its worker's link; order: (n,) workers by that.
master: of a sum on the master's link."""

Workers = namedtuple("Workers", "state high left turn length counted target beside began pace queue given free")
"""state: what each is at. left: of its own partitions, how many nobody has, the last of them high - 1; more than there are
while it is at its own. turn: how often it was free so far, while it is at its own. length: tasks before it, which stand in
queue (n, reserve + 1), and were given at `given`. counted: partitions that it was the first to do. target: what it would help
with; beside: another that would help with the same, or -1. began: its task. pace: seconds of a unit of work in the one before.
free: (n, most + 1) when it is free if it does its own partitions only. All times are those at which the master knows."""

Parts = namedtuple("Parts", "since done older newer helper")
"""since: when each was given last. done: whether it is, from when on somebody may do it again. older, newer: its neighbours in
the list, whose ends are the last entry. helper: a worker that would help with it, or -1."""

Turns = namedtuple("Turns", "keys soonest who")
"""keys: when something happens, at place w when worker w is free, and at place len(keys) / 2 + w when it begins to help.
soonest, who: of each row of places the first, and when."""


def board(rules: Rules) -> tuple[Workers, Parts, Turns]:
    """Room for a round."""
    n, k, rows = len(rules.task), len(rules.work), -(-len(rules.task) // ROW)
    whole = {name: np.zeros(n, np.int64) for name in Workers._fields[:8]}
    queue, free = np.zeros((n, rules.reserve + 1), np.int64), np.zeros((n, np.diff(rules.first).max() + 1))
    workers = Workers(**whole, began=np.zeros(n), pace=np.zeros(n), queue=queue, given=np.zeros(queue.shape), free=free)
    parts = Parts(np.zeros(k), np.zeros(k, np.bool_), *(np.zeros(k + 1, np.int64) for _ in range(3)))
    return workers, parts, Turns(np.full(2 * rows * ROW, NEVER), np.full(2 * rows, NEVER), np.zeros(2 * rows, np.int64))


@compiled
def look_through(keys, soonest, who, row):  # type: ignore[no-untyped-def]
    """What is first in a row; of equal times the lower place."""
    best, key = row * ROW, keys[row * ROW]
    for place in range(row * ROW + 1, row * ROW + ROW):
        before = keys[place] < key
        best, key = (place if before else best), (keys[place] if before else key)
    soonest[row], who[row] = key, best


@inlined
def change(turns, place, key):  # type: ignore[no-untyped-def]
    """Something happens at a place at another time."""
    turns.keys[place] = key
    look_through(turns.keys, turns.soonest, turns.who, place // ROW)


@inlined
def sooner(turns, place, key):  # type: ignore[no-untyped-def]
    """The same, and it happens sooner than it would have."""
    row = place // ROW
    turns.keys[place] = key
    if key < turns.soonest[row] or (key == turns.soonest[row] and place < turns.who[row]):
        turns.soonest[row], turns.who[row] = key, place


@inlined
def following(turns, rows):  # type: ignore[no-untyped-def]
    """The place in the first rows at which something happens next."""
    best, key = turns.who[0], turns.soonest[0]
    for row in range(1, rows):
        before = turns.soonest[row] < key
        best, key = (turns.who[row] if before else best), (turns.soonest[row] if before else key)
    return best


@inlined
def insert(parts, part):  # type: ignore[no-untyped-def]
    """Into the list: behind those that were given before; of equal times by number."""
    ends, since = len(parts.since), parts.since[part]
    after = parts.older[ends]
    while after != ends and (parts.since[after] > since or (parts.since[after] == since and after > part)):
        after = parts.older[after]
    before = parts.newer[after]
    parts.older[part], parts.newer[part] = after, before
    parts.newer[after] = part
    parts.older[before] = part


@inlined
def remove(parts, part):  # type: ignore[no-untyped-def]
    """Out of the list."""
    older, newer = parts.older[part], parts.newer[part]
    parts.newer[older] = newer
    parts.older[newer] = older
