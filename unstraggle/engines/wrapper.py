"""Wrapper: an engine around another one, which hands on what it does not change."""

from __future__ import annotations

from ..problems.base import Problem
from .base import Engine, Processes, Sampled


class Wrapper:
    """What every engine around another one hands on. What not every engine has, such as `tell`, is up to those that want it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def problem(self) -> Problem:
        return self.engine.problem

    @property
    def sampled(self) -> bool:
        return isinstance(self.engine, Sampled) and self.engine.sampled

    @property
    def carry(self) -> bool:
        """Of an engine on a sampled clock: whether workers stay in tasks when a round ends."""
        return bool(getattr(self.engine, "carry", False))

    def clock(self) -> float:
        return self.engine.clock()

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        self.engine.cancel(round, workers)

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None where there is none, or none that could be signalled."""
        return self.engine.pid(worker) if isinstance(self.engine, Processes) else None

    def close(self) -> None:
        self.engine.close()
