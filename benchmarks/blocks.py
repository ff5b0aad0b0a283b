"""Block sizes: the certified optimum against the paper's subgradient method, and its time against the number of workers."""

import time
from typing import Any

import numpy as np

from unstraggle.latency import ShiftedExponential
from unstraggle.plan import block_sizes
from unstraggle.plan.rivals import subgradient
from unstraggle.plan.runtime import expected, runtime

from .common import best_of, save

LATENCY = ShiftedExponential(rate=1e-3, shift=50)
DIM, GAP = 20_000, 1e-3


def against_the_paper(n: int = 50, iterations: int = 500) -> dict[str, Any]:
    """Seconds of both methods, and what each reaches; the paper's iterates are evaluated exactly, outside the clock."""
    seconds = best_of(lambda: block_sizes(LATENCY, n, DIM, gap=GAP))
    plan = block_sizes(LATENCY, n, DIM, gap=GAP)
    iterates: list[np.ndarray] = []
    start = time.perf_counter()
    subgradient(LATENCY, n, float(DIM), rng=0, iterations=iterations, trace=iterates)
    each = (time.perf_counter() - start) / iterations
    model, ranks = runtime(LATENCY, n), np.arange(1, n + 1)
    costs = [expected(model, np.cumsum(ranks * sizes)) / DIM for sizes in iterates]
    best = int(np.argmin(costs))
    reached = next((k for k, cost in enumerate(costs) if cost <= plan.cost), None)
    taken = each * ((best if reached is None else reached) + 1)
    print(f"N={n}: optimum {seconds:.3f} s, certified gap {plan.cost / plan.bound - 1:.1e}")
    print(f"      the paper's method: {taken:.1f} s to its best, {costs[best] / plan.cost:.4f} times that")
    return {
        "n": n,
        "seconds": round(seconds, 4),
        "certified_gap": plan.cost / plan.bound - 1,
        "paper_iterations": iterations,
        "paper_reaches_our_objective": reached is not None,
        "paper_seconds_to_its_best": round(taken, 2),
        "paper_best_relative_to_ours": costs[best] / plan.cost,
        "ratio": round(taken / seconds, 1),
    }


def growth() -> list[dict[str, Any]]:
    rows = []
    for n, exact in [(n, None) for n in (10, 20, 50, 100, 150, 300, 1000)] + [(1000, True)]:
        start = time.perf_counter()
        plan = block_sizes(LATENCY, n, 1_000_000, gap=GAP, exact=exact)
        seconds = time.perf_counter() - start
        gap = plan.cost / (plan.bound or np.nan) - 1
        rows.append({"n": n, "seconds": round(seconds, 3), "certified_gap": gap, "exact": plan.ci95[0] == plan.ci95[1]})
        print(f"N={n}: {seconds:.2f} s, certified gap {gap:.2%}{'' if plan.ci95[0] == plan.ci95[1] else ' (over draws)'}")
    return rows


def main() -> None:
    save("blocks", {"against_the_paper": against_the_paper(), "growth": growth()})
