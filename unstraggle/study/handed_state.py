"""What compiled rounds of codes that hand out tasks keep: workers, partitions, and who is next.

Who is next is found by a knock-out: workers stand in pairs, of each pair the one whose moment comes first goes on to the next
pair, and so on to the last one. When a moment changes, only the pairs on the worker's way are played again.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from numba import njit

NEVER = np.inf
NEVER_BITS = int(np.float64(NEVER).view(np.int64))
OWN, BEFORE, AT, IDLE = range(4)
"""What a worker is at: its own partitions, which need no looking at; a task of an earlier round; a task; nothing."""

untyped: Any = njit
compiled = untyped(nogil=True, cache=True, _nrt=False)
"""For functions that make no arrays: counting the references to those that they are given takes longer than what they do."""
inlined = untyped(nogil=True, inline="always")
"""For functions that take a board: handing over its many arrays takes longer than what most of them do."""

WHOLE: Any = np.int64
INDEX = np.uint32
"""For numbers of workers, partitions and places: what cannot be negative is a check less wherever it is looked up."""

Rules = namedtuple("Rules", "part owner task work uneven unit first count end others helpers reserve")
"""Who may do what. Partitions stand in places, by owner: those of worker i at count[i] places from first[i] on; end[i] is the
place behind them, and at least reserve + 2 places there are empty. part, owner: (places,) the partition and its owner. task:
(n, places) rows of the table, -1 where there is none. work: (places,), and whether it is uneven; unit: that of all, or 0.
others: (n, most) owners from whom a worker may take, padded with its own number."""

Seconds = namedtuple("Seconds", "tasks speeds one_speed")
"""tasks: (R, T) seconds of tasks, or speeds: (R, n) of a unit of work if `one_speed`."""

Way = namedtuple("Way", "word link order master")
"""word: seconds of a word to a worker, or back. link: (n,) of a sum on its worker's link; order: (n,) workers by that.
master: of a sum on the master's link."""

WORKER = np.dtype(
    [(name, INDEX) for name in ("low", "high", "target", "last")]
    + [(name, np.int64) for name in ("state", "length", "counted", "spent")]
    + [(name, np.float64) for name in ("began", "lasted", "seen")]
)
"""A worker. low, high: of its own partitions, nobody has those from place low to high - 1; while it is at its own, low is
brought up to date when somebody looks. target: what it would help with, and seen: since when somebody is at that. last: the
partition that it did before, and lasted: how long that took. state: what it is at. length: tasks before it. counted: partitions
that it was the first to do. spent: whether it has found nothing to take. began: its task."""

Workers = namedtuple("Workers", "each queue given free bits ended own_ends")
"""each: (n,) of WORKER. queue: (n, reserve + 1) tasks before each, and when they were given. free: when each is free for its
own partitions, if it does only these: the one at a place is given to it at free[place], and done at free[place + 1 + reserve];
at place low it is never, once its worker is at others. bits: the same as whole numbers. These are times at which the master
knows. ended: (n,) when a worker has done the task that it is at, or did the one before, by its own clock; own_ends: of its own,
where free has them. Both are kept if there is a reserve, for then it goes on before the master knows."""

Since = namedtuple("Since", "times bits after before")
"""times: (places,) since when somebody is at each partition; never if nobody is, or it is done. bits: the same, whole numbers.
after, before: (places,) those of an owner in the order in which they were given; behind the last and before the first comes
the empty place end[owner]. They are kept from the moment on at which somebody is idle."""

Turns = namedtuple("Turns", "keys bits first")
"""keys: when something happens at each worker: it is free, or, where it is idle, begins to help. bits: the same as whole
numbers, which have the same order and are compared faster. first: who goes on from each pair, first[1] from the last one; the
pairs at places p // 2 come after those at p, and workers themselves stand in the second half."""


def board(rules: Rules) -> tuple[Workers, Since, Turns]:
    """Room for a round."""
    n, pairs = len(rules.task), 1 << (len(rules.task) - 1).bit_length()
    queue, free = np.zeros((n, rules.reserve + 1), INDEX), np.full(len(rules.part), NEVER)
    times, keys = np.full(len(rules.part), NEVER), np.full(pairs, NEVER)
    workers = Workers(
        np.zeros(n, WORKER), queue, np.zeros(queue.shape), free, free.view(np.int64), np.zeros(n), np.zeros(len(free))
    )
    since = Since(times, times.view(np.int64), *np.zeros((2, len(times)), INDEX))
    return workers, since, Turns(keys, keys.view(np.int64), np.tile(np.arange(pairs, dtype=INDEX), 2))


@compiled
def bits_of(time):  # type: ignore[no-untyped-def]
    """A time as a whole number, which has the same order."""
    return np.float64(time).view(np.int64)


@inlined
def put_in(since, last, place, time):  # type: ignore[no-untyped-def]
    """Somebody is at a partition since a time; it comes behind another of its owner's, or first if that is the end."""
    after = since.after[last]
    since.times[place], since.after[last], since.before[after] = time, place, place
    since.before[place], since.after[place] = last, after


@inlined
def take_out(since, place):  # type: ignore[no-untyped-def]
    """A partition is done."""
    after, before = since.after[place], since.before[place]
    since.times[place], since.after[before], since.before[after] = NEVER, after, before


@inlined
def change(turns, w, key):  # type: ignore[no-untyped-def]
    """Something happens at a worker at another time: its way through the pairs. Of equal times the lower number is first."""
    turns.keys[w] = key
    at, first, when = len(turns.keys) + w, w, bits_of(key)
    while at > 1:
        other = turns.first[at ^ 1]
        then = turns.bits[other]
        before = then - (at & 1) < when
        first, when, at = (other if before else first), (then if before else when), at >> 1
        turns.first[at] = first
    return first


@inlined
def alone(turns, w):  # type: ignore[no-untyped-def]
    """Whether nothing else happens at the moment of the one who is next."""
    at, same = len(turns.keys) + w, False
    while at > 1:
        same |= turns.bits[turns.first[at ^ 1]] == turns.bits[w]
        at >>= 1
    return not same


@inlined
def play(turns):  # type: ignore[no-untyped-def]
    """All pairs, after many changes."""
    for at in range(len(turns.keys) - 1, 0, -1):
        left, right = turns.first[2 * at], turns.first[2 * at + 1]
        turns.first[at] = right if turns.bits[right] < turns.bits[left] else left
