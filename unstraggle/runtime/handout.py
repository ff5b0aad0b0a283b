"""Handout: who does which task of a round, decided while it runs. What workers have finished in, words to them out; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..scheme.code import Code
from ..scheme.handing import OVERDUE, table_of
from .instructions import Tell

DAMAGED = 3
"""Sums of a worker that came damaged, after which its tasks are given to others."""


class Handout:
    """The tasks of one round: which are fresh, who is at what, whose result counts, and which sums are here.

    Nothing is given twice while anything is fresh. A worker takes its own partitions first, then those of the worker that has
    the most left, from the end. The first result of a partition counts. When all are done, everybody is asked for one sum.
    What a worker did that is lost before its sum came is fresh again.
    """

    def __init__(self, code: Code, number: int, busy: Iterable[int] = ()) -> None:
        assert code.handing is not None
        self._how, self._table, self._number, self._tasks = code.handing, table_of(code), number, code.tasks
        self._owner = code.handing.owner
        self.busy = set(busy)
        self._here: set[int] = set()
        self._fresh = [deque(() if self._how.in_order else parts) for parts in self._table.own]
        self._left, self._undone = sum(map(len, self._fresh)), code.k
        self._queue: list[deque[int]] = [deque() for _ in range(code.n)]
        self._began, self._pace = [0.0] * code.n, [0.0] * code.n
        self._since: dict[int, float] = {}
        self._done_by: list[int] = [-1] * code.k
        self._counted: list[list[int]] = [[] for _ in range(code.n)]
        self._epoch, self._ticket, self._damaged = [0] * code.n, [0] * code.n, [0] * code.n
        self._came = [False] * code.n
        self._tickets, self._settling = 0, False
        self._idle: dict[int, tuple[int, float]] = {}  # with what each could help, and from when on

    # What the round asks

    @property
    def _at_rest(self) -> bool:
        """Whether it is time for sums: all is done, or, where not all can be, all that can."""
        return not self._undone or (self._settling and not any(self._queue[worker] for worker in self._here))

    @property
    def settled(self) -> bool:
        """Whether all sums are here that still can come."""
        return self._at_rest and all(self._came[worker] for worker in self._here if self._counted[worker])

    @property
    def complete(self) -> bool:
        """Whether every partition is in a sum that is here."""
        return not self._undone and all(self._came[w] for w, counted in enumerate(self._counted) if counted)

    @property
    def occupied(self) -> set[int]:
        """Workers that are at a task, of this round or of one before it."""
        return self.busy | {worker for worker in self._here if self._queue[worker]}

    def covered(self) -> float:
        """The fraction of the partitions that is in sums that are here."""
        return sum(len(counted) for came, counted in zip(self._came, self._counted, strict=True) if came) / len(self._done_by)

    def reachable(self) -> bool:
        """Whether those that are here can still complete the round."""
        wanting = [part for part, by in enumerate(self._done_by) if by < 0 or not (self._came[by] or by in self._here)]
        held = self._table.task[sorted(self._here)][:, wanting] >= 0
        return not wanting or bool(self._here and held.any(axis=0).all())

    def expects(self, worker: int, ticket: int) -> bool:
        """Whether a sum is the one that was asked for last, and is not here yet."""
        return ticket == self._ticket[worker] > 0 and not self._came[worker]

    def weights(self, messages: int) -> NDArray[np.float64]:
        """(1, M) one for each sum that is here."""
        found = np.zeros((1, messages))
        found[0, self._table.message[[w for w, came in enumerate(self._came) if came and self._counted[w]]]] = 1.0
        return found

    # What happens. Each gives the words that follow

    def join(self, worker: int, clock: float) -> list[Tell]:
        """A worker is here, with nothing done: a sum of its predecessor could not be added to."""
        words = self.lose(worker, clock)
        self._came[worker] = False
        self._forget(worker)
        self._here.add(worker)
        return words if worker in self.busy else words + self._start(worker, clock)

    def freed(self, worker: int, clock: float) -> list[Tell]:
        """A worker has left a task of an earlier round."""
        if worker not in self.busy:
            return []
        self.busy.discard(worker)
        return self._start(worker, clock) if worker in self._here else []

    def finished(self, worker: int, task: int, epoch: int, clock: float) -> list[Tell]:
        """A worker has done what it was at. Whatever else one says it has finished does not count."""
        queue = self._queue[worker]
        if worker not in self._here or epoch != self._epoch[worker] or not queue:
            return []
        if task != self._table.task[worker, queue[0]]:
            return []
        part = queue.popleft()
        self._pace[worker], self._began[worker] = (clock - self._began[worker]) / self._table.work[part], clock
        counts = self._done_by[part] < 0
        if counts:
            self._done_by[part] = worker
            self._counted[worker].append(part)
            self._came[worker], self._ticket[worker] = False, 0  # a sum that is here, or on its way, is without it
            self._undone -= 1
            self._since.pop(part, None)
        words = self._feed(worker, clock, task, counts)
        if counts:
            self._look_again(part)
        return words + self._collect() if self._at_rest and (counts or self._settling) else words

    def arrived(self, worker: int) -> None:
        """The sum that was asked for is here."""
        self._came[worker] = True

    def damaged(self, worker: int, clock: float) -> list[Tell]:
        """A sum came damaged: ask again, but not for ever."""
        self._damaged[worker] += 1
        if self._damaged[worker] >= DAMAGED:
            return self.lose(worker, clock)
        return [] if self._undone or self._came[worker] else [self._request(worker)]

    def lose(self, worker: int, clock: float) -> list[Tell]:
        """A worker is gone, and what it did with it, unless its sum is here."""
        if worker not in self._here:
            return []
        self._here.discard(worker)
        self._idle.pop(worker, None)
        self.busy.discard(worker)
        self._epoch[worker] += 1
        if not self._came[worker]:
            self._forget(worker)
        dropped, self._queue[worker] = self._queue[worker], deque()
        elsewhere = {part for queue in self._queue for part in queue}
        for part in dropped:
            if self._done_by[part] < 0 and part not in elsewhere:
                self._renew(part)
        words = [word for idle in sorted(self._idle) for word in self._feed(idle, clock)]
        for part in dropped:
            self._look_again(part)
        return words

    def tick(self, clock: float) -> list[Tell]:
        """Time has passed: whoever has nothing to do helps with what is overdue."""
        words = []
        for worker in sorted(self._idle):
            part, when = self._idle[worker]
            if part >= 0 and when <= clock:
                words.append(self._give(worker, part, clock))
                self._look_again(part)
        return words

    def alarm(self) -> float | None:
        """When something will be overdue."""
        return min((when for part, when in self._idle.values() if part >= 0), default=None)

    def settle(self) -> list[Tell]:
        """Not everything can be done: ask for the sums when those that are here have done what they can."""
        self._settling = True
        return self._collect() if self._at_rest else []

    def again(self) -> list[Tell]:
        """Sums that were asked for may have vanished: ask again."""
        return self._collect() if self._at_rest else []

    # How

    def _start(self, worker: int, clock: float) -> list[Tell]:
        """A worker is free: its first tasks, or all of them where it goes through them in order."""
        mine = self._tasks.part[self._tasks.worker == worker].tolist() if self._how.in_order else []
        words = [self._give(worker, part, clock) for part in mine]
        return words or self._feed(worker, clock)

    def _feed(self, worker: int, clock: float, done: int = -1, counts: bool = False) -> list[Tell]:
        """The next tasks of a worker, the first of them with word on the one that it has done."""
        words, epoch = [], self._epoch[worker]
        while self._left and len(self._queue[worker]) <= self._how.reserve:
            part = self._choose(worker)
            if part < 0:
                break
            words.append(self._give(worker, part, clock, done, counts))
            done, counts = -1, False
        if done >= 0:
            words.append(Tell(worker, self._number, epoch, done=done, counts=counts))
        if not self._queue[worker]:
            self._idle[worker] = self._overdue(worker)
        return words

    def _give(self, worker: int, part: int, clock: float, done: int = -1, counts: bool = False) -> Tell:
        if not self._queue[worker]:
            self._began[worker] = clock
        self._idle.pop(worker, None)
        self._queue[worker].append(part)
        self._since[part] = clock
        return Tell(worker, self._number, self._epoch[worker], int(self._table.task[worker, part]), done, counts)

    def _choose(self, worker: int) -> int:
        """A partition that nobody has: an own one, or the last one of the worker that has the most left."""
        if self._fresh[worker]:
            return self._take(self._fresh[worker].popleft())
        most, best = 0, -1
        for owner in self._table.others[worker]:
            if len(self._fresh[owner]) > most:
                most, best = len(self._fresh[owner]), owner
        return self._take(self._fresh[best].pop()) if best >= 0 else -1

    def _take(self, part: int) -> int:
        self._left -= 1
        return part

    def _renew(self, part: int) -> None:
        """A partition that nobody has any more: it comes first when its owner takes the next one."""
        self._left += 1
        self._since.pop(part, None)
        self._fresh[self._owner[part]].appendleft(part)

    def _forget(self, worker: int) -> None:
        """What a worker did is lost with it."""
        for part in self._counted[worker]:
            self._done_by[part] = -1
            self._undone += 1
            if not any(part in queue for queue in self._queue):
                self._renew(part)
        self._counted[worker], self._ticket[worker] = [], 0

    def _look_again(self, part: int) -> None:
        """A partition is done, or somebody has begun with it: those that would have helped with it look for another."""
        for worker in [worker for worker, (other, _) in self._idle.items() if other == part]:
            self._idle[worker] = self._overdue(worker)

    def _overdue(self, worker: int) -> tuple[int, float]:
        """With what a worker would help, what was given first, and from when on; (-1, 0) if there is nothing."""
        may = self._table.task[worker]
        found = [(since, part) for part, since in self._since.items() if may[part] >= 0] if self._how.helpers else []
        if not found:
            return -1, 0.0
        since, part = min(found)
        return part, since + OVERDUE * self._pace[worker] * self._table.work[part]

    def _collect(self) -> list[Tell]:
        """Ask for sums that are not here; a worker that has counted nothing has none."""
        here = [worker for worker in sorted(self._here) if self._counted[worker] and not self._came[worker]]
        return [self._request(worker) for worker in here]

    def _request(self, worker: int) -> Tell:
        self._tickets += 1
        self._ticket[worker] = self._tickets
        count = len(self._counted[worker])
        return Tell(worker, self._number, self._epoch[worker], ticket=self._tickets, count=count)
