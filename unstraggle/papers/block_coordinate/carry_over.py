"""The designs of [B] where rounds follow one another: who is inside a task when a round ends begins the next one late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.plots import BLUE, ORANGE, _clean, _figure
from ...latency import ShiftedExponential
from ...plan import block_sizes
from ...study.simulation import simulate
from ..files import save
from .figures import DIM, METHODS, SAMPLES, SHIFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]

N, RATE = 20, 1e-3
COMPARED = ("optimum", "x(t)", "x(f)", "Tandon, tuned", "single block", "Tandon, slowdown 6")
MOST = 3000
"""Rounds at most: they follow one another."""


def reproduce_carry_over(
    out: Path, rounds: int = MOST, seed: int = 0, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Write bcgc-carry.png, .pdf, .csv and .json: runtimes in 1e7, free workers exactly and carry-over simulated."""
    rounds, rows = min(rounds, MOST), []
    for done, name in enumerate(COMPARED):
        rows.append(_row(name, rounds, seed))
        if progress:
            progress(name, done + 1, len(COMPARED))
    about = {
        "repeat": f"unstraggle reproduce bcgc-carry --rounds {rounds} --seed {seed}",
        "setting": f"N={N}, mu={RATE:g}, t0={SHIFT:g}, L={DIM}, M={SAMPLES}, b=1; 95 % intervals",
        "rounds": rounds,
    }
    save(out, "bcgc-carry", rows, _picture(rows), about)
    return rows


def _row(name: str, rounds: int, seed: int) -> dict[str, Any]:
    latency = ShiftedExponential(RATE, SHIFT)
    method, options = METHODS[name]
    plan = block_sizes(latency, N, DIM, method, samples=SAMPLES, rng=seed, **options)
    free = simulate(plan.code, latency, rounds=rounds, rng=seed).time
    kept = simulate(plan.code, latency, rounds=rounds, rng=seed, carry=True).time
    return _measured(name, float(plan.cost), free, kept)


def _measured(name: str, cost: float, free: Any, kept: Any) -> dict[str, Any]:
    """In 1e7 cycles: the simulation counts in shares of a partition, each of L M b / N cycles."""
    unit = DIM * SAMPLES / N / 1e7
    return {
        "method": name,
        "free, exact": round(cost / 1e7, 4),
        "free, simulated": round(unit * free.mean, 4),
        "carry-over": round(unit * kept.mean, 4),
        "carry-over_half": round(unit * (kept.ci95[1] - kept.ci95[0]) / 2, 4),
    }


def _picture(rows: Sequence[dict[str, Any]]) -> Figure:
    figure = _figure(6.0, 3.2)
    axes = figure.subplots()
    for shift, (key, look) in (
        (-0.2, ("free, exact", {"color": BLUE, "label": "free workers"})),
        (0.2, ("carry-over", {"color": ORANGE, "label": "carry-over", "hatch": "//", "edgecolor": "white", "linewidth": 0})),
    ):
        halves = [row.get(f"{key}_half", 0.0) for row in rows]
        places = [number + shift for number in range(len(rows))]
        axes.barh(places, [row[key] for row in rows], 0.38, xerr=halves, **look)
    axes.set_yticks(range(len(rows)), [row["method"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"expected runtime (1e7), N = {N}")
    axes.legend(frameon=False, fontsize=8)
    _clean(axes)
    return figure


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people."""
    cells = [["", "free workers, exact", "carry-over", "± 95 %"]]
    return cells + [
        [row["method"], f"{row['free, exact']:.3f}", f"{row['carry-over']:.2f}", f"{row['carry-over_half']:.2f}"]
        for row in rows
    ]
