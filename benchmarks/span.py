"""The incremental span test against solving least squares again at each arrival, for a round with n = 1000 rows."""

import time

import numpy as np
from scipy.linalg import lstsq

from unstraggle import codes
from unstraggle.scheme.recovery import SpanProgress

from .common import save

N, S = 1000, 100


def main() -> None:
    part = codes.cyclic_repetition(N, s=S).decoder
    order = np.random.default_rng(0).permutation(N)
    assert part.distinct.shape == (N, N)

    start = time.perf_counter()
    progress, arrived = SpanProgress(part), 0
    while not progress.met:
        progress.add(int(order[arrived]))
        arrived += 1
    incremental = time.perf_counter() - start

    solving = 0.0
    for count in range(1, arrived + 1):
        start = time.perf_counter()
        rows = part.distinct[order[:count]]
        weights = lstsq(rows.T, part.target, lapack_driver="gelsy", check_finite=False)[0]
        recovered = np.abs(weights @ rows - part.target).max() < 1e-6
        solving += time.perf_counter() - start
        assert recovered == (count == arrived)
    print(f"n={N}: incremental {incremental:.3f} s, solving at each of {arrived} arrivals {solving:.1f} s")
    result = {"n": N, "s": S, "arrivals": arrived, "incremental_s": round(incremental, 4), "solving_s": round(solving, 2)}
    save("span", result | {"ratio": round(incremental / solving, 5)})
