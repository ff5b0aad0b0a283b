"""The contract of a code that hands out tasks: whoever is slow, the gradient is exact, and simulated rounds are real ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..engines.virtual import Virtual
from ..latency import ShiftedExponential
from ..problems import LeastSquares
from ..runtime.master import Master
from ..scheme.code import Code
from ..scheme.decoders import TOLERANCE
from ..study.handed import replayed, simulated
from .shared import check_pickled, require

DIM = 24


def check_handed(code: Code, sets: int, rounds: int, rng: np.random.Generator) -> tuple[int, float]:
    """Rounds of workers with random speeds, some far slower: every gradient is right; and twins, with carry-over too."""
    for worker in range(code.n):
        check_pickled(code, worker)
    errors = list(_errors(code, sets, rng))
    _check_twins(code, min(rounds, 50), rng)
    return len(errors), max(errors)


def _errors(code: Code, rounds: int, rng: np.random.Generator) -> Iterator[float]:
    """Relative errors of gradients, by a master over a sampled clock."""
    samples = 2 * code.k
    problem = LeastSquares.for_code(code, rng.standard_normal((samples, DIM)), rng.standard_normal(samples))
    with Master(code, Virtual(problem, ShiftedExponential(rate=1.0, shift=0.05), rng, carry=True)) as master:
        for step in range(rounds):
            params = rng.standard_normal(DIM)
            estimate, expected = master.gradient(params, step), problem.gradient(params)
            error = float(np.linalg.norm(estimate.gradient - expected) / np.linalg.norm(expected))
            require(estimate.exact and error <= TOLERANCE, code, f"a gradient has a relative error of {error:.2g}.")
            yield error


def _check_twins(code: Code, rounds: int, rng: np.random.Generator) -> None:
    """Compiled rounds equal those that a real `Round` decides, event by event."""
    for carry in (False, True):
        seconds = (0.05 + rng.exponential(size=(rounds, code.n)))[:, code.tasks.worker] * code.tasks.work
        times, sums = simulated(code, seconds, carry)
        again, sent, residual = replayed(code, seconds, carry)
        require(_close(times, again), code, f"simulated and replayed times differ (carry={carry}).")
        require(np.array_equal(sums, sent), code, f"simulated and replayed numbers of sums differ (carry={carry}).")
        require(bool((residual <= TOLERANCE).all()), code, "a replayed round is not exact.")


def _close(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    return bool(np.allclose(first, second, rtol=1e-12, atol=0))
