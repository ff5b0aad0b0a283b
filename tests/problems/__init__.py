"""Problems for tests of engines: they must be importable by worker processes."""

import ctypes
import os
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from unstraggle.engines import Abandoned, dock
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


class Told:
    """Rooms of messages, and who hears how much stands there."""

    def __init__(self, rooms, say, dtype):
        self.rooms, self.say, self.passes = {m: room.view(dtype) for m, room in rooms.items()}, say, {}

    def begin(self, message):
        self.passes[message] = 0
        self.rooms[message].fill(0)
        return self.rooms[message]


@dataclass(frozen=True, eq=False)
class Growing(Constant):
    """Says how much of a message is known, a quarter after the other but the last; in odd steps it takes that back once.

    Partition p gives p + 1 and the step. In another process it finds no memory of the master for its messages, as on another
    host."""

    def __setstate__(self, state):
        self.__dict__.update(state, found=dock.found)
        dock.found = lambda *_, **__: None

    def show(self, rooms, say, times):
        dock.found = self.__dict__.get("found", dock.found)
        self.__dict__["told"] = Told(rooms, say, self.dtype)
        return self.told

    def grad(self, params, part, where=slice(None), step=0):
        return super().grad(params, part, where, step) + step

    def accumulate(self, params, part, where, step, coef, total):
        total = np.zeros(self.dim, self.dtype) if total is None else total
        values, told = coef * self.grad(params, part, where, step), self.__dict__.get("told")
        mine = [m for m, room in told.rooms.items() if room is total] if told else []
        for message in mine:
            told.passes[message] += 1
            self._grow(total, values, message, step)
        return total if mine else np.add(total, values, out=total)

    def _grow(self, total, values, message, step):
        self.told.say(message, 0)
        ends = [self.dim * number // 4 for number in range(5)]
        if step % 2:
            total[: ends[2]] += 99.0
            self.told.say(message, ends[2])
            time.sleep(0.01)
            total[: ends[2]] -= 99.0
            self.told.say(message, 0)
        for begin, end in pairwise(ends):
            total[begin:end] += values[begin:end]
            if end < self.dim:
                self.told.say(message, end)
                time.sleep(0.01)


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


@dataclass(frozen=True, eq=False)
class Holds(Constant):
    """Tasks keep Python's interpreter lock, as those in C do that do not let it go: no other thread of the worker runs."""

    def grad(self, params, part, where=slice(None), step=0):
        ctypes.PyDLL(None).usleep(int(1e6 * self.seconds))
        return np.full(len(params[where]), part + 1, dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class Lazy(Constant):
    """Worker 0 reads its parameters at the beginning and at the end of a long task, and raises where they have changed."""

    here: int = -1

    def share(self, worker, parts):
        return replace(self, here=worker)

    def grad(self, params, part, where=slice(None), step=0):
        first = float(params[0])
        if self.here == 0:
            time.sleep(self.seconds)
        if not (params == first).all():
            raise ArithmeticError(f"{first} became {params[0]} in the middle of a task")
        return np.full(len(params[where]), (part + 1) * first)


@dataclass(frozen=True, eq=False)
class Slow(Constant):
    """Tasks take worker 0 long; it cannot be interrupted in them."""

    here: int = -1

    def share(self, worker, parts):
        return replace(self, here=worker)

    def grad(self, params, part, where=slice(None), step=0):
        if self.here == 0:
            time.sleep(self.seconds)
        return np.full(len(params[where]), part + 1, dtype=self.dtype)


@dataclass(frozen=True, eq=False)
class Partly(Constant):
    """Fails on some workers, whatever they compute, from a step on."""

    workers: tuple[int, ...] = ()
    since: int = 1
    here: int = -1

    def share(self, worker, parts):
        return replace(self, here=worker)

    def grad(self, params, part, where=slice(None), step=0):
        if self.here in self.workers and step >= self.since:
            raise ZeroDivisionError(f"worker {self.here} cannot divide")
        return super().grad(params, part, where, step)


@dataclass(frozen=True, eq=False)
class ReadyOnce(Constant):
    """A worker of which gets ready when it is started, and never again when it is started another time."""

    folder: str = ""
    here: int = -1

    def share(self, worker, parts):
        return replace(self, here=worker)

    def __setstate__(self, state):
        self.__dict__.update(state)
        mark = Path(self.folder) / str(self.here)
        while mark.exists():
            time.sleep(1.0)
        mark.touch()


@dataclass(frozen=True, eq=False)
class SlowToPickle(Constant):
    """Takes two seconds to be pickled once there is a file."""

    file: str = ""

    def __getstate__(self):
        if Path(self.file).exists():
            time.sleep(2.0)
        return self.__dict__


@dataclass(frozen=True, eq=False)
class Gives(Constant):
    """Partial gradients that are none."""

    what: str = "scalar"

    def grad(self, params, part, where=slice(None), step=0):
        return WRONG[self.what]


@dataclass(frozen=True, eq=False)
class Adds(Gives):
    """The same, from a problem that adds up by itself."""

    def accumulate(self, params, part, where, step, coef, total):
        return WRONG[self.what]


WRONG = {"scalar": 1.0, "long": np.ones(9), "table": np.ones((8, 1)), "complex": np.ones(8) * 1j, "list": [1.0] * 8}


@dataclass(frozen=True, eq=False)
class Endless(Constant):
    """Workers 0 and 1 take turns in a task that does not end by itself, but stops when its round is over."""

    worker: int = 0

    def share(self, worker, parts):
        return replace(self, worker=worker)

    def heed(self, stopped):
        object.__setattr__(self, "stopped", stopped)

    def grad(self, params, part, where=slice(None), step=0):
        while step % 2 == self.worker:
            if self.stopped():
                raise Abandoned
            time.sleep(0.001)
        return super().grad(params, part, where, step)
