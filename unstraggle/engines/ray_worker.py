"""The worker of the Ray engine: an actor that Ray places and restarts. Orders and messages take a connection of their own."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..problems.base import Problem
from ..runtime import frame, words
from ..runtime.instructions import Tell
from ..runtime.kept import Kept
from ..runtime.message import Bytes
from ..runtime.serve import Abandoned, Job, Share, Times, run
from ..runtime.shift import Shift, Shifts
from ..scheme.program import Outgoing, Program, unpacked
from . import wire
from .commons import LONG, PLACE, machine
from .depot import ROW
from .dock import Dock
from .parts import Flow, Part, rest_of
from .shared import PROGRAM

CONNECT = 30.0
"""Seconds for the connection to the master."""
YIELD = 50e-6
"""Seconds between two parts of a message, in which others that wait for the connection get it."""


@dataclass(frozen=True)
class Post:
    """What a worker needs to reach the master and to read its orders.

    messages: of the worker in a round. dim, param_type: of the parameters. offered: memory for its messages follows.
    """

    address: tuple[str, int]
    token: bytes
    messages: int
    dim: int
    param_type: str
    offered: bool = False

    @property
    def bytes(self) -> int:
        return self.dim * np.dtype(self.param_type).itemsize


class Worker:
    """One worker. A thread computes, and another listens to the master. A third one sends what is known of a message while the
    rest is computed."""

    def __init__(self, worker: int, post: Post) -> None:
        self._worker, self._post = worker, post
        self._news, self._sending = threading.Condition(), threading.Lock()
        self._share: Share | None = None
        self._shifts, self._kept = Shifts(), Kept()
        self._flow, self._flowing = Flow(), threading.Condition()
        self._pending: Job | None = None
        self._newest = self._cancelled = self._current = -1
        self._ways: deque[float] = deque(maxlen=100)
        self._sock = socket.create_connection(post.address, CONNECT)
        self._sock.settimeout(None)
        wire.tune(self._sock)
        self._dock = Dock(worker, post.dim, np.dtype(post.param_type))
        self._send(wire.HELLO, worker, os.getpid(), post.token)
        for _ in range(1 + post.offered):
            self._heed(*wire.read_record(self._sock, self._room))

    def prepare(
        self, program: Program, problem: Problem, slices: tuple[slice, ...], dtype: np.dtype[Any], moored: bool = False
    ) -> None:
        """Take the share of the work and begin. Ray may call it twice when it has restarted the worker."""
        if self._share is not None:
            return
        share = Share(program, problem, slices, dtype, checked=not self._dock.shares)
        if share.stays and self._post.bytes >= LONG:
            problem.stay()  # type: ignore[attr-defined]
        self._share = self._dock.moor(share) if moored else share
        self._dock.follow(self._share, self._know)
        if self._dock.follows:
            threading.Thread(target=self._send_parts, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._serve, args=(self._share,), daemon=True).start()
        self._send(wire.READY, 0, -1, machine().encode()[: wire.MACHINE])

    # The thread that computes

    def _serve(self, share: Share) -> None:
        while share.program.handed:
            shift = self._shifts.take()
            assert shift is not None
            self._try(shift.job.round, partial(shift.work, partial(self._over, shift.job.round)))
        while True:
            with self._news:
                self._news.wait_for(lambda: self._pending is not None)
                job, self._pending = self._pending, None
            assert job is not None
            self._compute(share, job)

    def _compute(self, share: Share, job: Job) -> None:
        self._current = job.round
        send = self._keep if job.pull else self._deliver
        begin = partial(self._begin, share, job.round) if self._dock.begins else None
        if self._dock.follows:
            self._dock.expect(job.program or share.program)
            with self._flowing:
                self._flow.begin(job.round, may=not job.pull and job.delays is None)
        self._try(job.round, lambda: run(share, job, send, self._stopped, self._wait, begin))
        with self._flowing:
            self._flow.stop()

    def _begin(self, share: Share, round: int, index: int) -> Any:
        return self._dock.begin(round, index, share.dtype)

    def _try(self, round: int, action: Callable[[], None]) -> None:
        """Do something for a round; an error is the master's to judge."""
        try:
            action()
        except Exception:
            text = traceback.format_exc().encode(errors="replace")
            self._send(wire.FAILED, 0, round, text[-wire.REPORT :])

    def _stopped(self) -> bool:
        return self._over(self._current)

    def _over(self, round: int) -> bool:
        return self._newest != round or self._cancelled >= round

    def _wait(self, until: float) -> None:
        """Sleep until then on the monotonic clock, or raise `Abandoned` when the round is over."""
        rest = until - time.monotonic()
        with self._news:
            if self._news.wait_for(self._stopped, min(rest, threading.TIMEOUT_MAX) if rest > 0 else 0.0):
                raise Abandoned

    def _deliver(self, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        if self._dock.shares:
            self._dock.put(self._current, message, payload, checksum, times)
            self._placed(self._current, message.index, 0)
            return
        head = frame.head(self._worker, message.index, self._current, len(payload), checksum, times)
        gone = self._gone(message.index, payload)
        if not gone:
            self._send(wire.SENT, message.index, self._current, head, payload)
            return
        for part in rest_of(self._current, message.index, gone, len(payload)):
            self._send(wire.PART, part.message, part.round, self._dock.part(part), at=part.at)
        self._send(wire.REST, message.index, self._current, head)

    def _gone(self, index: int, payload: Any) -> int:
        """How many bytes of a message that is whole now have gone ahead, with the part that is just going: the last."""
        if not self._dock.follows:
            return 0
        with self._sending, self._flowing:
            gone = self._flow.end(index)
        return gone if self._dock.stands(index, payload) else 0

    def _deliver_sum(self, round: int, message: Outgoing, payload: Any, checksum: int, times: Times, ticket: int) -> None:
        if self._dock.shares:
            self._dock.put(round, message, payload, checksum, times, again=True)
            self._placed(round, message.index, ticket)
            return
        head = frame.head(self._worker, message.index, round, len(payload), checksum, times, ticket)
        self._send(wire.SENT, message.index, round, head, payload)

    def _placed(self, round: int, message: int, ticket: int) -> None:
        self._send(wire.PLACED, 0, round, words.done(round, message, ticket))

    def _keep(self, message: Outgoing, payload: Any, checksum: int, times: Times) -> None:
        keep = self._dock.put if self._dock.shares else self._kept.put
        keep(self._current, message, payload, checksum, times)
        self._send(wire.ANNOUNCED, 0, self._current, words.done(self._current, message.index, 0))

    def _answer(self, word: Tell) -> None:
        """Send what is asked for, also while the other thread is in a task."""
        if self._dock.shares:
            if self._dock.require(word, self._newest):
                self._placed(word.round, word.message, word.ticket)
            return
        found = self._kept.asked(word, self._newest)
        if found is not None:
            told = word.round, len(found.payload), found.checksum, found.times, word.ticket
            self._send(wire.SENT, found.message, word.round, frame.head(self._worker, found.message, *told), found.payload)

    def _finished(self, round: int, task: int, epoch: int) -> None:
        self._send(wire.FINISHED, 0, round, words.done(round, task, epoch))

    # The thread that sends parts

    def _know(self, message: int, upto: int) -> None:
        """Called while the rest of a message is computed: nobody waits for the connection here."""
        with self._flowing:
            self._flow.know(message, upto)
            self._flowing.notify()

    def _send_parts(self) -> None:
        while True:
            with self._flowing:
                self._flowing.wait_for(self._flow.next)
            self._send_part()
            time.sleep(YIELD)

    def _send_part(self) -> None:
        with self._sending:
            part = self._next_part()
            if part is None:
                return
            data = self._dock.part(part).data
            self._write(wire.head(wire.PART, part.message, part.round, len(data), part.at), data)
            with self._flowing:
                self._flow.sent(part)

    def _next_part(self) -> Part | None:
        """What may go; nothing where its round is over."""
        with self._flowing:
            part = self._flow.next()
            if part is not None and self._over(part.round):
                self._flow.stop()
                return None
            return part

    # The thread that listens

    def _listen(self) -> None:
        try:
            while True:
                self._heed(*wire.read_record(self._sock, self._room))
        except (OSError, EOFError):
            self._leave("the master is gone")
        except Invalid as error:
            self._leave(str(error))

    def _room(self, what: wire.Head) -> Bytes:
        """The place for what follows, which is as large as it must be."""
        known = {
            wire.PING: 0,
            wire.CANCEL: 0,
            wire.TELL: words.WORD.size,
            wire.ORDER: wire.STEP.size + 8 * what.number + self._post.bytes,
            wire.ORDER_AT: wire.STEP.size + 8 * what.number + PLACE.size,
            wire.OFFER: PLACE.size + 8 * ROW * self._post.messages,
            wire.PARAMS: self._dock.parcel,
        }
        more = PROGRAM + wire.CONTEXT if what.kind in (wire.ORDER, wire.ORDER_AT) else 0
        fits = known.get(what.kind, -1) <= what.size <= known.get(what.kind, -1) + more
        if what.kind not in known or not fits or what.number not in (0, self._post.messages):
            raise Invalid(
                f"The master sent a record of kind {what.kind} and {what.size} bytes. Use the same release everywhere."
            )
        return self._dock.room() if what.kind == wire.PARAMS else np.empty(what.size, np.uint8)

    def _heed(self, what: wire.Head, body: Bytes) -> None:
        self._ways.append(time.monotonic() - what.moment)
        if what.kind == wire.PING:
            self._show()
            return
        if what.kind == wire.OFFER:
            self._dock.take_offer(body.tobytes())
            return
        if what.kind == wire.PARAMS:
            round, place = self._dock.came(body)
            self._send(wire.HAVE, 0, round, place)
            return
        if what.kind == wire.TELL:
            word = words.unpacked(body.data, self._worker)
            hear = self._answer if word.message >= 0 else self._shifts.hear
            self._try(what.round, lambda: hear(word))
            return
        if what.kind == wire.CANCEL:
            with self._news:
                self._cancelled = max(self._cancelled, what.round)
                self._news.notify_all()
            return
        job = self._job(what, body)
        if job is None:
            self._send(wire.LACKS, 0, what.round)
            return
        with self._news:
            self._cancelled = min(self._cancelled, what.round - 1)
            self._accept(job)

    def _job(self, what: wire.Head, body: Bytes) -> Job | None:
        """The job of an order; None where its parameters are not at the place that it says."""
        step, origin, more, *hold, pull = wire.STEP.unpack_from(body.data)
        cut = wire.STEP.size + 8 * what.number
        delays = body[wire.STEP.size : cut].view(np.float64) if what.number else None
        end = cut + (self._post.bytes if what.kind == wire.ORDER else PLACE.size)
        params = self._params(what, body[cut:end])
        if params is None:
            return None
        context, rest = body[end : end + more].tobytes(), body[end + more :].tobytes()
        program = unpacked(rest) if rest else None
        return Job(what.round, step, params, origin + self._skew(), delays, program, context, (hold[0], hold[1]), bool(pull))

    def _params(self, what: wire.Head, given: Bytes) -> NDArray[Any] | None:
        if what.kind == wire.ORDER_AT:
            return self._dock.params(what.round, given.tobytes())
        params = given.view(self._post.param_type)
        params.flags.writeable = False
        return params

    def _accept(self, job: Job) -> None:
        """The newest order counts: who lags behind skips rounds."""
        self._newest, self._pending = job.round, job
        self._news.notify_all()
        if self._share is not None and self._share.program.handed:
            ways = partial(self._finished, job.round), partial(self._deliver_sum, job.round)
            self._shifts.put(Shift(self._share, job, *ways))

    def _skew(self) -> float:
        """This machine's clock minus the master's, and the quickest way of a recent record, which is little."""
        return min(self._ways)

    # Sending

    def _show(self) -> None:
        """A sign of life; while a message is on its way, that is one."""
        if self._sending.acquire(blocking=False):
            try:
                self._write(wire.head(wire.ALIVE))
            finally:
                self._sending.release()

    def _send(self, kind: int, number: int = 0, round: int = -1, *body: Any, at: int = 0) -> None:
        parts = [memoryview(part) for part in body]
        with self._sending:
            self._write(wire.head(kind, number, round, sum(map(len, parts)), at), *parts)

    def _write(self, *parts: bytes | memoryview) -> None:
        try:
            wire.send_all(self._sock, *parts)
        except OSError:
            self._leave("the master is gone")

    def _leave(self, why: str) -> NoReturn:
        """End the process, whatever it is doing."""
        print(f"unstraggle worker {self._worker}: {why}, so this worker ends.", file=sys.stderr, flush=True)
        os._exit(3)
