"""What goes between a master and its workers: orders one way, messages and news the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UnstraggleError
from .events import Announced, Dropped, Failed, Finished, Joined, Lost

if TYPE_CHECKING:
    from ..scheme.code import Code
    from .holding import Hold

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

    delays: (M,) seconds after the start of the round before which a message may not leave; for tests and experiments. code: of
    this round, where it is another one than that which the engine was opened with; see `scheme.placement`. context: what else
    the problem must know in this round, as bytes that it reads itself; see `problems.Listens`. hold: how long workers wait
    before redundant tasks; an engine may leave it out. pull: workers keep their messages, announce them (`Announced`), and send
    those that they are told to (`Tell.message`).
    """

    round: int
    step: int
    params: NDArray[Any]
    workers: tuple[int, ...] | None = None
    delays: NDArray[np.float64] | None = None
    code: Code | None = None
    context: bytes = b""
    hold: Hold | None = None
    pull: bool = False


@dataclass(eq=False, slots=True)
class Message:
    """A message as it came: row `index` of the code's table. Its payload is read-only and valid until the next round starts.

    time: of arrival, in seconds since the start of the round. times: start, end, start, end, ... of the worker's tasks since
    its last message. checksum: of the payload where it has none of its own (see `frame.checksum`); None: it came without one.
    ticket: the request that it answers, where it was sent on request.
    """

    worker: int
    index: int
    round: int
    time: float
    payload: Bytes
    checksum: int | None = None
    times: tuple[float, ...] | None = None
    ticket: int = 0


Incoming = Message | Dropped | Lost | Joined | Failed | Finished | Announced
"""What an engine reports. Lost and Joined may come between rounds, too, and Failed may be of a round that is over."""
