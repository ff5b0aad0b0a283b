"""Compiled rounds of codes that hand out tasks: `runtime.handout.Handout` is the plain form that they must equal.

A worker that goes through its own partitions is looked at only when somebody takes one of them, or when it needs others. From
the moment at which somebody has nothing to do, every end of a task counts. Who has nothing to do remembers the task that it
would help with, and looks for another only when that one is done, or somebody else begins with it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..scheme.handing import OVERDUE
from .handed_state import (
    AT,
    BEFORE,
    IDLE,
    NEVER,
    OWN,
    change,
    compiled,
    following,
    inlined,
    insert,
    look_through,
    remove,
    sooner,
)


@compiled
def handed_rounds(seconds, rules, way, workers, parts, turns, late, carry, ends, senders):  # type: ignore[no-untyped-def]
    """Writes ends of rounds one after the other (R,), and how many workers have something to send (R,).

    workers, parts, turns: `handed_state.board(rules)`. late: (n,) when workers are free, before the first round, then after.
    """
    for r in range(len(ends)):
        done = _round(seconds, rules, way, workers, parts, turns, r, late)
        senders[r], ends[r] = _collect(workers, way, done)
        _after(seconds, rules, way, workers, turns, r, ends[r], late, carry)


@inlined
def _round(seconds, rules, way, workers, parts, turns, r, late):  # type: ignore[no-untyped-def]
    """When the master knows that all partitions are done, or never."""
    _reset(seconds, rules, way, workers, parts, turns, r, late)
    undone, watched, clock, half = len(rules.work), False, 0.0, len(turns.keys) // 2
    while undone:
        w = following(turns, len(turns.who) if watched else len(turns.who) // 2)
        clock = turns.keys[w]
        if clock == NEVER:
            break
        if w >= half:
            w -= half
            part = _help(seconds, rules, way, workers, parts, turns, r, w, clock)
        else:
            undone -= _write_down(rules, workers, parts, w, max(0, workers.high[w] - rules.first[w] - rules.reserve))
            part = _finish(rules, workers, parts, w, clock, watched)
            undone -= part >= 0
            _feed(seconds, rules, way, workers, parts, turns, r, w, clock, watched)
            if rules.helpers and not watched and workers.state[w] == IDLE:
                undone -= _watch(rules, workers, parts, turns, w, clock)
                part, watched = -1, True
        if watched:
            _look(rules, workers, parts, turns, part, w, clock)
    return clock


@inlined
def _reset(seconds, rules, way, workers, parts, turns, r, late):  # type: ignore[no-untyped-def]
    """A round begins: workers go through their own partitions, until they need others."""
    for w in range(len(late)):
        first, count = rules.first[w], rules.first[w + 1] - rules.first[w]
        workers.state[w], workers.high[w], workers.left[w], workers.turn[w] = OWN, first + count, count, 0
        workers.length[w], workers.counted[w], workers.pace[w] = 0, 0, 0.0
        workers.free[w, 0] = late[w]
        for at in range(count):
            given, part = workers.free[w, max(0, at - rules.reserve)], rules.own[first + at]
            workers.free[w, at + 1] = _ends(seconds, rules, way, r, w, part, workers.free[w, at], given)
        turns.keys[w] = workers.free[w, max(0, count - rules.reserve)]
    parts.done[:], parts.helper[:] = False, -1
    turns.keys[len(turns.keys) // 2 :] = NEVER
    for row in range(len(turns.who)):
        look_through(turns.keys, turns.soonest, turns.who, row)


@inlined
def _lasts(seconds, rules, r, w, part):  # type: ignore[no-untyped-def]
    return seconds.speeds[r, w] * rules.work[part] if seconds.one_speed else seconds.tasks[r, rules.task[w, part]]


@inlined
def _ends(seconds, rules, way, r, w, part, clock, given):  # type: ignore[no-untyped-def]
    """When the master hears that a task is done which was given at `given`, if it heard of the one before at `clock`."""
    return max(clock - way.word, given + way.word) + _lasts(seconds, rules, r, w, part) + way.word


@inlined
def _catch_up(rules, workers, w, by, clock):  # type: ignore[no-untyped-def]
    """How far a worker at its own partitions is, when worker `by` is free: of equal times, the lower number is first."""
    turn = workers.turn[w]
    while workers.free[w, turn] < clock or (workers.free[w, turn] == clock and w < by):
        turn += 1
    if turn:
        workers.turn[w], workers.left[w] = turn, workers.high[w] - rules.first[w] - rules.reserve - turn


@inlined
def _write_down(rules, workers, parts, w, turn):  # type: ignore[no-untyped-def]
    """If a worker was at its own: what it has done of them until this turn, and has before it. How many it has done."""
    if workers.state[w] != OWN:
        return 0
    first, ahead = rules.first[w], rules.reserve
    if turn == 0:
        workers.state[w], workers.left[w] = BEFORE, workers.high[w] - first
        return 0
    workers.state[w], workers.left[w] = AT, workers.high[w] - first - ahead - turn
    workers.length[w], workers.counted[w], workers.began[w] = ahead + 1, turn - 1, workers.free[w, turn - 1]
    for at in range(ahead + 1):
        part = rules.own[first + turn - 1 + at]
        given = workers.free[w, max(0, turn - 1 + at - ahead)]
        workers.queue[w, at], workers.given[w, at], parts.since[part] = part, given, given
    if turn > 1:
        lasted = workers.free[w, turn - 1] - workers.free[w, turn - 2]
        workers.pace[w] = lasted / rules.work[rules.own[first + turn - 2]]
    return turn - 1


@inlined
def _finish(rules, workers, parts, w, clock, watched):  # type: ignore[no-untyped-def]
    """The partition that a worker has done; -1 if somebody was faster, or it comes from an earlier round."""
    if workers.state[w] == BEFORE:
        return -1
    part = workers.queue[w, 0]
    workers.length[w] -= 1
    for at in range(workers.length[w]):
        workers.queue[w, at], workers.given[w, at] = workers.queue[w, at + 1], workers.given[w, at + 1]
    workers.pace[w], workers.began[w] = (clock - workers.began[w]) / rules.work[part], clock
    if parts.done[part]:
        return -1
    parts.done[part] = True
    workers.counted[w] += 1
    if watched:
        remove(parts, part)
    return part


@inlined
def _feed(seconds, rules, way, workers, parts, turns, r, w, clock, watched):  # type: ignore[no-untyped-def]
    """The next tasks of a worker; it is idle if there is none."""
    while workers.length[w] <= rules.reserve:
        part = _choose(rules, workers, turns, w, clock)
        if part < 0:
            break
        if workers.length[w] == 0:
            workers.began[w] = clock
        at = workers.length[w]
        workers.queue[w, at], workers.given[w, at], parts.since[part] = part, clock, clock
        workers.length[w] += 1
        if watched:
            insert(parts, part)
    if workers.length[w]:
        workers.state[w] = AT
        change(turns, w, _ends(seconds, rules, way, r, w, workers.queue[w, 0], clock, workers.given[w, 0]))
    else:
        workers.state[w] = IDLE
        change(turns, w, NEVER)


@inlined
def _choose(rules, workers, turns, w, clock):  # type: ignore[no-untyped-def]
    """A partition that nobody has: an own one, or the last one of the worker that has the most left; -1 if there is none."""
    if workers.left[w]:
        workers.left[w] -= 1
        return rules.own[workers.high[w] - workers.left[w] - 1]
    owner, most = -1, 0
    for at in range(rules.others.shape[1]):
        other = rules.others[w, at]
        if other < 0:
            break
        if workers.left[other] > most:
            if workers.state[other] == OWN:
                _catch_up(rules, workers, other, w, clock)
            if workers.left[other] > most:
                owner, most = other, workers.left[other]
    if owner < 0:
        return -1
    workers.left[owner] -= 1
    workers.high[owner] -= 1
    if workers.state[owner] == OWN:
        sooner(turns, owner, workers.free[owner, max(0, workers.high[owner] - rules.first[owner] - rules.reserve)])
    return rules.own[workers.high[owner]]


@inlined
def _watch(rules, workers, parts, turns, by, clock):  # type: ignore[no-untyped-def]
    """Somebody is idle: from now on all are looked at. Makes the list of what they are at; how many they had done."""
    known, nobody = 0, len(rules.work)
    parts.older[nobody], parts.newer[nobody] = nobody, nobody
    for w in range(len(workers.state)):
        if workers.state[w] == OWN:
            _catch_up(rules, workers, w, by, clock)
            turns.keys[w] = workers.free[w, workers.turn[w]]
            known += _write_down(rules, workers, parts, w, workers.turn[w])
        for at in range(workers.length[w]):
            insert(parts, workers.queue[w, at])
    for row in range(len(turns.who)):
        look_through(turns.keys, turns.soonest, turns.who, row)
    return known


@inlined
def _look(rules, workers, parts, turns, part, w, clock):  # type: ignore[no-untyped-def]
    """Somebody is done with a partition, or begins with it: idle workers that would have helped with it look for another.

    So does worker w if it is idle: for what was given first, of what others have before them, and may be overdue some time.
    """
    nobody, half, seeking = len(rules.work), len(turns.keys) // 2, -1
    if part >= 0:
        seeking, parts.helper[part] = parts.helper[part], -1
    if workers.state[w] == IDLE:
        workers.beside[w], seeking = seeking, w
    while seeking >= 0:
        one, seeking = seeking, workers.beside[seeking]
        if workers.state[one] != IDLE:
            continue
        found = parts.newer[nobody]
        while found != nobody and not rules.may[one, found]:
            found = parts.newer[found]
        if found == nobody:
            change(turns, half + one, NEVER)
            continue
        workers.target[one], workers.beside[one], parts.helper[found] = found, parts.helper[found], one
        when = parts.since[found] + OVERDUE * workers.pace[one] * rules.work[found]
        change(turns, half + one, max(when, clock))


@inlined
def _help(seconds, rules, way, workers, parts, turns, r, w, clock):  # type: ignore[no-untyped-def]
    """An idle worker begins with what is overdue: which that is."""
    part = workers.target[w]
    workers.state[w], workers.length[w], workers.began[w] = AT, 1, clock
    workers.queue[w, 0], workers.given[w, 0] = part, clock
    remove(parts, part)
    parts.since[part] = clock
    insert(parts, part)
    change(turns, len(turns.keys) // 2 + w, NEVER)
    change(turns, w, _ends(seconds, rules, way, r, w, part, clock, clock))
    return part


@inlined
def _collect(workers, way, done):  # type: ignore[no-untyped-def]
    """How many workers have something to send, and when all of it is here: they are asked at once, and share a link."""
    senders, through = 0, 0.0
    for w in way.order:
        if workers.counted[w]:
            senders += 1
            through = max(through, way.link[w]) + way.master
    return senders, done + (through + 2 * way.word)


@inlined
def _after(seconds, rules, way, workers, turns, r, end, late, carry):  # type: ignore[no-untyped-def]
    """What workers have left of the tasks that they are in becomes `late`.

    A worker begins with what it has in reserve until the round is over, and also at that moment, for it cannot know yet.
    """
    for w in range(len(late)):
        ends, state = turns.keys[w], workers.state[w]
        if state == OWN:  # in a task of an earlier round since the beginning, or for ever in one of its own
            ends = workers.free[w, 0] if workers.free[w, 0] > end else NEVER
        for at in range(1, workers.length[w] if state == AT else 0):
            if max(ends - way.word, workers.given[w, at] + way.word) > end:
                break
            ends = _ends(seconds, rules, way, r, w, workers.queue[w, at], ends, workers.given[w, at])
        inside = carry and state != IDLE and ends > end and ends < NEVER
        late[w] = ends - end if inside else 0.0


@njit(nogil=True, cache=True)
def in_order_rounds(seconds, queues, parts, count, way, free, carry):  # type: ignore[no-untyped-def]
    """The same for codes whose workers go through their queues (n, longest) in order; of a partition, the first counts."""
    n = len(queues)
    ends, senders, late = np.empty(len(seconds)), np.empty(len(seconds), np.int64), free.copy()
    soonest, by, sends = np.empty(count), np.empty(count, np.int64), np.empty(n, np.bool_)
    for r in range(len(seconds)):
        soonest[:], by[:], sends[:] = NEVER, -1, False
        for w in range(n):
            _report(seconds[r], queues[w], parts, late[w] + 2 * way.word, w, soonest, by)
        for part in range(count):
            if by[part] >= 0:
                sends[by[part]] = True
        senders[r], through = sends.sum(), 0.0
        for w in way.order:
            if sends[w]:
                through = max(through, way.link[w]) + way.master
        ends[r] = soonest.max() + (through + 2 * way.word)
        for w in range(n):
            left = _left(seconds[r], queues[w], late[w], way.word, ends[r])
            late[w] = left if carry and 0 < left < NEVER else 0.0
    return ends, senders, late


@njit(nogil=True, cache=True)
def _report(seconds, queue, parts, clock, w, soonest, by):  # type: ignore[no-untyped-def]
    """A worker's reports, as the master hears them: of a partition, the first is kept."""
    for task in queue:
        if task < 0:
            break
        clock += seconds[task]
        if clock < soonest[parts[task]]:
            soonest[parts[task]], by[parts[task]] = clock, w


@njit(nogil=True, cache=True)
def _left(seconds, queue, late, word, end):  # type: ignore[no-untyped-def]
    """How long after the end of the round the master hears that a worker is free: it begins no task after the end."""
    if late > end:
        return late - end
    clock = late + word
    for task in queue:
        if task < 0 or clock > end:
            break
        clock += seconds[task]
    return clock + word - end
