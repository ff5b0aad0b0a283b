"""The exact error of the schemes of [C] against the bits that they send: who is ahead depends on the number of coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import codes, plan
from ...plan.error import delta, mean_squared_error
from ...scheme.code import Code
from ..files import save
from . import plots as plots
from .schemes import Cluster, scheme, straggle_probabilities

Progress = Callable[[str, int, int], None]
Floats = NDArray[np.float64]

WORKERS = 50
SIZES = (10_000, 3_440_060, 25_557_032)
"""Coordinates: about those of the networks of figures 2 and 3 here, of the paper's detector, and of ResNet-50."""

EACH, QUICK = (3, 4, 5, 6, 7, 8, 10, 12, 14), (3, 7, 12)
BITS = range(2, 17)
VARIANT, SILENT = "proposed, qsgd omega", "proposed, qsgd omega, silence allowed"
SCHEMES = ("proposed", VARIANT, SILENT, "OSGC", "SGC")
QUANTILES = 200_000


def reproduce_errors(
    out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None, quick: bool = False
) -> list[dict[str, Any]]:
    """Write cagc-error.png, .pdf, .csv and .json."""
    rows = []
    for done, dim in enumerate(SIZES):
        noise = gaussian_omega(dim)
        rows += [error(label, dim, each, noise) for label in SCHEMES for each in (QUICK if quick else EACH)]
        if progress:
            progress(f"d = {dim:,}", done + 1, len(SIZES))
    about = {
        "repeat": f"unstraggle reproduce cagc-error{' --quick' if quick else ''}",
        "setting": f"n=k={WORKERS}, p as in figure 1, identical partial gradients, normal coordinates; computed, not sampled",
    }
    save(out, "cagc-error", rows, plots.errors(rows), about)
    return rows


def gaussian_omega(dim: int) -> Floats:
    """(15,) relative variance of the quantisers with 2, 3, ... 16 bits on a vector of `dim` normal coordinates.

    With y = s |z| / sqrt(dim) it is dim / s^2 times the mean of f (1 - f), f the fractional part of y.

    >>> gaussian_omega(100_000)[2].round(1)
    np.float64(35.0)
    """
    from scipy.special import ndtri

    z = np.abs(ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES))
    levels = 2.0 ** (np.array(BITS) - 1) - 1
    above = [np.modf(s * z / np.sqrt(dim))[0] for s in levels]
    return np.array([dim / s**2 * float(np.mean(f * (1 - f))) for s, f in zip(levels, above, strict=True)])


def error(label: str, dim: int, each: int, noise: Floats) -> dict[str, Any]:
    """One scheme at one budget: bits that are sent in the mean, and the relative error. noise: see `gaussian_omega`."""
    p = straggle_probabilities(WORKERS)
    code = _code(label, Cluster(tuple(p.tolist()), each * WORKERS, dim))
    sender, bits = code.messages.worker, code.messages.bits
    found = mean_squared_error(code, p, "identical", quantiser_variance=noise[bits - BITS.start])
    return {
        "d": dim,
        "scheme": label,
        "B": each * WORKERS,
        "sent": round(float(((1 - p[sender]) * bits).sum()), 2),
        "error": float(f"{found.relative:.4g}"),
        "limit": float(f"{1 / delta(p):.4g}"),
    }


def _code(label: str, cluster: Cluster) -> Code:
    if label != SILENT:
        found = scheme(label, cluster).code
        assert found is not None
        return found
    bits = plan.bits(cluster.p, budget=cluster.budget, dim=cluster.dim, omega="qsgd", silent=True).bits
    return codes.optimally_structured(cluster.p, bits=bits, dim=cluster.dim, omega="qsgd")


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people: a line per coordinates and budget, "sent: error" for each scheme."""
    cells = [
        ["d, B; sent: error", *(label.replace("proposed, qsgd omega", "qsgd").replace(" allowed", "") for label in SCHEMES)]
    ]
    for dim, budget in dict.fromkeys((row["d"], row["B"]) for row in rows):
        mine = {row["scheme"]: row for row in rows if (row["d"], row["B"]) == (dim, budget)}
        cells.append([f"{dim:,} {budget}", *(f"{mine[s]['sent']:.1f}: {mine[s]['error']:.3g}" for s in SCHEMES)])
    return cells
