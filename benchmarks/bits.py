"""Bit allocation: the fast method against the exact one, with bits capped at what messages can have; quality and time."""

import time
from functools import partial
from typing import Any

import numpy as np

from unstraggle.plan import bits

from .common import save
from .quantize import best_times

DIM = 3_440_060
SIZES = ((100, 1_000), (1_000, 3_000), (1_000, 10_000))
"""Workers, and bits beyond the 2 that everyone has."""
INSTANCES, REPEATS = 20, 10


def straggling(n: int, seed: int) -> np.ndarray:
    """Straggle probabilities of shifted exponential workers at the deadline of [C]: rates between 0.01 and 2, 0.1 s left."""
    return np.exp(-0.1 * np.random.default_rng(seed).uniform(0.01, 2, n))


def compared(n: int, residual: int) -> dict[str, Any]:
    """Seconds of both on one instance (processor time, where cores are shared), and the gap of the fast one over several."""
    gaps = []
    for seed in range(INSTANCES):
        p = straggling(n, seed)
        exact, fast = (bits(p, budget=2 * n + residual, dim=DIM, method=how) for how in ("dp", "fast"))
        gaps.append(max(0.0, 1 - fast.objective / exact.objective))
    p, budget = straggling(n, 0), 2 * n + residual
    runs = {how: partial(bits, p, budget=budget, dim=DIM, method=how) for how in ("dp", "fast")}
    best = best_times(runs, REPEATS)
    exact_seconds, fast_seconds = best["dp"], best["fast"]
    print(
        f"n={n} R={residual}: exact {1e3 * exact_seconds:.1f} ms, fast {1e3 * fast_seconds:.2f} ms "
        f"({exact_seconds / fast_seconds:.0f} x), gap at most {max(gaps):.1e} of {len(gaps)}"
    )
    return {
        "n": n,
        "residual": residual,
        "exact_seconds": round(exact_seconds, 5),
        "fast_seconds": round(fast_seconds, 6),
        "times_faster": round(exact_seconds / fast_seconds, 1),
        "instances": len(gaps),
        "worst_gap": max(gaps),
        "mean_gap": float(np.mean(gaps)),
    }


def varied(instances: int = 200) -> dict[str, Any]:
    """Gap of the fast method where everything differs: workers, reliability, coordinates, budget and gamma."""
    rng, gaps = np.random.default_rng(0), []
    for _ in range(instances):
        n = int(rng.integers(25, 200))
        p, dim = rng.random(n) ** rng.choice([0.1, 1.0, 3.0]), int(10 ** rng.uniform(1, 7))
        how = {"budget": 2 * n + int(rng.integers(0, 8 * n)), "dim": dim, "gamma": float(10 ** rng.uniform(-4, 1))}
        exact, fast = (bits(p, method=method, **how).objective for method in ("dp", "fast"))
        gaps.append(max(0.0, 1 - fast / exact))
    print(f"{instances} varied instances: gap at most {max(gaps):.1e}, {np.mean(gaps):.1e} in the mean")
    return {"instances": instances, "worst_gap": max(gaps), "mean_gap": float(np.mean(gaps))}


def rivals(n: int = 1_000, residual: int = 10_000) -> dict[str, Any]:
    """Objective over the optimum, and seconds, of two of the paper's rivals."""
    p, budget = straggling(n, 0), 2 * n + residual
    best = bits(p, budget=budget, dim=DIM).objective
    found = {}
    for method in ("greedy", "equal"):
        start = time.perf_counter()
        objective = bits(p, budget=budget, dim=DIM, method=method, most=16).objective
        found[method] = {"share_of_optimum": objective / best, "seconds": round(time.perf_counter() - start, 5)}
        print(f"n={n} R={residual}: {method} reaches {objective / best:.4f} of the optimum")
    return {"n": n, "residual": residual, **found}


def main() -> None:
    save(
        "bits",
        {
            "dim": DIM,
            "most_bits": 16,
            "fast_against_exact": [compared(*size) for size in SIZES],
            "varied": varied(),
            "rivals": rivals(),
        },
    )
