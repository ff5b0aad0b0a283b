"""When to stop waiting: the deadline, the code and the bits that reach a target error soonest ([C] with a latency model)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from ..checks import require_workers
from ..codes.approximate import row_sums
from ..codes.optimally_structured import optimally_structured, overlap
from ..codes.quantized import with_bits
from ..doors import door
from ..errors import Invalid
from ..latency import FixedCost, Heterogeneous
from ..latency.base import per_task
from ..scheme.arrivals import Survival
from ..scheme.code import Code
from ..scheme.decoders import Fixed
from ..scheme.names import no_expression
from ..scheme.stop import Deadline
from .base import Plan
from .bits import bits as allocate
from .bits import variance

Floats = NDArray[np.float64]

GRID, PROMISING, REFINED = 32, 3, 8
"""Deadlines that are tried over the whole range, how many of them look promising, and how many are tried around each."""

NEVER = 1 - 1e-6
"""A worker that is late more often than this is not used: its rare messages would count a million times."""

STARTS, STEPS = (1.0, 1.5, 2.0, 3.0), 5
"""Work to begin with, and rounds of fitting straggle probabilities to the work that a code gives, and a code to these."""

SETTLING, DAMPING = 80, 0.15
"""Small steps of the same, without codes, towards the work at which it settles where workers differ."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A deadline with what its code follows from: straggle probabilities p (n,) of the work that it gives, those for which its
    structure is made, the quantisers' noise and bits, and the bound on the relative error."""

    tau: float
    p: Floats
    assumed: Floats
    noise: Floats
    bits: NDArray[np.int64] | None
    error: float

    @property
    def cost(self) -> float:
        """tau (1 + error): the time to any target is in proportion to this ([C] Theorem 2 for strongly convex losses)."""
        return self.tau * (1 + self.error)


@door
def deadline(
    latency: Any,
    n: int,
    k: int | None = None,
    *,
    dim: int | None = None,
    budget: int | None = None,
    bandwidth: float | None = None,
    omega: str = "qsgd",
) -> Plan:
    """The deadline tau for which tau (1 + 1 / Delta) is least, with the unbiased joint code for p_i = P(worker i is late).

    1 / Delta bounds E|estimate - gradient|^2 / (C k)^2, so that for strongly convex losses with steps of 1 / (convexity t) the
    bound on the steps to a target is in proportion to 1 + 1 / Delta ([C] Theorem 2) and the time to tau times that. This is
    what `deadline` assumes; for smooth losses the part of Theorem 3 that depends on the code is the same factor, and
    `plan.convergence` gives either. Mini-batches add a variance that no deadline changes (equation 35): the more of it, the
    sooner is best, and `deadline` leaves it out.

    The p_i are those of the work that the code really gives each worker, which keeps it unbiased. budget: bits per coordinate
    of all workers together, allocated with the code (needs dim); bandwidth: bytes/s per worker, whose transfer then counts
    (needs dim). Returns the code together with `Deadline(tau)`: use neither without the other.

    Workers are taken to be free when a round begins: a closed form does not know what those that were late have left of their
    tasks. Where that counts, p is too small, and the code biased: simulate(plan, latency, carry=True) shows how much.

    cost: seconds, up to a factor that is the same for all deadlines. params: "tau", "p", "error" (the bound), "bits".

    >>> from unstraggle.latency import ShiftedExponential
    >>> plan = deadline(ShiftedExponential(rate=1, shift=1), n=10)
    >>> 1 < plan.params["tau"] < 6, plan.stop == Deadline(plan.params["tau"])
    (True, True)
    """
    n = require_workers("deadline", n)
    k = n if k is None else require_workers("deadline", k)
    _require(latency, n, dim, budget, bandwidth)

    def trials(taus: Floats) -> list[Trial]:
        found = (_trial(latency, n, k, float(tau), dim, budget, bandwidth, omega) for tau in taus)
        return [trial for trial in found if trial is not None]

    coarse = trials(_range(latency, n, k))
    if not coarse:
        raise Invalid(f"deadline found no time by which any of {n} workers answers under {latency!r}, its messages included.")
    promising = sorted(coarse, key=lambda trial: trial.cost)[:PROMISING]
    fine = [trial for near in promising for trial in trials(near.tau * np.linspace(0.88, 1.14, REFINED))]
    best = min([*promising, *fine], key=lambda trial: trial.cost)
    params = {
        "tau": best.tau,
        "p": best.p.tolist(),
        "error": best.error,
        "bits": None if best.bits is None else best.bits.tolist(),
    }
    code = _unbiased(optimally_structured(best.assumed.tolist(), k, omega=best.noise.tolist()), best)
    return Plan(f"deadline({best.tau:.4g})", lambda: code, best.cost, (best.cost, best.cost), Deadline(best.tau), params=params)


