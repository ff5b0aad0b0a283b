"""Problems for tests of engines: they must be importable by worker processes."""

import os
import time
from dataclasses import dataclass

import numpy as np

from unstraggle.problems import LeastSquares


def least_squares(code, dim=24, samples=60, seed=0):
    rng = np.random.default_rng(seed)
    shares = code.shares.tolist() if code.data is None else int(code.data.shape[1])
    return LeastSquares.split(rng.standard_normal((samples, dim)), rng.standard_normal(samples), shares)


@dataclass(frozen=True, eq=False)
class Constant:
    """Gradients of ones: partition p gives p + 1. Can be slow, faulty or deadly at a step."""

    k: int
    dim: int = 8
    seconds: float = 0.0
    fails_at: tuple[int, int] = (-1, -1)
    dies_at: tuple[int, int] = (-1, -1)
    type: str = "f8"

    @property
    def dtype(self):
        return np.dtype(self.type)

    @property
    def total(self):
        return self.k * (self.k + 1) / 2

    def grad(self, params, part, where=slice(None), step=0):
        if self.seconds:
            time.sleep(self.seconds)
        if (step, part) == self.fails_at:
            raise ZeroDivisionError("the loss of part 1 cannot be computed")
        if (step, part) == self.dies_at:
            os._exit(17)
        return np.full(len(params[where]), part + 1, dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class CannotStart:
    """Fails where a worker unpickles it."""

    k: int = 2
    dim: int = 4
    dtype: type = float

    def __reduce__(self):
        return _fail, ()


def _fail():
    raise RuntimeError("this problem cannot be unpickled")


@dataclass(frozen=True, eq=False)
class Asks:
    """What worker processes find around them, three numbers for each partition: threads, the variable ASKED, a random one."""

    k: int
    dtype: type = float

    @property
    def dim(self):
        return 3 * self.k

    def grad(self, params, part, where=slice(None), step=0):
        found = np.zeros((self.k, 3))
        found[part] = os.environ["OMP_NUM_THREADS"], os.environ.get("ASKED", 0), np.random.random()  # noqa: NPY002
        return found.ravel()[where]
