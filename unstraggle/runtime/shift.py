"""Shift: a worker in a round whose tasks are handed out. One thread computes while another hears words and sends the sum."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ..errors import Invalid
from ..scheme.program import Outgoing
from .instructions import Tell
from .serve import Abandoned, Job, Share, Times, partial_gradient, payload_of

Say = Callable[[int, int], None]
"""say(task, epoch): tell the master that a task is done."""
Send = Callable[[Outgoing, Any, int, Times, int], None]
"""send(message, payload, checksum, times of the tasks, ticket)"""

MOST_TIMES = 2 * 65535
"""Times of tasks that a message reports: as many as a frame holds."""


class Shift:
    """What a worker has to do, has done, and may add to its sum; from the order of a round to the next order.

    A result waits until the master says whether it counts: another worker may have been first. So the sum holds what counts
    and nothing else at any time, and can be sent while the worker is in a task that nobody needs any more.
    """

    def __init__(self, share: Share, job: Job, say: Say, send: Send) -> None:
        self.job, self._share, self._say, self._send = job, share, say, send
        self._place = {row: at for at, row in enumerate(share.program.handed)}
        self._lock = threading.Condition()
        self._over = self._left = False
        self._forget(0)

    def _forget(self, epoch: int) -> None:
        self._epoch = epoch
        self._todo: deque[int] = deque()
        self._waiting: dict[int, Any] = {}
        self._sum: Any = None
        self._count = 0
        self._asked: Tell | None = None
        self._times: Times = []

    # Words from the master, in whichever thread they are heard

    def hear(self, word: Tell) -> None:
        """Take a word of this round; others are not for this shift."""
        with self._lock:
            if word.round != self.job.round or word.epoch < self._epoch:
                return
            if word.epoch > self._epoch:
                self._forget(word.epoch)
            if word.done >= 0:
                self._judge(word.done, word.counts)
            if word.task >= 0 and self._left:
                self._say(word.task, word.epoch)
            elif word.task >= 0:
                self._todo.append(word.task)
            if word.ticket:
                self._answer(word)
            self._lock.notify_all()

    def end(self) -> None:
        """The round is over for this worker: whoever waits for a task need not."""
        with self._lock:
            self._over = True
            self._lock.notify_all()

    def leave(self) -> None:
        """Nothing more is done here. The master thinks that the worker is at what it was told last, and gives it nothing in
        later rounds before it hears that this is done: so what was never begun, or comes from now on, is said to be.
        """
        with self._lock:
            self._left = True
            if self._todo:
                self._say(self._todo[0], self._epoch)
                self._todo.clear()

    def _judge(self, task: int, counts: bool) -> None:
        result = self._waiting.pop(task, None)
        if result is None or not counts:
            return
        with self._aside():
            self._sum = result if self._sum is None else _added(self._sum, result)
        self._count += 1

    def _answer(self, word: Tell) -> None:
        """Send the sum, if it is what the master thinks that it is."""
        if word.count != self._count or self._sum is None:
            raise Invalid(
                f"Worker {self._share.worker} was asked for a sum of {word.count} results, but has {self._count} that count."
            )
        (message,) = self._share.program.messages
        with self._aside():
            payload, checksum = payload_of(self._share, self.job, message, self._sum)
            self._send(message, payload, checksum, self._times[-MOST_TIMES:], word.ticket)

    def _aside(self) -> Any:
        """Beside what the other thread computes, where that is on a device: its queue may hold a task that nobody needs."""
        return getattr(self._share.problem, "aside", nullcontext)()

    # The thread that computes

    def work(self, stopped: Callable[[], bool], idle: Callable[[], None] | None = None) -> None:
        """Do what is handed out until `stopped()`, which is asked between tasks. idle: how to wait, by default for `hear`."""
        self.begin()
        if self._share.heeds:
            self._share.problem.heed(stopped)  # type: ignore[attr-defined]
        while not stopped():
            if self.next >= 0:
                self.do(stopped)
            elif idle is not None:
                idle()
            elif not self._rest():
                break
        self.leave()

    def begin(self) -> None:
        """Let the problem hear what came with the order."""
        if self._share.listens:
            self._share.problem.hear(self.job.context)  # type: ignore[attr-defined]

    @property
    def next(self) -> int:
        """The task that comes next; -1: none."""
        with self._lock:
            return self._todo[0] if self._todo else -1

    def _rest(self) -> bool:
        """Wait for a word; False when the round is over."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._todo) or self._over)
            return not self._over

    def do(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """A task that has begun is done, whatever happens meanwhile: then the worker is free, and says so.

        A problem that can stop leaves it when the round is over; its worker is free then, and nobody asks for the result.
        """
        with self._lock:
            if not self._todo:  # it was told to forget it
                return
            task, epoch = self._todo.popleft(), self._epoch
        place, began = self._place[task], self.job.now()
        part, block = self._share.program.tasks[place]
        with contextlib.suppress(Abandoned):
            result = partial_gradient(self._share, self.job, part, block)
            self._stretch(place, began, stopped)
            self._keep(task, epoch, result, began)
        self._say(task, epoch)

    def _keep(self, task: int, epoch: int, result: Any, began: float) -> None:
        with self._lock:
            if epoch == self._epoch:
                self._waiting[task] = result
                self._times += (began, self.job.now())

    def _stretch(self, place: int, began: float, stopped: Callable[[], bool]) -> None:
        """Injected slowness: the delay of the message is for all that the worker may do, a task has its share of it."""
        program, delays = self._share.program, self.job.delays
        if delays is None:
            return
        due = began + float(delays[0]) * program.work[place] / sum(program.work)
        while (rest := due - self.job.now()) > 0 and not stopped():
            time.sleep(min(rest, 0.01))


def _added(total: Any, result: Any) -> Any:
    total += result
    return total


class Shifts:
    """The newest shift of a worker, from the thread that hears orders to the one that computes: who lags skips rounds."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._newest: Shift | None = None
        self._early: list[Tell] = []
        self._fresh = self._closed = False

    def put(self, shift: Shift | None) -> None:
        """A new order has come; None: the last one."""
        with self._news:
            if self._newest is not None:
                self._newest.end()
                if self._fresh:  # nobody has taken it up
                    self._newest.leave()
            self._newest, self._fresh, self._closed = shift, True, shift is None
            early, self._early = self._early, []
            self._news.notify_all()
        for word in early:
            self.hear(word)

    def take(self) -> Shift | None:
        """Wait for the next order; None when there is none any more."""
        with self._news:
            self._news.wait_for(lambda: self._fresh)
            self._fresh = self._closed
            return self._newest

    def hear(self, word: Tell) -> None:
        """Give a word to the shift that it is for. An order may come by another way, and later than its first words."""
        with self._news:
            shift = self._newest
            if shift is None or word.round > shift.job.round:
                self._early = [other for other in self._early if other.round == word.round] + [word]
                return
        shift.hear(word)
