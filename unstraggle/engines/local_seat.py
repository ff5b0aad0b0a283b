"""A worker's place in the local engine: its process, and the pipe by which it gets orders and words."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from .local_worker import ORDER

ATOMIC = 4096 // ORDER.size * ORDER.size
"""Bytes of orders and words that a pipe takes whole or not at all."""


@dataclass(eq=False)
class Seat:
    """The process that has the place now, its pipe, an order that the pipe did not take, and the socket over which the process
    hears of another engine."""

    process: Any = None
    orders: int = -1
    waiting: bytes = b""
    link: socket.socket | None = None

    def tell(self, record: bytes) -> None:
        """Give an order, or words. A pipe that is full belongs to a worker that lags far behind: it gets its newest order, and
        what follows on it, later."""
        if self.orders < 0:
            return
        try:
            while record:
                record = record[os.write(self.orders, record[:ATOMIC]) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            record = b""
        self.waiting = record

    def hang_up(self) -> None:
        """There is nothing to do any more: the process ends."""
        if self.link is not None:
            self.link.close()
        self.end_orders()

    def end_orders(self) -> None:
        """The process is free when it has done what it is in."""
        orders, self.orders, self.waiting = self.orders, -1, b""
        if orders >= 0:
            os.close(orders)
