"""What latency models share: the interface, arrival times from task times, and independent times with a known distribution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import Invalid
from ..randomness import Seed, generator
from ..scheme.arrivals import Speeds
from ..scheme.code import Code
from .order_statistics import order_means

Times = NDArray[np.float64]


@door
def arrivals(code: Code, durations: Times) -> Times:
    """(R, M) arrival times from (R, T) durations of the tasks: a worker does its tasks one after the other."""
    padded = np.concatenate([durations, np.zeros((len(durations), 1))], axis=1)
    finished = padded[:, code.tasks.queues].cumsum(axis=2)
    return np.asarray(finished[:, code.messages.worker, code.messages.after - 1])


def require(model: object, **values: tuple[float, float]) -> None:
    """Parameters, each with a bound: they must be finite and above it."""
    for name, (value, least) in values.items():
        if not (isinstance(value, int | float | np.number) and math.isfinite(value) and value > least):
            raise Invalid(f"{type(model).__name__} needs a finite {name} > {least:g}, but got {name}={value!r}.")


def require_shift(model: object, shift: float) -> None:
    """A least time of a unit of work."""
    if not (isinstance(shift, int | float | np.number) and math.isfinite(shift) and shift >= 0):
        raise Invalid(f"{type(model).__name__} needs a finite shift >= 0, but got shift={shift!r}.")


class OneSpeed(ABC):
    """A worker has one speed in a round: subclasses say how the speeds of n workers are drawn."""

    @abstractmethod
    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times | None:
        """(rounds, n) seconds per unit of work, one round after the other."""

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        speeds = self.speeds(code.n, rounds, rng)
        assert speeds is not None
        return speeds[:, code.messages.worker] * code.ready()

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        """(rounds, T) seconds that each task takes."""
        speeds = self.speeds(code.n, rounds, rng)
        assert speeds is not None
        return speeds[:, code.tasks.worker] * code.tasks.work

    def order_statistics(self, n: int, draws: int = 100_000, rng: Seed = 0) -> Times:
        """(n,) mean of the q-th smallest of n speeds, by simulation; `order_statistics_error` says how sure."""
        return np.asarray(self._sorted(n, draws, rng).mean(axis=0))

    def order_statistics_error(self, n: int, draws: int = 100_000, rng: Seed = 0) -> Times:
        """(n,) standard error of `order_statistics`; 0 where these are computed exactly."""
        return np.asarray(self._sorted(n, draws, rng).std(axis=0) / np.sqrt(draws))

    def harmonic_order_statistics(self, n: int, draws: int = 100_000, rng: Seed = 0) -> Times:
        """(n,) harmonic mean 1 / E[1 / T_(q)] of the q-th smallest of n speeds, by simulation."""
        return np.asarray(1 / (1 / self._sorted(n, draws, rng)).mean(axis=0))

    def _sorted(self, n: int, draws: int, rng: Seed) -> Times:
        speeds = self.speeds(n, draws, generator(rng))
        assert speeds is not None
        return np.sort(speeds, axis=1)


@dataclass(frozen=True, repr=False)
class Family(OneSpeed):
    """Independent, identically distributed times of a unit of work: one draw per worker and round, or one for every task.

    Subclasses give the distribution by its quantile and survival functions; means of order statistics follow by quadrature.
    """

    per: Literal["round", "task"] = field(default="round", kw_only=True)

    continuous: ClassVar[bool] = True
    """Whether the times have a density."""

    def __post_init__(self) -> None:
        if self.per not in ("round", "task"):
            raise Invalid(f'{type(self).__name__} needs per="round" or per="task", but got per={self.per!r}.')

    @abstractmethod
    def quantile(self, lower: Times, upper: Times) -> Times:
        """The time that is not exceeded with probability `lower` = 1 - `upper`."""

    @abstractmethod
    def survival(self, work: Any, deadline: Any) -> Times:
        """P(a worker takes longer than `deadline` for `work` units), with one draw per round."""

    def cdf(self, time: Any) -> Times:
        """P(a unit of work is done by `time`)."""
        return np.asarray(1 - self.survival(1.0, time))

    @property
    def mean(self) -> float:
        """Mean time of a unit of work."""
        return float(self.order_statistics(1)[0])

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> Times:
        """Independent times of a unit of work."""
        lower = rng.random(shape)
        return self.quantile(lower, 1 - lower)

    def speeds(self, n: int, rounds: int, rng: np.random.Generator) -> Times | None:
        """One speed per worker and round; None where every task has its own."""
        return self.draw((rounds, n), rng) if self.per == "round" else None

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        if self.per == "task":
            return arrivals(code, self.durations(code, rounds, rng))
        return super().sample(code, rounds, rng)

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> Times:
        if self.per == "task":
            return self.draw((rounds, len(code.tasks)), rng) * code.tasks.work
        return super().durations(code, rounds, rng)

    def order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        """(n,) mean of the q-th smallest of n times, q = 1..n; infinite where it is."""
        return order_means(self.quantile, require_count(n))

    def order_statistics_error(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        return np.zeros(require_count(n))

    def harmonic_order_statistics(self, n: int, draws: int = 0, rng: Seed = 0) -> Times:
        """(n,) harmonic mean 1 / E[1 / T_(q)] of the q-th smallest of n times; 0 where E[1 / T_(q)] is infinite."""
        return np.asarray(1 / order_means(self.quantile, require_count(n), power=-1))

    def __repr__(self) -> str:
        """The expression that makes the model."""
        own = [f for f in fields(self) if f.name != "per"] + [f for f in fields(self) if f.name == "per"]
        shown = [
            f"{f.name}={literal(getattr(self, f.name))}"
            for f in own
            if f.default is MISSING or getattr(self, f.name) != f.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def require_one_speed(name: str, *models: Any) -> None:
    """Models to be combined: each must give a worker one speed per round."""
    for model in models:
        if not isinstance(model, Speeds):
            raise Invalid(f"{name} combines latency models such as ShiftedExponential(rate=10), but got {model!r}.")
        if per_task(model):
            raise Invalid(f'{name} needs models with one draw per round, but got {model!r}. Use per="round".')


def per_task(model: object) -> bool:
    """Whether a worker draws anew for every task (`per="task"`), and not once a round."""
    return getattr(model, "per", "round") == "task"


def literal(value: Any) -> str:
    """A number, or nested lists of them, as text that can be parsed again; 1e999 is how Python writes infinity as a literal."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    plain = value.item() if isinstance(value, np.generic) else value
    return "1e999" if plain == math.inf else repr(plain)


def require_count(n: Any) -> int:
    """A number of workers."""
    if not isinstance(n, int | np.integer) or n < 1:
        raise Invalid(f"Order statistics need a whole number of workers n >= 1, but got n={n!r}.")
    return int(n)
