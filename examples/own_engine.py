"""An engine that the library does not have: workers are threads of this process.

python examples/own_engine.py
"""

from __future__ import annotations

import argparse
import copy
import queue
import threading
import time
import traceback
from typing import Any

import numpy as np

import unstraggle as us
from unstraggle.engines import Abandoned, Failed, Incoming, Job, Message, Order, Outgoing, Share, prepared, run, share_of
from unstraggle.testing import check_engine


class Threads:
    """One thread per worker. For problems that let go of Python's interpreter lock, as large NumPy operations do.

    Not for networks in PyTorch, whose random numbers belong to the process: use `Local`. Threads do not die and cannot be
    killed, so nobody is ever lost here.
    """

    def __init__(self, problem: Any) -> None:
        self.problem = problem
        self._inbox: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._orders: list[queue.SimpleQueue[Job | None]] = []
        self._round, self._origin = -1, time.monotonic()

    def open(self, code: us.Code) -> None:
        """Start the threads, each with its program and a share of the problem."""
        if self._orders:
            raise us.Invalid("An engine serves one code. Close this one and make another for the next code.")
        self.problem = prepared(self.problem, code)
        shares = [copy.deepcopy(share_of(self.problem, code, worker)) for worker in range(code.n)]
        self._mine = [[message.index for message in share.program.messages] for share in shares]
        self._over = [-1] * code.n  # the last round that each worker need not go on with
        self._orders = [queue.SimpleQueue() for _ in shares]
        for share in shares:
            threading.Thread(target=self._serve, args=(share,), daemon=True).start()

    def start(self, order: Order) -> None:
        """Give the order to all workers, or to some of them again. They get a copy of the parameters, which may change."""
        if order.round != self._round:
            self._round, self._origin = order.round, time.monotonic()
        params = order.params.copy()
        for worker in range(len(self._orders)) if order.workers is None else order.workers:
            self._over[worker] = order.round - 1
            delays = None if order.delays is None else order.delays[self._mine[worker]]
            program = None if order.code is None else order.code.program(worker)  # a code of this round only
            self._orders[worker].put(Job(order.round, order.step, params, self._origin, delays, program, order.context))

    def next(self, until: float | None) -> list[Incoming]:
        """The next event. Every wait ends: with a message, with a failure, or at `until`."""
        try:
            event = self._inbox.get(timeout=None if until is None else max(0.0, until - self.clock()))
        except queue.Empty:
            return []
        event.time = self.clock()
        return [event]

    def clock(self) -> float:
        return time.monotonic() - self._origin

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        for worker in workers:
            self._over[worker] = max(round, self._over[worker])

    def close(self) -> None:
        """Threads end when they have finished their present task."""
        self.cancel(self._round, tuple(range(len(self._orders))))
        for orders in self._orders:
            orders.put(None)
        self._orders = []

    # A worker

    def _serve(self, share: Share) -> None:
        orders = self._orders[share.worker]
        while (job := orders.get()) is not None:
            try:
                self._work(share, job)
            except Exception:
                self._inbox.put(Failed(share.worker, job.now(), job.round, traceback.format_exc()))

    def _work(self, share: Share, job: Job) -> None:
        def stopped() -> bool:
            return self._over[share.worker] >= job.round or self._round != job.round

        def wait(until: float) -> None:
            while (rest := until - time.monotonic()) > 0:
                if stopped():
                    raise Abandoned
                time.sleep(min(1e-3, rest))

        def send(message: Outgoing, payload: Any, checksum: int, times: Any) -> None:
            payload.flags.writeable = False
            self._inbox.put(Message(share.worker, message.index, job.round, job.now(), payload, checksum, tuple(times)))

        run(share, job, send, stopped, wait)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=50)
    args = options.parse_args()

    report = check_engine(Threads)
    print(f"check_engine: {report.codes} codes, {report.rounds} rounds, worst error {report.worst_error:.1g}")
    code = us.codes.cyclic_repetition(6, s=2)
    problem = us.problems.Logistic.random(code, dim=20, samples=600)
    latency = us.latency.ShiftedExponential(rate=200, shift=0.001)
    params = np.zeros(20)
    with us.Master(code, us.engines.Chaos(Threads(problem), latency=latency, rng=0)) as master:
        for step in range(args.steps):
            estimate = master.gradient(params)
            params -= 0.01 * estimate.gradient
            if step in (0, args.steps - 1):
                print(f"step {step}: loss {problem.loss(params):.4f}, exact {estimate.exact}, {estimate.messages} messages")


if __name__ == "__main__":
    main()
