"""How many bits each worker's message gets: the allocation with the least error bound of the joint design ([C] III-B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..codes.approximate import require_gamma, require_probabilities
from ..doors import door
from ..errors import Invalid
from ..scheme.code import FULL_BITS
from .bits_solvers import continuous, dynamic_program, equal_split, greedy, hull_and_core
from .bits_subsets import nested_subsets

LEAST = 2
"""Bits per coordinate below which the quantiser has no level but zero."""

SENT = 16
"""The most bits per coordinate that a quantised message has."""

MOST_LEVELS = 498
"""2^498 levels, about 1e150: their square is still finite."""

NO_LEVELS = 1e200
"""The variance of a quantiser without levels: its messages are worth nothing."""

Method = Literal["dp", "fast", "subsets", "greedy", "equal", "relaxation"]
OURS = ("dp", "fast", "subsets")
Omega = str | Callable[[NDArray[np.float64]], ArrayLike] | ArrayLike
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Bits:
    """An allocation: bits (n,) a coordinate of each worker's message, its utility (n,), and their sum, the objective.

    The joint design with these bits has the error bound C^2 k^2 / objective.
    """

    bits: NDArray[np.int64]
    utility: Floats
    objective: float
    method: str
    gamma: float

    @property
    def params(self) -> dict[str, Any]:
        """What was chosen, as in a `Plan`: "bits" and "utility", a number for each worker."""
        return {"bits": self.bits.tolist(), "utility": self.utility.tolist()}

    @property
    def budget(self) -> int:
        """B, all bits per coordinate of a round in which everyone answers."""
        return int(self.bits.sum())

    @property
    def residual(self) -> int:
        """R = B - 2 n, what was to be allocated beyond the 2 bits that everyone needs who sends."""
        return self.budget - LEAST * self.senders

    @property
    def senders(self) -> int:
        """Workers that send anything."""
        return int((self.bits > 0).sum())

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            **self.params,
            "objective": self.objective,
            "method": self.method,
            "gamma": self.gamma,
            "budget": self.budget,
            "residual": self.residual,
            "senders": self.senders,
        }

    def __str__(self) -> str:
        counts = ", ".join(f"{count} x {bits}" for bits, count in zip(*np.unique(self.bits, return_counts=True), strict=True))
        return f"{self.budget} bits ({self.residual} beyond 2 each), {self.method}: {counts}; objective {self.objective:.6g}"


@door
def bits(
    p: ArrayLike,
    *,
    budget: int,
    dim: int,
    method: Method = "dp",
    gamma: float | Literal["balanced"] = 1.0,
    omega: Omega = "paper",
    most: int | None = None,
    levels_offset: int = 0,
    silent: bool = False,
) -> Bits:
    """Spend exactly `budget` bits per coordinate on n workers such that sum (1 - p_i) / (p_i + gamma omega(b_i)) is largest.

    p: (n,) straggle probabilities. dim: coordinates of the gradient. budget: all bits together, at least 2 n and at most
    `most` n, by default 16, the most that messages are quantised to (32 for the rivals, as in the paper). omega: relative
    variance of the quantiser, "paper" dim / (4 s^2) with s = 2^(b-1) - 1, "qsgd" min(dim / (4 s^2), sqrt(dim) / s), a function
    of an array of bits, or measured values for 2, 3, ... bits, (L,) or (n, L).
    gamma="balanced": mean p / omega(budget / n). levels_offset=-1 allocates as the authors' program does, with half the levels
    that b bits have; utility and objective are those of the bits in use, so that it can only lose. silent=True lets workers
    have 0 bits and send nothing, where their 2 are worth more to others (the paper gives everyone 2); `budget` may then be as
    little as 2, and one bit of it may be left.

    method: "dp" is exact, O(n budget most). "fast" takes the concave hull of the utilities and solves the workers near its
    critical slope exactly; with up to 24 workers it is exact. "subsets" is the paper's Algorithm 1: nearly as good, but slower
    than both. "greedy", "equal" and "relaxation" are rivals from the paper: do not use them, the utility is convex for few bits
    and they get stuck there.

    >>> answer = bits([0.1, 0.5, 0.9], budget=18, dim=1000)
    >>> answer.bits, answer.residual
    (array([10,  6,  2]), 12)
    >>> bits([0.1, 0.5, 0.9], budget=8, dim=1000, silent=True).bits
    array([8, 0, 0])
    """
    late = _probabilities(p)
    n = len(late)
    dim = require_count("bits", "dim", dim, 1, 10**15, "Give the number of coordinates of the gradient.")
    usual = SENT if method in OURS else FULL_BITS
    most = require_count(
        "bits", "most", usual if most is None else most, LEAST, 1024, "Messages have 2 to 1024 bits per coordinate."
    )
    table = _variances(omega, dim, n, most)
    most = table.shape[1] + LEAST - 1
    least, why = (0, f"Every worker has 0 or 2 to {most} bits.") if silent else (LEAST, f"Every worker needs 2 to {most} bits.")
    budget = require_count("bits", "budget", budget, LEAST if silent else LEAST * n, most * n, why)
    factor = _balanced(late, table, omega, dim, budget / n) if gamma == "balanced" else require_gamma("bits", gamma)
    believed = _variances(_halved(omega, dim, levels_offset), dim, n, most) if levels_offset else table
    extra = _solve(method, late, _with_silence(believed) if silent else believed, factor, budget - least * n)
    chosen = utilities(late, _with_silence(table) if silent else table, factor)[np.arange(n), extra]
    found = np.where(extra + least < LEAST, 0, extra + least)
    return Bits(found, np.where(found > 0, chosen, 0.0), float(chosen[found > 0].sum()), method, factor)


def _with_silence(table: Floats) -> Floats:
    """(n, 2 + L) with 0 bits and 1 bit in front, with which nothing is sent."""
    return np.concatenate([np.full((len(table), LEAST), NO_LEVELS), table], axis=1)


def variance(model: str, dim: int, bits: ArrayLike) -> Floats:
    """Relative variance of the stochastic quantiser at so many bits: a bound, by the paper's or the QSGD formula.

    >>> variance("paper", 1000, [2, 4]).round(3), variance("qsgd", 1000, [2, 4]).round(3)
    (array([250.   ,   5.102]), array([31.623,  4.518]))
    """
    levels = np.exp2(np.minimum(np.asarray(bits, dtype=float) - 1, MOST_LEVELS)) - 1
    paper = dim / (4 * levels**2)
    if model == "paper":
        return np.asarray(paper)
    if model == "qsgd":
        return np.asarray(np.minimum(paper, np.sqrt(dim) / levels))
    raise Invalid(f'bits needs omega="paper", "qsgd", a function or measured values, but got omega={model!r}.')


def _halved(omega: Omega, dim: int, levels_offset: int) -> Omega:
    """The variance with half the levels, as in the authors' utility: nothing at 2 bits."""
    if levels_offset != -1 or not isinstance(omega, str):
        raise Invalid(
            f"bits needs levels_offset=0, or -1 with a named omega, but got levels_offset={levels_offset!r}, omega={omega!r}. "
            "Use 0: it is the number of levels that quantisers have."
        )
    return lambda steps: np.append(NO_LEVELS, variance(omega, dim, steps[1:] - 1))


