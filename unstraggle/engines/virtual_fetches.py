"""Payloads that are fetched, on a sampled clock: when each that was asked for is with the master."""

from __future__ import annotations

import heapq

import numpy as np

from ..runtime.instructions import Tell
from ..scheme.arrivals import Way
from ..scheme.code import Code


class VirtualFetches:
    """A request takes the time of a word; payloads queue on their worker's link and on the master's, and take as long again."""

    def __init__(self, code: Code, way: Way) -> None:
        self._way, self._senders = way, code.messages.worker
        self._free, self._through = np.zeros(code.n), 0.0
        self._at_link: list[tuple[float, int, int]] = []
        self._arriving: list[tuple[float, int, int]] = []

    def ask(self, word: Tell, clock: float) -> None:
        """A worker is told to send a message."""
        heard, m = clock + self._way.word, word.message
        self._free[word.worker] = max(heard, self._free[word.worker]) + self._way.link[m]
        heapq.heappush(self._at_link, (float(self._free[word.worker]), m, word.ticket))

    @property
    def soonest(self) -> float:
        """When the next payload is at the master's link, or has arrived; infinite for never."""
        return min((queue[0][0] for queue in (self._at_link, self._arriving) if queue), default=np.inf)

    def take(self, time: float) -> list[tuple[int, int]]:
        """What happens at a time: messages and tickets of the payloads that arrive."""
        while self._at_link and self._at_link[0][0] == time:
            _, m, ticket = heapq.heappop(self._at_link)
            self._through = max(self._through, time) + float(self._way.master[m])
            heapq.heappush(self._arriving, (self._through + self._way.word, m, ticket))
        found = []
        while self._arriving and self._arriving[0][0] == time:
            _, m, ticket = heapq.heappop(self._arriving)
            found.append((m, ticket))
        return found
