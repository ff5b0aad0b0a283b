"""The settings of `planned`: eight kinds of slowness, each a way to draw how long a unit of work takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unstraggle.latency import Persistent, ShiftedExponential, TwoSpeed

Times = NDArray[np.float64]

N, DIM, UNIT = 8, 1000, 0.04
"""Workers, coordinates, and seconds of a unit of work, about."""
CELLS = 4
"""Stretches of data in a share, each with a cost of its own."""


@dataclass(frozen=True)
class Setting:
    """speeds: (rounds, n) seconds of a unit of work, from a generator. costs: (rounds, cells) of the data. fixed: seconds of a
    task beside its work. link: bytes per second of the master's link. cut: how shares are cut into tasks to record them."""

    about: str
    speeds: Callable[[int, np.random.Generator], Times]
    costs: Callable[[int, np.random.Generator], Times] = lambda rounds, rng: np.ones((rounds, 1))
    fixed: float = 0.0
    link: float | None = None
    cut: Literal["uneven", "equal"] = "uneven"

    def draw(self, rounds: int, seed: int) -> tuple[Times, Times]:
        """Speeds of workers and costs of data, from a seed."""
        first, second = np.random.default_rng(seed).spawn(2)
        return self.speeds(rounds, first), self.costs(rounds, second)


def by(model: Any) -> Callable[[int, np.random.Generator], Times]:
    """Speeds of a latency model."""
    return lambda rounds, rng: np.asarray(model.speeds(N, rounds, rng))


def even(spread: float = 0.02, factors: Any = 1.0) -> Callable[[int, np.random.Generator], Times]:
    """Speeds that last, of workers that are so many times slower; a little uneven."""
    return lambda rounds, rng: UNIT * np.asarray(factors) * (1 + spread * rng.random((rounds, N)))


def lognormal(sigma: float = 0.6) -> Callable[[int, np.random.Generator], Times]:
    """Costs of data: 1 on average."""
    return lambda rounds, rng: rng.lognormal(-(sigma**2) / 2, sigma, (rounds, CELLS * N))


RANDOM = ShiftedExponential(rate=2 / UNIT, shift=UNIT / 2)
SLOW = Persistent(TwoSpeed(UNIT, UNIT, 0), TwoSpeed(4 * UNIT, 4 * UNIT, 0), p=0.15, stay=4)
SETTINGS = {
    "random": Setting("a worker's time in a round is a shifted exponential", by(RANDOM)),
    "bursty": Setting("a worker is four times as slow in 15 % of the rounds, for four rounds on average", by(SLOW)),
    "persistent": Setting("worker 3 is always three times as slow", even(factors=[1, 1, 1, 3, 1, 1, 1, 1])),
    "data-caused": Setting(
        "quarters of a share cost lognormally much (sigma 0.6)", even(factors=2.5), lognormal(), cut="equal"
    ),
    "none": Setting("all alike, but for 2 %", even()),
    "fixed cost": Setting("a task costs 15 ms beside its work, which is random", by(RANDOM), fixed=0.015),
    "slow link": Setting("random, and a gradient takes 2 ms of the master's link", by(RANDOM), link=4 * DIM / 0.002),
    "unequal workers": Setting("speeds from 1 to 3", even(factors=3 / np.linspace(1, 3, N))),
}
