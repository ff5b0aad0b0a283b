"""The way of the messages to the master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..doors import door
from ..errors import Invalid
from ..scheme.code import Code
from .base import Times


@door
@dataclass(frozen=True)
class Network:
    """A latency model plus the way of the messages to the master, over one link per worker.

    dim: coordinates of the gradient. bandwidth: bytes per second, for all workers or one each. round_trip: seconds. Messages
    of a worker queue on its link; the master's own link is taken to be wide enough.
    """

    base: Any
    dim: int
    bandwidth: float | tuple[float, ...]
    round_trip: float = 0.0

    def __post_init__(self) -> None:
        rates = np.atleast_1d(np.asarray(self.bandwidth, dtype=float))
        if np.ndim(self.bandwidth):
            object.__setattr__(self, "bandwidth", tuple(rates.tolist()))
        if not (rates > 0).all() or self.dim < 1 or not self.round_trip >= 0 or np.isnan(rates).any():
            raise Invalid(
                f"Network needs dim >= 1, bandwidth > 0 bytes/s and round_trip >= 0 s, but got dim={self.dim}, "
                f"bandwidth={self.bandwidth}, round_trip={self.round_trip}."
            )

    def seconds(self, code: Code) -> Times:
        """(M,) time that each message occupies its worker's link."""
        rates = np.asarray(self.bandwidth, dtype=float)
        if rates.ndim and len(rates) != code.n:
            raise Invalid(f"Network has bandwidths for {len(rates)} workers, but the code has {code.n}.")
        sizes = np.asarray(code.blocks)[code.messages.block] * self.dim * code.messages.bits / 8
        return np.asarray(sizes / np.broadcast_to(rates, code.n)[code.messages.worker])

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        times = np.array(self.base.sample(code, rounds, rng))  # a copy: a model may hand out an array that it keeps
        seconds = self.seconds(code)
        order = np.lexsort((code.ready(), code.messages.worker))
        free = np.zeros(rounds)
        for previous, m in zip([-1, *order[:-1]], order, strict=True):
            if previous < 0 or code.messages.worker[previous] != code.messages.worker[m]:
                free = np.zeros(rounds)
            free = np.maximum(times[:, m], free) + seconds[m]
            times[:, m] = free
        return np.asarray(times + self.round_trip)
