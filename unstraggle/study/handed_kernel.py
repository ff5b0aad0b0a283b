"""Compiled rounds of codes that hand out tasks: `runtime.handout.Handout` is the plain form that they must equal.

A worker that goes through its own partitions is looked at only when somebody takes one of them, or when it needs others. From
the moment at which somebody has nothing to do, every end of a task counts. Who has nothing to do remembers the task that it
would help with and when, and looks for another when that moment comes and the task is done, or somebody else has begun with it.
That is not too late where all tasks are equal: the one that it finds was given later, and is overdue later.

Times are added in the order in which things happen, so that ties are those of the plain form. Tasks take more than no time:
what follows what in a moment in which some both begin and end may differ.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..scheme.handing import OVERDUE
from .handed_state import (
    AT,
    BEFORE,
    IDLE,
    INDEX,
    NEVER,
    NEVER_BITS,
    OWN,
    WHOLE,
    alone,
    change,
    compiled,
    inlined,
    play,
    put_in,
    take_out,
)


@compiled
def handed_rounds(seconds, rules, way, workers, since, turns, late, carry, ends, senders):  # type: ignore[no-untyped-def]
    """Writes ends of rounds one after the other (R,), and how many workers have something to send (R,).

    workers, since, turns: `handed_state.board(rules)`. late: (n,) when workers are free, before the first round, then after.
    """
    for r in range(len(ends)):
        done = _round(seconds, rules, way, workers, since, turns, r, late)
        senders[r], ends[r] = _collect(workers, way, done)
        _after(seconds, rules, way, workers, turns, r, ends[r], late, carry)


@inlined
def _round(seconds, rules, way, workers, since, turns, r, late):  # type: ignore[no-untyped-def]
    """When the master knows that all partitions are done, or never."""
    _reset(seconds, rules, way, workers, turns, r, late)
    undone, clock, w = rules.count.sum(), 0.0, turns.first[1]
    while undone:
        clock = turns.keys[w]
        if clock == NEVER:
            break
        if workers.each[w].state == OWN:
            undone -= _write_down(rules, workers, w, workers.each[w].high)
        if workers.each[w].state == AT:
            undone -= 1
            workers.each[w].counted += 1
            _finish(workers, w, clock)
        then = _feed(seconds, rules, way, workers, since, turns, r, w, clock, False)
        if rules.helpers and workers.each[w].state == IDLE:
            undone -= _watch(rules, workers, since, turns, w, clock)
            clock = _helped(seconds, rules, way, workers, since, turns, r, w, clock, undone)
            break
        w = change(turns, w, then)
    return clock


@inlined
def _helped(seconds, rules, way, workers, since, turns, r, idle, clock, undone):  # type: ignore[no-untyped-def]
    """The rest of a round, from the moment on at which somebody is idle. When the master knows that all is done, or never."""
    w, helper, helped = change(turns, idle, _look(rules, workers, since, idle, clock)), -1, NEVER
    while undone:
        clock = turns.keys[w]
        if clock == NEVER:
            break
        if workers.each[w].state == IDLE and not alone(turns, w):
            w = _of_these(workers, turns, w, clock, helper if helped == clock else -1)
        worker, then, place = workers.each[w], NEVER, workers.queue[w, 0]
        if worker.state != IDLE:
            undone -= _counts(rules, workers, since, w)
            _finish(workers, w, clock)
            then = _feed(seconds, rules, way, workers, since, turns, r, w, clock, True)
        elif since.times[worker.target] == worker.seen:
            place, helper, helped = worker.target, w, clock
            then = _help(seconds, rules, way, workers, since, r, w, clock)
        if worker.state == IDLE:
            then = _look(rules, workers, since, w, clock)
        if rules.uneven:
            _look_again(rules, workers, since, turns, place, w, clock)
        w = change(turns, w, then) if then > clock else turns.first[1]
    return clock


@inlined
def _reset(seconds, rules, way, workers, turns, r, late):  # type: ignore[no-untyped-def]
    """A round begins: workers go through their own partitions, until they need others."""
    for w in range(len(late)):
        first, high = rules.first[w], rules.first[w] + rules.count[w]
        worker = workers.each[w]
        worker.state, worker.low, worker.high = OWN, first, high
        worker.length, worker.counted, worker.lasted, worker.spent = 0, 0, 0.0, 0
        workers.free[first : first + rules.reserve + 1] = late[w]
        workers.ended[w], ended, heard = 0.0, 0.0, late[w]
        for at in range(first, high):
            ended = _ends(seconds, rules, way, r, w, at, ended, workers.free[at] if rules.reserve else heard)
            heard = ended + way.word
            workers.free[at + rules.reserve + 1] = heard
            if rules.reserve:
                workers.own_ends[at + rules.reserve + 1] = ended
        turns.keys[w] = workers.free[high]
    play(turns)


@inlined
def _lasts(seconds, rules, r, w, place):  # type: ignore[no-untyped-def]
    if not seconds.one_speed:
        return seconds.tasks[r, rules.task[w, place]]
    return seconds.speeds[r, w] * rules.unit if rules.unit else seconds.speeds[r, w] * rules.work[place]


@inlined
def _ends(seconds, rules, way, r, w, place, ended, given):  # type: ignore[no-untyped-def]
    """When a worker has done a task that was given at `given`, if it had done the one before at `ended`: its own times."""
    begins = max(ended, given + way.word) if rules.reserve else given + way.word
    return begins + _lasts(seconds, rules, r, w, place)


@inlined
def _write_down(rules, workers, w, low):  # type: ignore[no-untyped-def]
    """A worker was at its own, and was given those before place `low`: what it has before it. How many it has done."""
    worker, first, ahead = workers.each[w], rules.first[w], rules.reserve
    done = low - first - ahead - 1
    if done >= 0:
        worker.state, worker.low, worker.length, worker.counted, worker.began = AT, low, ahead + 1, done, workers.free[low - 1]
        for at in range(ahead + 1):
            workers.queue[w, at], workers.given[w, at] = first + done + at, workers.free[first + done + at]
        if ahead:
            workers.ended[w] = workers.own_ends[low]
        if done:
            worker.last, worker.lasted = first + done - 1, workers.free[low - 1] - workers.free[low - 2]
    else:
        worker.state, worker.low = BEFORE, first
    workers.free[worker.low] = NEVER
    return max(done, 0)


@inlined
def _finish(workers, w, clock):  # type: ignore[no-untyped-def]
    """A worker has done what it was at, if it was in this round."""
    worker = workers.each[w]
    if worker.state == BEFORE:
        return
    worker.last, worker.lasted, worker.began = workers.queue[w, 0], clock - worker.began, clock
    worker.length -= 1
    for at in range(worker.length):
        workers.queue[w, at], workers.given[w, at] = workers.queue[w, at + 1], workers.given[w, at + 1]


@inlined
def _counts(rules, workers, since, w):  # type: ignore[no-untyped-def]
    """Whether what a worker has done counts: nobody was faster, and it does not come from an earlier round."""
    place = workers.queue[w, 0]
    if workers.each[w].state == BEFORE or since.times[place] == NEVER:
        return False
    workers.each[w].counted += 1
    take_out(since, place)
    return True


@inlined
def _feed(seconds, rules, way, workers, since, turns, r, w, clock, watched):  # type: ignore[no-untyped-def]
    """The next tasks of a worker; it is idle if there is none."""
    worker, next_place, given = workers.each[w], workers.queue[w, 0], workers.given[w, 0]
    while worker.length <= rules.reserve:
        place = _choose(rules, workers, turns, w, watched)
        if place < 0:
            break
        if worker.length == 0:
            worker.began, next_place, given = clock, place, clock
        workers.queue[w, worker.length], workers.given[w, worker.length] = place, clock
        worker.length += 1
        if watched:
            put_in(since, since.before[rules.end[rules.owner[place]]], place, clock)
    if worker.length == 0:
        worker.state = IDLE
        return NEVER
    worker.state = AT
    ended = _ends(seconds, rules, way, r, w, next_place, workers.ended[w], given)
    if rules.reserve:
        workers.ended[w] = ended
    return ended + way.word


@inlined
def _choose(rules, workers, turns, w, watched):  # type: ignore[no-untyped-def]
    """A partition that nobody has: an own one, or the last one of the worker that has the most left; -1 if there is none."""
    worker = workers.each[w]
    if worker.low < worker.high:
        worker.low += 1
        workers.free[worker.low] = NEVER
        return WHOLE(worker.low) - 1
    if worker.spent:
        return -1
    owner = _richest(rules, workers, w) if watched else _richest_now(rules, workers, w, turns.bits[w])
    if owner < 0:
        worker.spent = 1
        return -1
    workers.each[owner].high -= 1
    if workers.each[owner].state == OWN:
        change(turns, owner, workers.free[workers.each[owner].high])
    return WHOLE(workers.each[owner].high)


@inlined
def _richest(rules, workers, w):  # type: ignore[no-untyped-def]
    """Of those from whom a worker may take, the first one that has the most left; -1 if none has."""
    owner, most = -1, 0
    for at in range(rules.others.shape[1]):
        other = rules.others[w, at]
        if other == w:
            break
        left = WHOLE(workers.each[other].high) - WHOLE(workers.each[other].low)
        owner, most = (WHOLE(other) if left > most else owner), max(left, most)
    return owner


@inlined
def _richest_now(rules, workers, w, clock):  # type: ignore[no-untyped-def]
    """The same while some are at their own, and may have been given more since somebody looked. clock: its bits.

    Of equal times, the lower number is first. Each is brought up to date by one, and all again where that is not enough.
    """
    owner, again = -1, True
    while again:
        owner, most, again = -1, 0, False
        for at in range(rules.others.shape[1]):
            other = rules.others[w, at]
            if other == w:
                break
            low, before = WHOLE(workers.each[other].low), clock + (other < w)
            low += workers.bits[low] < before
            workers.each[other].low = low
            again |= workers.bits[low] < before
            left = WHOLE(workers.each[other].high) - low
            owner, most = (WHOLE(other) if left > most else owner), max(left, most)
    return owner


@inlined
def _watch(rules, workers, since, turns, by, clock):  # type: ignore[no-untyped-def]
    """Somebody is idle: from now on all are looked at. How many partitions they had done."""
    known, since.times[:] = 0, NEVER
    for end in rules.end:
        since.after[end], since.before[end] = end, end
    for w in range(len(workers.each)):
        if workers.each[w].state == OWN:
            low = workers.each[w].low
            while workers.free[low] < clock or (workers.free[low] == clock and w < by):
                low += 1
            turns.keys[w] = workers.free[low]
            known += _write_down(rules, workers, w, low)
        for at in range(workers.each[w].length):
            place, given = workers.queue[w, at], workers.given[w, at]
            end = rules.end[rules.owner[place]]
            last = since.before[end]
            while last != end and since.times[last] > given:
                last = since.before[last]
            put_in(since, last, place, given)
    play(turns)
    return known


@inlined
def _look(rules, workers, since, w, clock):  # type: ignore[no-untyped-def]
    """An idle worker looks for what it would help with: what was given first, of what others are at. When it would begin."""
    seen, found, together = NEVER_BITS, WHOLE(0), False
    for at in range(rules.others.shape[1]):
        other = rules.others[w, at]
        place = since.after[rules.end[other]]
        given = since.bits[place]
        together = (given == seen) | (together & (given > seen))
        seen, found = min(given, seen), (WHOLE(place) if given < seen else found)
        if other == w:
            break
    if seen == NEVER_BITS:
        return NEVER
    if together or since.bits[since.after[found]] == seen:
        found = _lowest(rules, since, w, seen)
    worker = workers.each[w]
    worker.target, worker.seen = found, since.times[found]
    return max(clock, worker.seen + OVERDUE * (worker.lasted / rules.work[worker.last]) * rules.work[found])


@inlined
def _lowest(rules, since, w, seen):  # type: ignore[no-untyped-def]
    """Of the partitions that were given first, all at one moment, the one with the lowest number that a worker may do."""
    found, lowest = WHOLE(0), WHOLE(len(rules.part))
    for at in range(rules.others.shape[1]):
        place = since.after[rules.end[rules.others[w, at]]]
        while since.bits[place] == seen:
            found, lowest = (WHOLE(place) if rules.part[place] < lowest else found), min(WHOLE(rules.part[place]), lowest)
            place = since.after[place]
    return found


@inlined
def _look_again(rules, workers, since, turns, place, by, clock):  # type: ignore[no-untyped-def]
    """A partition is done, or worker `by` has begun with it: others that would have helped with it look for another."""
    for w in range(len(workers.each)):
        if workers.each[w].state == IDLE and workers.each[w].target == place and w != by:
            change(turns, w, _look(rules, workers, since, w, clock))


@inlined
def _of_these(workers, turns, first, clock, helper):  # type: ignore[no-untyped-def]
    """Who is next if something happens at several workers at once, and at an idle one first: whoever has done a task.

    Else idle workers in turn, from the one behind the last that began to help at this moment.
    """
    behind = first
    for w in range(len(workers.each) - 1, -1, -1):
        behind = INDEX(w) if turns.keys[w] == clock and w > helper else behind
    for w in range(len(workers.each)):
        if turns.keys[w] == clock and workers.each[w].state != IDLE:
            return INDEX(w)
    return behind


@inlined
def _help(seconds, rules, way, workers, since, r, w, clock):  # type: ignore[no-untyped-def]
    """An idle worker begins with what is overdue. When the master hears that it is done."""
    worker, place = workers.each[w], workers.each[w].target
    worker.state, worker.length, worker.began = AT, 1, clock
    workers.queue[w, 0], workers.given[w, 0] = place, clock
    take_out(since, place)
    put_in(since, since.before[rules.end[rules.owner[place]]], place, clock)
    ended = _ends(seconds, rules, way, r, w, place, workers.ended[w], clock)
    if rules.reserve:
        workers.ended[w] = ended
    return ended + way.word


@inlined
def _collect(workers, way, done):  # type: ignore[no-untyped-def]
    """How many workers have something to send, and when all of it is here: they are asked at once, and share a link."""
    senders, asked, through = 0, done + way.word, 0.0
    for w in way.order:
        if workers.each[w].counted:
            senders += 1
            through = max(through, asked + way.link[w]) + way.master
    return senders, through + way.word


@inlined
def _after(seconds, rules, way, workers, turns, r, end, late, carry):  # type: ignore[no-untyped-def]
    """What workers have left of the tasks that they are in becomes `late`.

    A worker begins with what it has in reserve until the round is over, and also at that moment, for it cannot know yet.
    """
    for w in range(len(late)):
        ends, state = turns.keys[w], workers.each[w].state
        if state == OWN:  # in a task of an earlier round since the beginning, or for ever in one of its own
            ends = workers.free[rules.first[w]] if workers.free[rules.first[w]] > end else NEVER
        ended = workers.ended[w]
        for at in range(1, workers.each[w].length if state == AT else 0):
            if max(ended, workers.given[w, at] + way.word) > end:
                break
            ended = _ends(seconds, rules, way, r, w, workers.queue[w, at], ended, workers.given[w, at])
            ends = ended + way.word
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
            _report(seconds[r], queues[w], parts, late[w] + way.word, way.word, w, soonest, by)
        for part in range(count):
            if by[part] >= 0:
                sends[by[part]] = True
        senders[r], asked, through = sends.sum(), soonest.max() + way.word, 0.0
        for w in way.order:
            if sends[w]:
                through = max(through, asked + way.link[w]) + way.master
        ends[r] = through + way.word
        for w in range(n):
            left = _left(seconds[r], queues[w], late[w], way.word, ends[r])
            late[w] = left if carry and 0 < left < NEVER else 0.0
    return ends, senders, late


@njit(nogil=True, cache=True)
def _report(seconds, queue, parts, clock, word, w, soonest, by):  # type: ignore[no-untyped-def]
    """A worker's reports, as the master hears them, if it begins at `clock`: of a partition, the first is kept."""
    for task in queue:
        if task < 0:
            break
        clock += seconds[task]
        if clock + word < soonest[parts[task]]:
            soonest[parts[task]], by[parts[task]] = clock + word, w


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
