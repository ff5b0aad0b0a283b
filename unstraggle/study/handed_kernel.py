"""Compiled rounds of codes that hand out tasks: `runtime.handout.Handout` is the plain form that they must equal.

Ends of tasks stand in a tournament, so that the next one is at its root. Who has nothing to do remembers the task that it would
help with, and looks for another only when that one is done, or somebody else begins with it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..scheme.handing import OVERDUE

NEVER = np.inf


@njit(nogil=True, cache=True)
def handed_rounds(seconds, speeds, one_speed, task, work, own, first, others, count, helpers, reserve, free, carry):  # type: ignore[no-untyped-def]
    """Ends of rounds one after the other (R,), how many workers have something to send (R,), and when all are free then (n,).

    seconds: (R, T) of tasks, or speeds: (R, n) if `one_speed`. task: (n, k) rows of the table, -1 where a worker may not. own:
    partitions by owner, those of worker i from first[i] on. others: (n, most) owners from whom a worker may take, padded with
    -1. count: partitions. free: (n,) when workers are, in the first round.
    """
    rounds, n = (len(speeds), speeds.shape[1]) if one_speed else (len(seconds), len(free))
    times, senders = np.empty(rounds), np.empty(rounds, np.int64)
    leaves = 1
    while leaves < n:
        leaves *= 2
    ends, winner = np.full(leaves, NEVER), np.empty(2 * leaves, np.int64)
    queue, length = np.empty((n, reserve + 1), np.int64), np.empty(n, np.int64)
    began, pace = np.empty(n), np.empty(n)
    low, high, since, done = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(count), np.empty(count, np.bool_)
    idle, target, when = np.empty(n, np.bool_), np.empty(n, np.int64), np.empty(n)
    state, counted = (
        np.empty(n, np.int64),
        np.empty(n, np.int64),
    )  # state: 0 in a task of an earlier round, 1 of this one, 2 idle
    offset = free.copy()
    for r in range(rounds):
        for w in range(n):
            low[w], high[w], length[w], pace[w], state[w], counted[w] = first[w], first[w + 1], 0, 0.0, 0, 0
            idle[w], ends[w] = False, offset[w]
        since[:], done[:] = NEVER, False
        undone, fresh, resting, clock = count, count, 0, 0.0
        _build(ends, winner, leaves)
        while undone:
            clock, alarm = ends[winner[1]], NEVER
            if resting:
                for w in range(n):
                    if idle[w] and target[w] >= 0 and when[w] < alarm:
                        alarm = when[w]
            if alarm < clock:
                clock = alarm
            if clock == NEVER:
                break
            while ends[winner[1]] == clock and undone:
                w = winner[1]
                if state[w] == 1:
                    part = queue[w, 0]
                    length[w] -= 1
                    for at in range(length[w]):
                        queue[w, at] = queue[w, at + 1]
                    pace[w], began[w] = (clock - began[w]) / work[part], clock
                    counts = not done[part]
                    if counts:
                        done[part], since[part] = True, NEVER
                        counted[w] += 1
                        undone -= 1
                else:
                    part, counts = -1, False
                state[w] = 1
                while fresh and length[w] <= reserve:
                    owner = w
                    if low[w] == high[w]:
                        owner, most = -1, 0
                        for at in range(others.shape[1]):
                            other = others[w, at]
                            if other < 0:
                                break
                            if high[other] - low[other] > most:
                                most, owner = high[other] - low[other], other
                        if owner < 0:
                            break
                        high[owner] -= 1
                        given = own[high[owner]]
                    else:
                        given = own[low[w]]
                        low[w] += 1
                    fresh -= 1
                    if length[w] == 0:
                        began[w] = clock
                    queue[w, length[w]], since[given] = given, clock
                    length[w] += 1
                if length[w]:
                    ends[w] = clock + _lasts(seconds, speeds, one_speed, task, work, r, w, queue[w, 0])
                else:
                    ends[w], state[w], idle[w] = NEVER, 2, True
                    resting += 1
                    if helpers:
                        target[w], when[w] = _overdue(queue, length, since, task, work, pace, w)
                    else:
                        target[w] = -1
                _replay(ends, winner, leaves, w)
                if counts and resting:
                    for other in range(n):
                        if idle[other] and target[other] == part:
                            target[other], when[other] = _overdue(queue, length, since, task, work, pace, other)
            if resting and undone:
                for w in range(n):
                    if not idle[w] or target[w] < 0 or when[w] > clock:
                        continue
                    part = target[w]
                    idle[w], state[w], began[w], since[part] = False, 1, clock, clock
                    resting -= 1
                    queue[w, 0], length[w] = part, 1
                    ends[w] = clock + _lasts(seconds, speeds, one_speed, task, work, r, w, part)
                    _replay(ends, winner, leaves, w)
                    for other in range(n):
                        if idle[other] and target[other] == part:
                            target[other], when[other] = _overdue(queue, length, since, task, work, pace, other)
        times[r] = clock if undone == 0 else NEVER
        senders[r] = 0
        for w in range(n):
            senders[r] += counted[w] > 0
            if state[w] == 1 and ends[w] == clock and length[w] > 1:  # it begins what it has in reserve, for it cannot know yet
                ends[w] = clock + _lasts(seconds, speeds, one_speed, task, work, r, w, queue[w, 1])
            inside = carry and state[w] < 2 and ends[w] > clock and ends[w] < NEVER
            offset[w] = ends[w] - clock if inside else 0.0
    return times, senders, offset


@njit(nogil=True, cache=True, inline="always")
def _lasts(seconds, speeds, one_speed, task, work, r, w, part):  # type: ignore[no-untyped-def]
    return speeds[r, w] * work[part] if one_speed else seconds[r, task[w, part]]


@njit(nogil=True, cache=True)
def _overdue(queue, length, since, task, work, pace, w):  # type: ignore[no-untyped-def]
    """What worker w would help with: of what others have before them, what was given first; and from when on."""
    best, part = NEVER, -1
    for other in range(len(length)):
        for at in range(length[other]):
            p = queue[other, at]
            if task[w, p] >= 0 and (since[p] < best or (since[p] == best and p < part)):
                best, part = since[p], p
    if part < 0:
        return -1, 0.0
    return part, best + OVERDUE * pace[w] * work[part]


@njit(nogil=True, cache=True)
def _build(ends, winner, leaves):  # type: ignore[no-untyped-def]
    for leaf in range(leaves):
        winner[leaves + leaf] = leaf
    for node in range(leaves - 1, 0, -1):
        left, right = winner[2 * node], winner[2 * node + 1]
        winner[node] = right if ends[right] < ends[left] else left


@njit(nogil=True, cache=True)
def _replay(ends, winner, leaves, leaf):  # type: ignore[no-untyped-def]
    """The matches of a leaf again, up to the root; of equal ones the lower number wins."""
    node = (leaves + leaf) >> 1
    while node:
        left, right = winner[2 * node], winner[2 * node + 1]
        winner[node] = right if ends[right] < ends[left] else left
        node >>= 1


@njit(nogil=True, cache=True)
def in_order_rounds(seconds, queues, parts, count, free, carry):  # type: ignore[no-untyped-def]
    """The same for codes whose workers go through their queues (n, longest) in order; of a partition, the first counts."""
    rounds, (n, longest) = len(seconds), queues.shape
    times, senders, offset = np.empty(rounds), np.empty(rounds, np.int64), free.copy()
    soonest, by, sends = np.empty(count), np.empty(count, np.int64), np.empty(n, np.bool_)
    for r in range(rounds):
        soonest[:], by[:], sends[:] = NEVER, -1, False
        for w in range(n):
            clock = offset[w]
            for place in range(longest):
                if queues[w, place] < 0:
                    break
                clock += seconds[r, queues[w, place]]
                part = parts[queues[w, place]]
                if clock < soonest[part]:
                    soonest[part], by[part] = clock, w
        times[r] = soonest.max()
        for part in range(count):
            if by[part] >= 0:
                sends[by[part]] = True
        senders[r] = sends.sum()
        for w in range(n):
            clock, left = offset[w], offset[w] - times[r]
            for place in range(longest):
                if queues[w, place] < 0 or clock > times[r]:
                    break
                clock += seconds[r, queues[w, place]]
                left = clock - times[r]
            offset[w] = max(left, 0.0) if carry and left < NEVER else 0.0
    return times, senders, offset
