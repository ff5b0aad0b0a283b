"""How many deadlines the workers of [C] miss where nobody can leave a task: who is late begins the next step late, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ... import codes
from ...app.plots import BLUE, ORANGE, _clean, _figure
from ...latency import Heterogeneous, ShiftedExponential
from ...scheme.stop import Deadline
from ...study.simulation import simulate
from ..files import save
from .schemes import straggle_probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]

DEADLINE = 1.1
SETTINGS = ((50, 2.0), (100, 2.0), (50, 5.0))
"""Workers, and psi of the fastest: those of figures 2 and 3."""
MOST = 4000
"""Steps at most: they follow one another."""


def reproduce_missed(out: Path, rounds: int = MOST, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write cagc-carry.png, .pdf, .csv and .json: shares of deadlines that are missed, by free workers and with carry-over."""
    steps, rows = min(rounds, MOST), []
    for done, (n, fastest) in enumerate(SETTINGS):
        rows.append(_row(n, fastest, steps, seed))
        if progress:
            progress(f"n = {n}, psi up to {fastest:g}", done + 1, len(SETTINGS))
    about = {
        "repeat": f"unstraggle reproduce cagc-carry --rounds {steps} --seed {seed}",
        "setting": f"tasks of 1 + Exp(psi_i), psi_i on a grid from 0.01, deadline {DEADLINE:g}, uncoded; 95 % intervals",
        "steps": steps,
    }
    save(out, "cagc-carry", rows, _picture(rows), about)
    return rows


def _row(n: int, fastest: float, steps: int, seed: int) -> dict[str, Any]:
    p = straggle_probabilities(n, DEADLINE, fastest)
    psi = -np.log(p) / (DEADLINE - 1)
    (free, free_half), (kept, kept_half) = (_missed(psi, steps, seed, carry) for carry in (False, True))
    slowest = 1 + 1 / float(psi.min())
    found = {"free, exact": p.mean(), "free": free, "free_half": free_half, "carry-over": kept, "carry-over_half": kept_half}
    found |= {"slowest task": slowest, "in steps": slowest / DEADLINE}
    return {"n": n, "psi up to": fastest} | {name: round(float(value), 5) for name, value in found.items()}


def _missed(psi: NDArray[np.float64], steps: int, seed: int, carry: bool) -> tuple[float, float]:
    """The share of messages that do not come in time, with half the width of its interval."""
    workers = Heterogeneous([ShiftedExponential(rate, 1.0) for rate in psi.tolist()])
    came = simulate(codes.uncoded(len(psi)), workers, Deadline(DEADLINE), rounds=steps, rng=seed, carry=carry).messages
    low, high = came.ci95
    return 1 - came.mean / len(psi), (high - low) / 2 / len(psi)


def _picture(rows: Sequence[dict[str, Any]]) -> Figure:
    figure = _figure(6.0, 2.4)
    axes = figure.subplots()
    for shift, (key, look) in (
        (-0.2, ("free", {"color": BLUE, "label": "free workers"})),
        (0.2, ("carry-over", {"color": ORANGE, "label": "carry-over", "hatch": "//", "edgecolor": "white", "linewidth": 0})),
    ):
        places, shares = [number + shift for number in range(len(rows))], [100 * row[key] for row in rows]
        axes.barh(places, shares, 0.38, xerr=[100 * row[f"{key}_half"] for row in rows], **look)
        for place, share in zip(places, shares, strict=True):
            axes.annotate(f"{share:.1f}", (share, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [f"n = {row['n']}, psi up to {row['psi up to']:g}" for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel=f"deadlines of {DEADLINE:g} missed (%)", xlim=(0, 112))
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    _clean(axes)
    return figure


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people."""
    cells = [["deadlines missed", "free workers", "carry-over", "± 95 %"]]
    for row in rows:
        shares = [f"{100 * row[key]:.1f} %" for key in ("free", "carry-over")]
        cells.append([f"n = {row['n']}, psi up to {row['psi up to']:g}", *shares, f"{100 * row['carry-over_half']:.2f} %"])
    return cells
