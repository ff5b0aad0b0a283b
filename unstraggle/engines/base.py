"""Engine: the role. It carries orders to workers and messages to the master, and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid, UnstraggleError
from ..events import Dropped, Joined, Lost

if TYPE_CHECKING:
    from ..code import Code
    from ..problems.base import Problem

Bytes = NDArray[np.uint8]


class WorkerFailed(UnstraggleError):
    """The problem's own code raised an error on a worker: `worker` and `details`, its traceback."""

    def __init__(self, worker: int, details: str) -> None:
        last = details.strip().splitlines()[-1] if details.strip() else "no details"
        super().__init__(f"Worker {worker} failed: {last} Its traceback:\n{details}")
        self.worker, self.details = worker, details


@dataclass(frozen=True, eq=False)
class Order:
    """Compute a round: `params` (dim,) at `step`, by all workers or some.

    delays: (M,) seconds after the start of the round before which a message may not leave; for tests and experiments.
    """

    round: int
    step: int
    params: NDArray[Any]
    workers: tuple[int, ...] | None = None
    delays: NDArray[np.float64] | None = None


@dataclass(eq=False, slots=True)
class Message:
    """A message as it came: row `index` of the code's table. Its payload is read-only and valid until the next round starts.

    time: of arrival, in seconds since the start of the round. times: start, end, start, end, ... of the worker's tasks since
    its last message. checksum: of the payload where it has none of its own (see `frame.checksum`); None: it came without one.
    """

    worker: int
    index: int
    round: int
    time: float
    payload: Bytes
    checksum: int | None = None
    times: tuple[float, ...] | None = None


Incoming = Message | Dropped | Lost | Joined
"""What an engine reports. Lost and Joined may come between rounds, too."""


class Engine(Protocol):
    """Starts workers for a code, brings them orders and the master what happens. Times are seconds since the round's start."""

    @property
    def problem(self) -> Problem: ...

    def open(self, code: Code) -> None:
        """Start the workers and wait until they are ready. Called once."""
        ...

    def start(self, order: Order) -> None:
        """Begin a round, or give the current one again to some workers (`order.workers`)."""
        ...

    def next(self, until: float | None) -> list[Incoming]:
        """What has come: waits until there is something, or until that time; the list is empty when the time has come."""
        ...

    def clock(self) -> float:
        """Seconds since the round's start."""
        ...

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        """These workers need not go on with the round; they look between two tasks."""
        ...

    def expected(self) -> frozenset[int]:
        """Workers that are lost but may join again by themselves."""
        ...

    def close(self) -> None:
        """End all workers. May be called twice."""
        ...


def prepared(problem: Any, code: Code) -> Problem:
    """The problem that a code's workers compute: with encoded partitions where the code wants them, and checked."""
    if code.data is not None:
        if not hasattr(problem, "encode"):
            raise Invalid(
                f"{code.name} computes on encoded data, which needs a problem with encode(matrix), such as LeastSquares, "
                f"but got {type(problem).__name__}. Use a code for partial gradients, such as correlated_mmc."
            )
        return problem.encode(code.data)  # type: ignore[no-any-return]
    if problem.k != code.k:
        raise Invalid(
            f"{code.name} has k={code.k} partitions, but the problem has {problem.k}. "
            f"Split the data into {code.k} partitions (of the sizes code.shares)."
        )
    return problem  # type: ignore[no-any-return]
