"""What [B] says about its closed forms, beside what holds in its own setting: savings, shares, bounds and equation 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...app.plots import BLUE, _clean, _figure
from ...latency import ShiftedExponential
from ...plan import block_sizes
from ..files import save
from .figures import DIM, METHODS, SAMPLES, SHIFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]

SETTINGS = {"N=50, mu=1e-3": (50, 1e-3), "N=20, mu=10^-2.6": (20, 10**-2.6)}
BASELINES = ("single block", "Tandon, slowdown 6", "Ferdinand, L layers", "Ferdinand, L/2 layers")
"""Rivals in the paper's own figure, as it sets them."""

CLOSED = ("x(t)", "x(f)")
EQUATION8 = (20, 25, 30, 35, 40, 50)


def reproduce_claims(out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write bcgc-claims.png, .pdf, .csv and .json: a row per number, named by `claim` and `where`."""
    rows = []
    for done, (where, (n, rate)) in enumerate(SETTINGS.items()):
        rows += _savings(where, n, rate, seed)
        if progress:
            progress(where, done + 1, len(SETTINGS) + 1)
    rows += _shares(seed) + [_row("relative error of equation 8", f"N={n}", lost_digits(n, 1e-3)) for n in EQUATION8]
    about = {"repeat": "unstraggle reproduce bcgc-claims", "setting": f"t0={SHIFT:g}, L={DIM}, M={SAMPLES}, b=1"}
    save(out, "bcgc-claims", rows, _picture(rows), about)
    return rows


def _row(claim: str, where: str, value: float) -> dict[str, Any]:
    return {"claim": claim, "where": where, "value": float(f"{value:.5g}")}


def _savings(where: str, n: int, rate: float, seed: int) -> list[dict[str, Any]]:
    """Savings of the closed forms over the paper's best baseline, and their distance to the optimum beside Theorem 4."""
    latency = ShiftedExponential(rate, SHIFT)
    names = (*CLOSED, *BASELINES, "optimum", "Tandon, tuned")
    time = {name: _time(latency, n, name, seed) for name in names}
    best = min(BASELINES, key=lambda name: time[name])
    bounds = dict(zip(CLOSED, theorem4(n, rate * SHIFT), strict=True))
    rows = [_row(f"saving of {name} over the best baseline ({best})", where, 1 - time[name] / time[best]) for name in CLOSED]
    rows += [_row(f"saving of {name} over single block", where, 1 - time[name] / time["single block"]) for name in CLOSED]
    rows += [_row("saving of the optimum over Tandon, tuned", where, 1 - time["optimum"] / time["Tandon, tuned"])]
    for name in CLOSED:
        rows.append(_row(f"{name} over the optimum", where, time[name] / time["optimum"]))
        rows.append(_row(f"Theorem 4's bound for {name}", where, bounds[name]))
    return rows


def _time(latency: ShiftedExponential, n: int, name: str, seed: int) -> float:
    method, options = METHODS[name]
    return float(block_sizes(latency, n, DIM, method, samples=SAMPLES, rng=seed, **options).cost)


def theorem4(n: int, shift: float) -> tuple[float, float]:
    """Bounds on E[runtime] over the optimum of x(t) and x(f), for mu t0 = shift ([B] Theorem 4).

    >>> [round(bound) for bound in theorem4(50, 0.05)]
    [10007, 91]
    """
    harmonic = float(np.sum(1 / np.arange(1, n + 1)))
    return (harmonic + 1) * (harmonic + shift) / shift**2, harmonic / shift + 1


def _shares(seed: int) -> list[dict[str, Any]]:
    """How much of all coordinates the first and the last block hold together (figure 3)."""
    rows = []
    for name in ("optimum", *CLOSED):
        sizes = block_sizes(ShiftedExponential(1e-3, SHIFT), 20, DIM, METHODS[name][0], samples=SAMPLES, rng=seed).params[
            "sizes"
        ]
        rows.append(_row(f"share of the first and last block, {name}", "N=20, mu=1e-3", (sizes[0] + sizes[-1]) / DIM))
    return rows


def lost_digits(n: int, rate: float) -> float:
    """The largest relative error over all order statistics of equation 8 in double precision."""
    harmonic = ShiftedExponential(rate, SHIFT).harmonic_order_statistics(n)
    return float(np.max(np.abs(equation8(n, rate) * harmonic - 1)))


def equation8(n: int, rate: float) -> NDArray[np.float64]:
    """(n,) E[1 / T_(1)], E[1 / T_(2)], ... as [B] prints it: an alternating sum of exponential integrals.

    >>> bool(abs(equation8(5, 1e-3) * ShiftedExponential(1e-3, SHIFT).harmonic_order_statistics(5) - 1).max() < 1e-9)
    True
    """
    from scipy.special import exp1

    found = []
    for m in range(1, n + 1):
        z = rate * SHIFT * (n - m + np.arange(m) + 1)
        signed = [(-1) ** i * comb(m - 1, i) for i in range(m)]
        found.append(rate * (n + 1 - m) * comb(n, m - 1) * float(np.sum(np.array(signed, dtype=float) * np.exp(z) * exp1(z))))
    return np.array(found)


def _picture(rows: Sequence[dict[str, Any]]) -> Figure:
    lost = [(int(row["where"][2:]), row["value"]) for row in rows if row["claim"].startswith("relative error")]
    figure = _figure(5.2, 3.2)
    axes = figure.subplots()
    axes.plot(*zip(*lost, strict=True), "o-", color=BLUE, markersize=5)
    axes.axhline(1.0, color="black", linestyle=":", linewidth=1)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate("no digit is right", (0.02, 1.0), (0, 3), fontsize=8, **place)
    axes.set(yscale="log", xlabel="workers N", ylabel="largest relative error of equation 8")
    _clean(axes)
    return figure


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people."""
    return [["claim", "where", "value"], *([row["claim"], row["where"], f"{row['value']:.4g}"] for row in rows)]
