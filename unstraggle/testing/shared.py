"""What the contracts of codes share."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..blocks import block_slices
from ..doors import door
from ..errors import Invalid, UnstraggleError
from ..latency.base import arrivals
from ..problems import LeastSquares
from ..randomness import Seed, generator
from ..runtime.worker import work
from ..scheme.code import Code
from ..scheme.program import Program


class BrokenCode(UnstraggleError, AssertionError):
    """A code does not do what its tables promise."""


def require(promise: bool, code: Code, broken: str) -> None:
    if not promise:
        raise BrokenCode(f"{code.name}: {broken}")


def check_programs(code: Code) -> None:
    """Programs survive pickling, and together they send every message once."""
    sent: list[int] = []
    for worker in range(code.n):
        program = check_pickled(code, worker)
        work(program, lambda part, block: 1.0, lambda message, payload: sent.append(message.index))
    require(sorted(sent) == list(range(len(code.messages))), code, "the programs do not send every message exactly once.")


def check_pickled(code: Code, worker: int) -> Program:
    """The program of a worker, which survives pickling."""
    program = code.program(worker)
    try:
        copy = pickle.loads(pickle.dumps(program))
    except Exception as error:
        raise BrokenCode(f"{code.name}: the program of worker {worker} cannot be pickled: {error}") from error
    require(copy == program, code, f"the program of worker {worker} changes when it is pickled.")
    return program


Payloads = dict[int, NDArray[np.float64]]


@door
def example_payloads(code: Code, rng: Seed = 0, dim: int = 24) -> tuple[Payloads, NDArray[np.float64]]:
    """What the workers would send for a random least-squares problem, and the true gradient (dim,)."""
    payloads, grads = example_grads(code, rng, dim)
    return payloads, grads.sum(axis=0)


def example_grads(code: Code, rng: Seed = 0, dim: int = 24) -> tuple[Payloads, NDArray[np.float64]]:
    """The same with the gradients (partitions, dim) of the raw data."""
    random = generator(rng)
    samples = 4 * (code.k if code.data is None else int(code.data.shape[1]))
    features, labels = random.standard_normal((samples, dim)), random.standard_normal(samples)
    params = random.standard_normal(dim)
    problem = LeastSquares.for_code(code, features, labels)
    slices = block_slices(dim, code.blocks)
    payloads: Payloads = {}
    for worker in range(code.n):
        work(
            code.program(worker),
            lambda part, block: problem.grad(params, part, slices[block]),
            lambda message, payload: payloads.__setitem__(message.index, payload),
        )
    whole = problem if code.data is None else LeastSquares.split(features, labels, int(code.data.shape[1]))
    return payloads, np.array([whole.grad(params, part) for part in range(whole.k)])


@dataclass(frozen=True, eq=False)
class Recorded:
    """A latency model that hands out given arrival times (R, M) from the start."""

    times: NDArray[np.float64]

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        if rounds > len(self.times) or self.times.shape[1] != len(code.messages):
            raise Invalid(
                f"Recorded holds {self.times.shape} rounds x messages, but {rounds} x {len(code.messages)} are asked for."
            )
        return self.times[:rounds]


@dataclass(frozen=True, eq=False)
class RecordedTasks:
    """A latency model that hands out given seconds of tasks (R, T), from a round on."""

    seconds: NDArray[np.float64]

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        if rounds > len(self.seconds) or self.seconds.shape[1] != len(code.tasks):
            held = self.seconds.shape
            raise Invalid(f"RecordedTasks holds {held} rounds x tasks, but {rounds} x {len(code.tasks)} are asked for.")
        return self.seconds[:rounds]

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        return arrivals(code, self.durations(code, rounds, rng))

    def from_round(self, first: int) -> RecordedTasks:
        """Without the rounds before."""
        return RecordedTasks(self.seconds[first:])
