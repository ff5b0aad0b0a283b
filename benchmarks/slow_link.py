"""SlowLink: any engine behind a link of the master that carries so many bytes a second, one message after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

from unstraggle.engines.base import Engine
from unstraggle.runtime.instructions import Tell
from unstraggle.runtime.message import Incoming, Message, Order
from unstraggle.scheme.code import Code


class SlowLink:
    """Messages come as late as their bytes take, behind those before them; notes, words and orders pass at once.

    The link is free when a round begins: what has not left until then was for a round that is over, and is dropped.
    """

    def __init__(self, engine: Engine, rate: float) -> None:
        self.engine: Any = engine
        self._rate, self._free, self._round = rate, 0.0, -1
        self._held: list[Message] = []

    @property
    def problem(self) -> Any:
        return self.engine.problem

    def open(self, code: Code) -> None:
        self.engine.open(code)

    def start(self, order: Order) -> None:
        if order.round != self._round:
            self._round, self._free, self._held = order.round, 0.0, []
        self.engine.start(order)

    def next(self, until: float | None) -> list[Incoming]:
        while True:
            due = [when for when in (until, self._held[0].time if self._held else None) if when is not None]
            news = self._taken(self.engine.next(min(due, default=None)))
            if news or (until is not None and self.clock() >= until):
                return news

    def _taken(self, incoming: list[Incoming]) -> list[Incoming]:
        """What is through the link by now; messages of this round are put on it."""
        news: list[Incoming] = []
        for one in incoming:
            if not isinstance(one, Message) or one.round != self._round:
                news.append(one)
                continue
            self._free = max(self._free, one.time) + len(one.payload) / self._rate
            self._held.append(dataclasses.replace(one, time=self._free))
        while self._held and self._held[0].time <= self.clock():
            news.append(self._held.pop(0))
        return news

    def clock(self) -> float:
        return float(self.engine.clock())

    def tell(self, word: Tell) -> None:
        self.engine.tell(word)

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        self.engine.cancel(round, workers)

    def pid(self, worker: int) -> int | None:
        return self.engine.pid(worker)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.engine.close()
