"""check_problem: does a problem of one's own keep the promises that workers rely on?"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import door
from ..errors import UnstraggleError
from ..problems.base import Accumulates, ComputesAll, Problem, Restricts, Shares
from ..randomness import Seed, generator

PARTS = 4
"""Partitions that are looked at, from first to last."""
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}
"""Relative difference that counts as rounding."""


class BrokenProblem(UnstraggleError, AssertionError):
    """A problem does not keep a promise."""


@dataclass(frozen=True)
class ProblemReport:
    """What was tried: partitions, and the roles of `unstraggle.problems` that the problem plays."""

    parts: tuple[int, ...]
    roles: tuple[str, ...]


@door
def check_problem(
    problem: Any, params: NDArray[Any] | None = None, *, steps: tuple[int, ...] = (0, 7), rng: Seed = 0
) -> ProblemReport:
    """Try what a worker would: partial gradients by partition, step and block, pickled, cut and added up.

    params: (dim,) where gradients are computed; random numbers by default. Raises `BrokenProblem` with the promise that is
    broken. It does not see whether the gradient is that of your loss: compare with finite differences for that.

    >>> from unstraggle.problems import LeastSquares
    >>> check_problem(LeastSquares.split(np.eye(4), np.arange(4.0), parts=4))
    ProblemReport(parts=(0, 1, 2, 3), roles=('Restricts',))
    """
    _check_sizes(problem)
    values = generator(rng).normal(size=problem.dim) if params is None else np.asarray(params)
    trial = Trial(problem, np.ascontiguousarray(values, dtype=problem.dtype))
    parts = tuple(np.unique(np.linspace(0, problem.k - 1, PARTS).astype(int)).tolist())
    for step in steps:
        for part in parts:
            trial.gradient(part, step)
            trial.blocks(part, step)
    trial.pickled(parts[-1], steps[-1])
    return ProblemReport(parts, tuple(trial.roles(parts, steps[-1])))


def _check_sizes(problem: Any) -> None:
    for name in ("k", "dim"):
        value = getattr(problem, name, None)
        _require(
            isinstance(value, int | np.integer) and bool(value >= 1), f"{name} is a whole number >= 1, but it is {value!r}."
        )
    kind = getattr(problem, "dtype", None)
    known = kind is not None and np.dtype(kind) in TOLERANCE
    _require(known, f"dtype is np.dtype(np.float32) or np.dtype(np.float64), but it is {kind!r}.")
    _require(callable(getattr(problem, "grad", None)), "it has no method grad(params, part, where, step).")


class Trial:
    """A problem and the parameters at which it is asked."""

    def __init__(self, problem: Problem, params: NDArray[Any]) -> None:
        self.problem, self.params = problem, params
        self.allowed = TOLERANCE[np.dtype(problem.dtype)]

    def ask(self, problem: Any, part: int, step: int, where: slice | None = None) -> NDArray[Any]:
        """One partial gradient, as a worker asks for it."""
        before, block = self.params.copy(), slice(0, self.problem.dim) if where is None else where
        call = f"grad(params, {part}, {block}, step={step})"
        try:
            found = np.asarray(problem.grad(self.params, part, block, step))
        except Exception as error:
            raise BrokenProblem(f"{type(problem).__name__}: {call} raises {type(error).__name__}: {error}") from error
        size = block.stop - block.start
        _require(found.shape == (size,), f"{call} has shape {found.shape}, but must have ({size},): sum over the samples.")
        _require(found.dtype.kind in "fiub", f"{call} is of {found.dtype}, but must be of real numbers.")
        _require(bool(np.isfinite(found).all()), f"{call} has NaN or infinity.")
        _require(np.array_equal(before, self.params), f"{call} changes the parameters, which other tasks read.")
        return found

    def gradient(self, part: int, step: int) -> None:
        """The same arguments give the same numbers, in memory of their own."""
        first = self.ask(self.problem, part, step)
        kept = first.copy()
        again = self.ask(self.problem, part, step)
        same = "two calls with the same arguments differ. Draw random numbers by (seed, step, part), and keep no state."
        _require(self.close(kept, again), f"partition {part}, step {step}: {same}")
        self.ask(self.problem, (part + 1) % self.problem.k, step)
        _require(
            np.array_equal(first, kept), f"partition {part}: a later call overwrites the array that grad gave. Give a copy."
        )

    def blocks(self, part: int, step: int) -> None:
        """The coordinates `where` are those of the whole gradient."""
        whole, cut = self.ask(self.problem, part, step), self.problem.dim // 2
        for where in (slice(0, cut), slice(cut, self.problem.dim)):
            piece = self.ask(self.problem, part, step, where) if where.stop > where.start else whole[where]
            words = "not those coordinates of the whole gradient."
            _require(self.close(whole[where], piece), f"partition {part}: grad(..., {where}) gives {words}")

    def pickled(self, part: int, step: int) -> None:
        try:
            other = pickle.loads(pickle.dumps(self.problem))
        except Exception as error:
            raise BrokenProblem(f"{type(self.problem).__name__} cannot be sent to workers: {error}") from error
        same = self.close(self.ask(self.problem, part, step), self.ask(other, part, step))
        _require(same, "a pickled copy computes something else.")

    def roles(self, parts: tuple[int, ...], step: int) -> list[str]:
        """Try the optional roles that it plays, and give their names."""
        problem, part, found = self.problem, parts[-1], []
        whole = self.ask(problem, part, step)
        if isinstance(problem, Restricts):
            _require(
                self.close(whole, self.ask(problem.only({part}), part, step)), f"only({{{part}}}) computes something else."
            )
            found.append("Restricts")
        if isinstance(problem, Shares):
            _require(self.close(whole, self.ask(problem.share(0, {part}), part, step)), "share computes something else.")
            found.append("Shares")
        if isinstance(problem, Accumulates):
            everything = slice(0, problem.dim)
            total = problem.accumulate(self.params, part, everything, step, 2.0, None)
            total = problem.accumulate(self.params, part, everything, step, -0.5, total)
            _require(self.close(1.5 * whole, np.asarray(total)), "accumulate does not give total + coef times the gradient.")
            found.append("Accumulates")
        if isinstance(problem, ComputesAll):
            grads = np.asarray(problem.grads(self.params, step))
            _require(grads.shape == (problem.k, problem.dim), f"grads has shape {grads.shape}, but must have (k, dim).")
            _require(self.close(whole, grads[part]), f"row {part} of grads is not the gradient of partition {part}.")
            found.append("ComputesAll")
        return found

    def close(self, one: NDArray[Any], other: NDArray[Any]) -> bool:
        scale = float(np.abs(one).max(initial=0.0))
        return bool(np.abs(one - other).max(initial=0.0) <= self.allowed * scale + 1e-12)


def _require(promise: bool, broken: str) -> None:
    if not promise:
        raise BrokenProblem(f"The problem is broken: {broken}")