def _range(latency: Any, n: int, k: int) -> Floats:
    """From deadlines that hardly anyone meets to ones that nearly everyone who answers does, also with some more work."""
    times = np.geomspace(1e-9, 1e9, 2000)
    late = np.array([np.mean(_survival(latency, np.full(n, max(1.0, n / k)), t, k / n)) for t in times])
    if late[-1] >= 1:
        return np.empty(0)
    low, high = times[late < max(0.995, late[-1] + 1e-12)][0], times[late <= late[-1] + 0.002][0]
    return np.geomspace(low, 4 * high, GRID)


def _trial(
    latency: Any, n: int, k: int, tau: float, dim: int | None, budget: int | None, bandwidth: float | None, omega: str
) -> Trial | None:
    """The best code found for a deadline; None where nobody would meet it.

    More weight is more work, which makes a worker later and worth less weight: going round this circle need not settle, so that
    every code on the way is scored as it is, by what it is made from.
    """
    late = partial(_late, latency, tau=tau, dim=dim, bandwidth=bandwidth, tasks=k / n)
    found = [each for work in _starts(late, n) for each in _circle(late, k, tau, work, dim, budget, omega)]
    return min(found, key=lambda trial: trial.error, default=None)


def _starts(late: Callable[..., Floats], n: int) -> Iterator[Floats]:
    """Equal work for all; where workers differ also for all but the latest ones, who are then left out, and what settles."""
    p = late(np.full(n, min(STARTS)), sent=None)
    if np.ptp(p) >= 1e-9:
        yield _settled(late, n)
    left_out = [0] if np.ptp(p) < 1e-9 else np.unique(np.linspace(0, n // 2, 6).astype(int)).tolist()
    for count in left_out:
        used = np.ones(n)
        used[np.argsort(-p, kind="stable")[:count]] = 0.0
        yield from (start * used for start in STARTS)


def _settled(late: Callable[..., Floats], n: int) -> Floats:
    """(n,) work in proportion to the weight (1 - p) / p that a worker is worth, p being that of this very work."""
    work = np.ones(n)
    for _ in range(SETTLING):
        p = np.clip(late(work, sent=None), 1e-9, NEVER)
        worth = (1 - p) / p
        work = work ** (1 - DAMPING) * (n * worth / worth.sum()) ** DAMPING
        work *= n / work.sum()
    return work


def _circle(
    late: Callable[..., Floats], k: int, tau: float, work: Floats, dim: int | None, budget: int | None, omega: str
) -> Iterator[Trial]:
    """Codes for the work of the code before."""
    n, sent = len(work), None
    for _ in range(STEPS):
        p = late(work, sent=sent)
        if (p == 1).all():
            return
        sent = None if budget is None else allocate(p, budget=budget, dim=dim or 1, method="fast", omega=omega).bits
        noise = np.zeros(n) if sent is None else variance(omega, dim or 1, sent)
        weights = row_sums(p, noise, 1.0, k)
        before, work = work, _work(weights, k)
        true = late(work, sent=sent)
        if (true[work > 0] < 1).all():
            yield Trial(tau, true, p, noise, sent, _error(true, noise, weights, k))
        if np.array_equal(work, before):
            return


def _error(p: Floats, noise: Floats, weights: Floats, k: int) -> float:
    """The bound of [C] Lemma 1 for an unbiased code with these weights W_i, relative to (C k)^2."""
    prices = np.divide(p + noise, 1 - p, out=np.zeros(len(p)), where=p < 1)
    return float((prices * weights**2).sum()) / k**2


def _late(
    latency: Any, work: Floats, *, tau: float, sent: Any, dim: int | None, bandwidth: float | None, tasks: float
) -> Floats:
    """(n,) probability that a worker's message is not there at tau; a worker without work is never heard."""
    transfer = 0.0 if bandwidth is None or dim is None else dim * (32 if sent is None else sent) / 8 / bandwidth
    left = np.broadcast_to(np.asarray(tau - transfer, dtype=float), work.shape)
    late = _survival(latency, np.maximum(work, 1e-12), np.maximum(left, 0.0), tasks)
    return np.where((work > 0) & (left > 0) & (late < NEVER), late, 1.0)


def late_shares(latency: Any, n: int, tau: float) -> Floats:
    """(n,) how often a worker with one task is later than tau.

    >>> from unstraggle.latency import Exponential
    >>> late_shares(Exponential(1), 2, 1.0).round(3)
    array([0.368, 0.368])
    """
    return _survival(latency, np.ones(n), tau)


def _survival(latency: Any, work: Floats, tau: Any, tasks: float = 1.0) -> Floats:
    """P(late) of workers with so much work, in so many tasks a unit, each of which may have a fixed cost."""
    taus = np.broadcast_to(np.asarray(tau, dtype=float), work.shape)
    if isinstance(latency, FixedCost):
        return _survival(latency.base, work, np.maximum(taus - np.asarray(latency.seconds) * work * tasks, 0.0), tasks)
    if isinstance(latency, Heterogeneous):
        return np.array([float(model.survival(w, t)) for model, w, t in zip(latency.workers, work, taus, strict=True)])
    return np.broadcast_to(np.asarray(latency.survival(work, taus), dtype=float), work.shape)


def _work(weights: Floats, k: int) -> Floats:
    """(n,) units of work that the code with these weights W_i gives each worker: n / k per partition."""
    work, used = np.zeros(len(weights)), weights > 0
    work[used] = np.diff(overlap(weights[used], k).indptr) * (len(weights) / k)
    return work


def _unbiased(code: Code, trial: Trial) -> Code:
    """The same structure with the coefficients that are unbiased for the true probabilities, with its bits and quantiser."""
    table = code.messages
    scale = (1 - trial.assumed[table.worker]) / (1 - trial.p[table.worker])
    coef = csr_array(diags_array(scale) @ table.coef)
    name = no_expression(f"optimally_structured(n={code.n}, k={code.k}), unbiased at a deadline of {trial.tau:.4g}")
    fitted = replace(code, name=name, messages=table.changed(coef=coef), decoder=Fixed(coef))
    return fitted if trial.bits is None else with_bits(fitted, trial.bits[table.worker])


def _require(latency: Any, n: int, dim: Any, budget: Any, bandwidth: Any) -> None:
    model = latency.base if isinstance(latency, FixedCost) else latency
    if not isinstance(model, Survival) or per_task(model):
        raise Invalid(
            f"deadline needs a latency model that knows P(late), with one speed per worker and round, but got {latency!r}."
        )
    if isinstance(model, Heterogeneous) and model.n != n:
        raise Invalid(f"deadline got a latency model of {model.n} workers for n={n}.")
    if (budget is not None or bandwidth is not None) and (dim is None or dim < 1):
        raise Invalid(
            f"deadline needs dim >= 1, the coordinates of a gradient, for a budget or a bandwidth, but got dim={dim!r}."
        )
    if bandwidth is not None and not bandwidth > 0:
        raise Invalid(f"deadline needs a bandwidth > 0 bytes/s, but got bandwidth={bandwidth!r}.")
