"""Block sizes for block-coordinate gradient coding: how many coordinates should tolerate how many stragglers ([B])."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import blocks, cyclic_repetition, partial_stragglers, uncoded
from ..doors import door
from ..errors import Invalid
from ..randomness import Seed
from ..scheme.code import Code
from . import rivals
from .base import Plan
from .optimum import optimum
from .runtime import Runtime, Sampled, Vector, expected, require_one_speed, runtime

METHODS = ("optimal", "subgradient", "time", "frequency", "single", "tandon", "tandon_tuned", "ferdinand")


@door
def block_sizes(
    latency: Any,
    n: int,
    dim: int,
    method: str = "optimal",
    *,
    samples: int | None = None,
    cycles: float = 1.0,
    costs: Sequence[float] | None = None,
    rng: Seed = 0,
    gap: float = 1e-3,
    exact: bool | None = None,
    **options: Any,
) -> Plan:
    """Split `dim` coordinates into blocks that tolerate 0, 1, ..., n - 1 stragglers such that a round takes least time.

    method: "optimal" with a certified lower bound, the paper's "subgradient" method and its closed forms "time" (x^(t)) and
    "frequency" (x^(f)), or a rival: "single" block, "tandon" (slowdown=6), "tandon_tuned", "ferdinand" (layers=dim).
    cost: expected time of a round, the latency being that of a unit of work; with `samples` (M) and `cycles` (b) it is
    (M / n) b E[max ...], the paper's units, the latency being that of a CPU cycle. costs: relative work of each coordinate
    or group of coordinates, in the order in which it is computed, where they differ. gap: relative gap at which the optimum
    is good enough. exact: compute expectations instead of drawing; the default up to 500 workers, a minute or two for 1000.

    params: "sizes" (n,) coordinates that tolerate s = 0, ..., n - 1; "jensen", the paper's lower bound; for Tandon's code "s"
    and "slowdown". Do not use it for networks whose backward pass cannot be cut into such blocks: measure their costs first.
    The forms of [B] let every round start with free workers and know no fixed cost of a task: `simulate(plan, ..., carry=True)`
    and `auto` count both.

    >>> from unstraggle.latency import ShiftedExponential
    >>> plan = block_sizes(ShiftedExponential(rate=1e-3, shift=50), n=20, dim=20_000, samples=50)
    >>> round(plan.cost * 20 / 50 / 1e7, 3), plan.bound <= plan.cost <= 1.001 * plan.bound
    (2.82, True)
    """
    _require(latency, n, dim, method, samples, cycles, costs)
    total = float(dim if costs is None else np.sum(costs))
    unit = 1 / total if samples is None else samples / n * cycles
    model = runtime(latency, n, rng, exact=exact)
    if method == "subgradient" and isinstance(model, Sampled) and np.isinf(model.times).any():
        raise Invalid('The subgradient method needs times that end, but some are infinite. Use method="optimal".')
    jensen = unit * total * rivals.equaliser(1 / latency.order_statistics(n))[1]
    if method.startswith("tandon"):
        return _tandon(latency, model, unit, total, jensen, tuned=method == "tandon_tuned", **options)
    sizes, bound = _sizes(method, latency, model, total, rng, gap, options)
    return _plan(method, model, unit, dim, total, costs, sizes, bound * unit if bound is not None else None, jensen)


def _sizes(
    method: str, latency: Any, model: Runtime, total: float, rng: Seed, gap: float, options: dict[str, Any]
) -> tuple[Vector, float | None]:
    """(n,) work at each redundancy, and a lower bound where the method gives one."""
    n = model.n
    if method == "optimal":
        return optimum(latency, model, total, gap, rng, **options)
    if method == "subgradient":
        return rivals.subgradient(latency, n, total, rng, **options), None
    if method == "time":
        return total * rivals.equaliser(1 / latency.order_statistics(n))[0], None
    if method == "frequency":
        with np.errstate(divide="ignore"):
            return total * rivals.equaliser(1 / latency.harmonic_order_statistics(n))[0], None
    if method == "ferdinand":
        return rivals.ferdinand(latency.order_statistics(n), total, **options), None
    return rivals.single(latency.order_statistics(n), total), None


def _plan(
    method: str,
    model: Runtime,
    unit: float,
    dim: int,
    total: float,
    costs: Sequence[float] | None,
    sizes: Vector,
    bound: float | None,
    jensen: float,
) -> Plan:
    """Round the sizes to whole coordinates and say what they cost."""
    counts = rounded(sizes, dim) if costs is None else _groups(sizes, np.asarray(costs, dtype=float))
    per_block = counts.astype(float) if costs is None else _sums(counts, np.asarray(costs, dtype=float))
    work = np.cumsum(np.arange(1, model.n + 1) * per_block)
    cost, half = unit * expected(model, work), 1.96 * unit * model.error(work)
    params = {"method": method, "sizes": counts.tolist(), "work": (per_block / total).tolist(), "jensen": jensen}
    build = partial(block_code, model.n, counts, None if costs is None else per_block)
    return Plan(f"block_sizes({method})", build, cost, (cost - half, cost + half), bound=bound, params=params)


def block_code(n: int, sizes: NDArray[np.int64], work: Vector | None = None) -> Code:
    """The code that tolerates s stragglers on sizes[s] coordinates, blocks with less redundancy first."""
    used = np.flatnonzero(sizes)
    codes = [uncoded(n) if s == 0 else cyclic_repetition(n, int(s)) for s in used]
    return blocks(sizes[used].tolist(), *codes, work=None if work is None else work[used].tolist())


def rounded(sizes: Vector, dim: int) -> NDArray[np.int64]:
    """Whole coordinates that sum to `dim`: rounded down, the rest to the largest remainders.

    >>> rounded(np.array([1.5, 2.25, 3.25]), 7).tolist()
    [2, 2, 3]
    """
    shares = sizes * (dim / sizes.sum())
    counts = np.floor(shares + 1e-9).astype(np.int64)
    counts[np.argsort(counts - shares, kind="stable")[: dim - counts.sum()]] += 1
    return np.asarray(counts)


def levels(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """(dim,) stragglers that each coordinate tolerates, from the block sizes ([B] eq. 7).

    >>> levels(np.array([0, 2, 3, 1])).tolist()
    [1, 1, 2, 2, 2, 3]
    """
    return np.asarray(np.repeat(np.arange(len(sizes)), sizes))


def _groups(sizes: Vector, costs: Vector) -> NDArray[np.int64]:
    """How many groups of coordinates, in order, belong to each block: the middle of a group decides."""
    middle = np.cumsum(costs) - costs / 2
    level = np.minimum(np.searchsorted(np.cumsum(sizes), middle), len(sizes) - 1)
    return np.asarray(np.bincount(level, minlength=len(sizes)), dtype=np.int64)


def _sums(counts: NDArray[np.int64], costs: Vector) -> Vector:
    return np.asarray(np.bincount(levels(counts), weights=costs, minlength=len(counts)), dtype=np.float64)


def _tandon(
    latency: Any, model: Runtime, unit: float, total: float, jensen: float, tuned: bool, slowdown: float = rivals.SLOWDOWN
) -> Plan:
    """Partial-straggler coding: one slowdown for all, the best number of stragglers."""
    s, slowdown, value = rivals.tandon(model, None if tuned else slowdown)
    work = rivals.tandon_work(model.n, s, slowdown)
    cost, half = unit * total * value, 1.96 * unit * total * model.error(work)
    params = {"method": "tandon_tuned" if tuned else "tandon", "s": s, "slowdown": slowdown, "jensen": jensen}
    build = partial(partial_stragglers, model.n, s, slowdown)
    return Plan(f"block_sizes({params['method']})", build, cost, (cost - half, cost + half), params=params)


def _require(latency: Any, n: int, dim: int, method: str, samples: Any, cycles: float, costs: Any) -> None:
    require_one_speed(latency)
    if method not in METHODS:
        raise Invalid(f"block_sizes needs a method of {', '.join(METHODS)}, but got {method!r}.")
    if not isinstance(n, int | np.integer) or n < 1 or not isinstance(dim, int | np.integer) or dim < 1:
        raise Invalid(f"block_sizes needs whole numbers n >= 1 and dim >= 1, but got n={n!r}, dim={dim!r}.")
    if (samples is not None and not samples > 0) or not (np.isfinite(cycles) and cycles > 0):
        raise Invalid(f"block_sizes needs samples > 0 and cycles > 0, but got samples={samples}, cycles={cycles}.")
    if costs is not None and (len(costs) != dim or not (np.asarray(costs, dtype=float) > 0).all()):
        raise Invalid(f"block_sizes needs a positive cost for each of dim={dim} groups, but got {len(costs)} costs.")
    if not np.isfinite(latency.order_statistics(n)[0]):
        raise Invalid(
            f"Even the fastest of {n} workers takes infinitely long on average under {latency!r}: no block size helps."
        )
