"""Generated traces with a label: what is wrong with the cluster that they come from."""

from dataclasses import dataclass

import numpy as np

from unstraggle.trace import Trace, from_seconds


@dataclass(frozen=True)
class Case:
    label: str
    name: str
    trace: Trace
    workers: tuple[int, ...] = ()

    def __str__(self):
        return f"{self.label}-{self.name}"


def _case(label, name, seconds, tasks=1, workers=()):
    """seconds: (rounds, n) or (rounds, n, tasks) of a whole round, shared by its tasks."""
    return Case(label, name, from_seconds(seconds / tasks, work=1 / tasks), workers)


def _noise(random, shape, spread=0.02):
    return np.exp(spread * random.standard_normal(shape))


def transient(random, n, rounds, tasks=4):
    """A different worker is slow each round, in all its tasks: rare and heavy, frequent and mild, or as families have it."""
    shape = (rounds, n, 1)
    speeds = {
        "rare": np.where(random.random(shape) < 0.05, 6.0, 1.0),
        "frequent": np.where(random.random(shape) < 0.25, 1.6, 1.0),
        "exponential": 0.3 + random.exponential(0.5, shape),
        "lognormal": random.lognormal(0, 0.5, shape),
        "pareto": 1 + random.pareto(2.5, shape),
        "weibull": 0.5 + random.weibull(1.5, shape),
    }
    for name, speed in speeds.items():
        yield _case("transient", f"{name}-n{n}", speed * _noise(random, (rounds, n, tasks)), tasks)


def episodes(random, n, rounds):
    """Slow for ten rounds at a time: transient, though it lasts."""
    slow = np.repeat(random.random((rounds // 10, n)) < 0.12, 10, axis=0)
    yield _case("transient", f"episodes-n{n}", np.where(slow, 2.5, 1.0) * _noise(random, slow.shape))


def persistent(random, n, rounds, tasks=4):
    """The same workers are slow in every round: one by a little, one by a lot, two, or half of an older generation."""
    for name, slow, factor in (("mild", 1, 1.25), ("one", 1, 1.8), ("severe", 1, 5.0), ("two", 2, 1.5), ("half", n // 2, 1.7)):
        workers = tuple(sorted(random.choice(n, slow, replace=False).tolist()))
        speed = np.where(np.isin(np.arange(n), workers), factor, 1.0)[:, None]
        yield _case("persistent", f"{name}-n{n}", speed * _noise(random, (rounds, n, tasks), 0.03), tasks, workers)


def data(random, n, rounds, tasks=8):
    """Every task has data of its own size: sequence lengths, few long ones, or two kinds of samples."""
    shape = (rounds, n, tasks)
    sizes = {
        "lognormal": random.lognormal(0, 0.7, shape),
        "long": 1 + random.pareto(2.2, shape),
        "two": np.where(random.random(shape) < 0.2, 3.0, 1.0),
        "gamma": 0.2 + random.gamma(1.5, 0.6, shape),
    }
    for name, size in sizes.items():
        yield _case("data", f"{name}-n{n}", size * _noise(random, shape), tasks)


def healthy(random, n, rounds):
    """Workers that differ by a per cent or two, in one task or several, and also where all drift together."""
    yield _case("healthy", f"noise-n{n}", _noise(random, (rounds, n), 0.015))
    yield _case("healthy", f"tasks-n{n}", _noise(random, (rounds, n, 4), 0.02), 4)
    yield _case("healthy", f"together-n{n}", random.lognormal(0, 0.5, (rounds, 1)) * _noise(random, (rounds, n), 0.015))
    yield _case("healthy", f"uneven-n{n}", (1 + 0.02 * np.arange(n) / n) * _noise(random, (rounds, n), 0.005))


def cases():
    """All of them, the same on every call."""
    found = []
    for number, (n, rounds) in enumerate(((4, 80), (8, 200), (24, 60))):
        random = np.random.default_rng(number)
        found += transient(random, n, rounds)
        found += episodes(random, n, 200)
        found += persistent(random, n, rounds)
        found += data(random, n, rounds)
        found += healthy(random, n, rounds)
    return found
