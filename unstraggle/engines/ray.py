"""Ray: workers that Ray places on a cluster and restarts. Messages go straight to the master; by Ray they cost far more."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..blocks import block_slices
from ..doors import door
from ..errors import Invalid, UnstraggleError
from ..problems.base import Problem, Restricts, Shares
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Order
from ..runtime.payload import number_type
from ..runtime.serve import cut
from ..scheme.code import Code
from .base import prepared
from .environment import thread_limits
from .hub import Hub
from .mooring import agree, moored, require_way
from .ray_connection import Connection, load
from .ray_worker import Post, Worker
from .starter import Starter

log = logging.getLogger("unstraggle")


@door
class Ray:
    """One actor a worker. Ray starts, places and restarts it; orders and messages take a connection to the master.

    address: of a cluster ("auto": the one on this machine); by default the one that `ray.init` has joined or RAY_ADDRESS names,
    else one is started, and ended by `close`. num_cpus: of Ray's that a worker reserves; few, so that there may be more workers
    than processors, but not 0, for then Ray does not spread them over machines. options: more of Ray's for an actor, such as
    {"num_gpus": 1}. restarts: how often a worker that died is started again. heartbeat: seconds without a sign of life
    after which a worker counts as lost until it shows one. threads: of the numerical libraries in each worker. start_within:
    seconds, also for a worker that starts again. host, port: where the master listens; workers must be able to reach it.
    way: how gradients of workers on accelerators get into memory of their hosts: "pinned" (which devices reach), "host" (as
    bytes) or "auto".

    Workers show a secret token that Ray gives them, but nothing is encrypted: use a network that you trust with Ray itself. A
    cluster that is started here listens on all interfaces and asks for Ray's token (docs/security.md), hence ray>=2.59.
    """

    keeps = True

    def __init__(
        self,
        problem: Problem,
        *,
        address: str | None = None,
        num_cpus: float = 0.001,
        options: Mapping[str, Any] | None = None,
        restarts: int = 3,
        heartbeat: float = 10.0,
        threads: int = 1,
        start_within: float = 300.0,
        host: str | None = None,
        port: int = 0,
        way: str = "auto",
    ) -> None:
        if not 1 <= heartbeat < math.inf or threads < 1 or restarts < 0 or not num_cpus >= 0:
            raise Invalid(
                "Ray needs a finite heartbeat >= 1 second, threads >= 1, restarts >= 0 and num_cpus >= 0, "
                f"but got heartbeat={heartbeat}, threads={threads}, restarts={restarts}, num_cpus={num_cpus}."
            )
        self.problem, self._way = problem, require_way("Ray", way)
        load()
        self._address, self._cpus, self._options = address, num_cpus, dict(options or {})
        self._restarts, self._heartbeat, self._threads = restarts, heartbeat, threads
        self._start_within, self._host, self._port = start_within, host, port
        self._connection: Connection | None = None
        self._actors: list[Any] = []
        self._preparing: dict[int, Any] = {}
        self._whole: Any = None

    def open(self, code: Code) -> None:
        if self._connection is not None:
            raise Invalid("An engine serves one code. Close this one and make another for the next code.")
        self.problem = prepared(self.problem, code)
        agree(self.problem, code, self._way)
        self._code, self._dtype = code, np.dtype(self.problem.dtype)
        times = {"heartbeat": self._heartbeat, "start_within": self._start_within}
        self._hub = Hub(code, self.problem.dim, self._dtype, self._welcome_back, restarts=self._restarts, **times)
        self._connection = Connection.join(self._address, max(code.n, math.ceil(code.n * self._cpus)), self._threads)
        self._starter = Starter(self._prepare)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._place_all(self._connection)
            self._wait_for_all()
            undo.pop_all()

    def start(self, order: Order) -> None:
        if order.round != self._hub.round:
            self._hub.begin(order.round)
        workers = range(self._code.n) if order.workers is None else order.workers
        self._hub.order(order, [worker for worker in workers if self._hub.roster.is_ready(worker)])

    def lend(self, round: int) -> Any:
        """Memory from which workers of this host read, where parameters are long."""
        return self._hub.depot.lend(round)

    def gather(self, code: Code) -> Any:
        return None

    def next(self, until: float | None) -> list[Incoming]:
        hub = self._hub
        while not hub.events:
            rest = hub.roster.pause if until is None else min(until - self.clock(), hub.roster.pause)
            hub.collect(max(rest, 0.0))
            hub.look()
            if until is not None and self.clock() >= until:
                break
        for worker, prepared_again in self._starter.take():
            if isinstance(prepared_again, Exception):
                log.warning("Worker %d could not get its share again: %s", worker, prepared_again)
        events, hub.events = hub.events, []
        return events

    def clock(self) -> float:
        return self._hub.clock()

    def tell(self, word: Tell) -> None:
        self._hub.tell(word)

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        self._hub.cancel(round, workers)

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None while it has none, or where it runs on another machine."""
        return self._hub.pid(worker)

    def close(self) -> None:
        """End the workers, and wait a little until they are gone. Ray ends those that are stopped a few seconds later."""
        if self._connection is None:
            return
        self._starter.end()
        self._starter.join(2.0)
        for step in list(self._preparing.values()):  # else Ray says on the terminal that it will try again
            load().cancel(step)
        for actor in self._actors:
            load().kill(actor)
        limit = time.monotonic() + 2.0
        while any(seat.link is not None for seat in self._hub.seats) and time.monotonic() < limit:
            self._hub.collect(0.1)
        self._hub.close()
        self._actors, self._preparing, self._whole = [], {}, None
        self._connection.leave()
        self._connection = None

    # Starting

    def _place_all(self, connection: Connection) -> None:
        """Open the door and ask Ray for the actors."""
        host = self._host or ("127.0.0.1" if connection.alone else load().util.get_node_ip_address())
        address = self._hub.listen(host, self._port)
        actor = load().remote(Worker).options(**self._actor_options(connection))
        for worker in range(self._code.n):
            about = len(self._hub.mine[worker]), self.problem.dim, self._dtype.str, self._hub.depot.shares(worker)
            post = Post(address, self._hub.token, *about)
            self._actors.append(actor.remote(worker, post))

    def _actor_options(self, connection: Connection) -> dict[str, Any]:
        mine = {"num_cpus": self._cpus, "max_restarts": self._restarts, "scheduling_strategy": "SPREAD"}
        if connection.alone:
            return mine | self._options
        environment = dict(self._options.get("runtime_env") or {})
        environment["env_vars"] = thread_limits(self._threads) | environment.get("env_vars", {})
        return mine | self._options | {"runtime_env": environment}

    def _prepare(self, worker: int) -> Any:
        """Give a worker its share by Ray's object store: the whole problem, once to each machine, where it cannot be cut.

        In the starter's thread, since pickling takes its time."""
        program = self._code.program(worker)
        if not isinstance(self.problem, Restricts | Shares) and self._whole is None:
            self._whole = load().put(self.problem)
        share = cut(self.problem, program) if self._whole is None else self._whole
        slices = tuple(block_slices(self.problem.dim, self._code.blocks))
        prepare = self._actors[worker].prepare.options(max_task_retries=-1)
        through = moored(self.problem if self._whole is not None else share, self._code, self._way)
        number = number_type(self._code, self._dtype)
        self._preparing[worker] = prepare.remote(program, share, slices, number, through)
        return self._preparing[worker]

    def _wait_for_all(self) -> None:
        ray, limit = load(), time.monotonic() + self._start_within
        steps: dict[Any, int] = {}
        for worker in range(self._code.n):
            self._starter.ask(worker)
        while not self._hub.roster.all_ready:
            self._hub.collect(0.2)
            for worker, step in self._starter.take():
                if isinstance(step, BaseException):
                    raise step
                steps[step] = worker
            for done in ray.wait(list(steps), num_returns=len(steps), timeout=0)[0] if steps else ():
                _require(done, steps.pop(done))
            if time.monotonic() > limit:
                raise UnstraggleError(
                    f"Workers {self._hub.roster.not_ready()} were not ready within {self._start_within:g} s. "
                    "Raise start_within, use fewer workers, "
                    f"see that Ray has num_cpus={self._cpus} for each, and that they can connect to this machine (host, port)."
                )
        self._hub.events = []

    # What happens

    def _welcome_back(self, worker: int) -> None:
        """Ray has started a worker again: it needs its share."""
        if self._hub.roster.started_again(worker):
            self._starter.ask(worker)


def _require(step: Any, worker: int) -> None:
    """Raise the reason why a worker could not start."""
    ray = load()
    try:
        ray.get(step)
    except ray.exceptions.RayError as error:
        raise UnstraggleError(
            f"Worker {worker} could not start. The problem must be picklable, and unstraggle and the problem's modules must be "
            f"installed on all machines of the cluster. Ray says: {error}"
        ) from error