def utilities(p: Floats, omega: Floats, gamma: float) -> Floats:
    """(n, L) (1 - p_i) / (p_i + gamma omega), what worker i adds to the objective with 2, 3, ... bits ([C] equation 33)."""
    price = p[:, None] + gamma * omega
    if (price == 0).any():
        worker = int(np.flatnonzero((price == 0).any(axis=1))[0])
        raise Invalid(
            f"bits needs p + gamma omega > 0, but worker {worker} has p=0 and no quantiser variance: it alone is exact. "
            "Give it p > 0, or the bits at which its messages are exact, and allocate the rest."
        )
    return np.asarray((1 - p[:, None]) / price)


def _solve(method: str, p: Floats, omega: Floats, gamma: float, residual: int) -> NDArray[np.int64]:
    """(n,) bits beyond 2."""
    u = utilities(p, omega, gamma)
    if method == "dp":
        return _ordered(dynamic_program(u, residual), p, omega)
    if method == "fast":
        return _ordered(hull_and_core(u, residual), p, omega)
    if method == "subsets":
        return nested_subsets(p, omega, gamma, residual)
    if method == "greedy":
        return greedy(u, residual)
    if method == "equal":
        return equal_split(p, residual)
    if method == "relaxation":
        return continuous(p, omega, gamma, residual)
    raise Invalid(f'bits needs method="dp", "fast", "subsets", "greedy", "equal" or "relaxation", but got {method!r}.')


def _ordered(extra: NDArray[np.int64], p: Floats, omega: Floats) -> NDArray[np.int64]:
    """More bits for smaller p, then for the lower index: no loss where quantisers are alike and a bit more is never worse."""
    if np.ptp(omega, axis=0).any() or (np.diff(omega[0]) > 0).any():
        return extra
    sorted_extra = np.empty_like(extra)
    sorted_extra[np.argsort(p, kind="stable")] = np.sort(extra)[::-1]
    return sorted_extra


def _probabilities(p: ArrayLike) -> Floats:
    if np.ndim(p) != 1 or not np.size(p):
        raise Invalid(f"bits needs one straggle probability for each worker, such as [0.1, 0.5], but got p={p!r}.")
    return require_probabilities("bits", np.size(p), p)


def _variances(omega: Omega, dim: int, n: int, most: int) -> Floats:
    """(n, L) relative variance of each worker's quantiser with 2, 3, ..., at most `most` bits."""
    steps = np.arange(LEAST, most + 1.0)
    values = _evaluate(omega, dim, steps)[..., : len(steps)]
    if values.ndim not in (1, 2) or not values.shape[-1] or (values.ndim == 2 and len(values) != n):
        raise Invalid(f"bits needs omega for 2, 3, ... bits, (L,) or ({n}, L), but got shape {values.shape}.")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise Invalid("bits needs finite variances omega >= 0, but got NaN, infinity or a negative number.")
    return np.array(np.broadcast_to(values, (n, values.shape[-1])))


def _evaluate(omega: Omega, dim: int, steps: Floats) -> Floats:
    if isinstance(omega, str):
        return variance(omega, dim, steps)
    return np.asarray(omega(steps) if callable(omega) else omega, dtype=float)


def _balanced(p: Floats, table: Floats, omega: Omega, dim: int, mean_bits: float) -> float:
    """gamma for which the mean of gamma omega, at equal bits, is the mean of p ([C] section V-B)."""
    if isinstance(omega, str):
        at = float(variance(omega, dim, mean_bits))
    else:
        place = np.arange(LEAST, LEAST + table.shape[1])
        at = float(np.mean([np.interp(mean_bits, place, row) for row in table]))
    if at <= 0:
        raise Invalid(f'bits cannot balance gamma: omega is 0 at {mean_bits:g} bits. Give a number instead of "balanced".')
    return float(p.mean() / at)
