"""Communication-efficient approximate gradient coding for unequal workers ([C], arXiv 2605.15890), figure 1: bit allocation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, get_args

from ...plan.bits import Method, bits
from ...plan.error import delta
from ..files import save
from . import plots as plots
from .schemes import straggle_probabilities

Progress = Callable[[str, int, int], None]

DIM = 3_440_060
"""Parameters of the paper's detector, SSDLite320 with MobileNetV3-Large."""

WORKERS = (50, 100)
EACH = (2, 3, 4, 5, 6, 7, 8, 10, 12)
QUICK = (3, 5, 7, 10)
GAMMAS: tuple[Any, ...] = (1.0, "balanced")
METHODS: tuple[Method, ...] = get_args(Method)
MOST = 32


def reproduce_figure1(
    out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None, quick: bool = False
) -> list[dict[str, Any]]:
    """Write cagc-fig1.png, .pdf, .csv and .json: the objective F of every method against the budget B."""
    settings = [(n, gamma, each) for gamma in GAMMAS for n in WORKERS for each in (QUICK if quick else EACH)]
    rows = []
    for done, (n, gamma, each) in enumerate(settings):
        rows.append(objectives(n, gamma, each * n, skip=("relaxation",) if quick and n > 50 else ()))
        if progress:
            progress(f"n = {n}, gamma {gamma}", done + 1, len(settings))
    about = {
        "repeat": f"unstraggle reproduce cagc-fig1{' --quick' if quick else ''}",
        "setting": f"d={DIM}, p_i=exp(-0.1 psi_i), psi_i=.01+1.99(i+.5)/n, 2 to {MOST} bits, omega=d/(4 s^2)",
    }
    save(out, "cagc-fig1", rows, plots.objectives(rows, METHODS), about)
    return rows


def objectives(n: int, gamma: Any, budget: int, skip: Sequence[str] = ()) -> dict[str, Any]:
    """F of every method, the limit that no budget passes, and the seconds of a processor that each method takes."""
    p, row = straggle_probabilities(n), {"n": n, "gamma": gamma, "B": budget, "B/n": budget / n}
    row["no quantiser"] = delta(p)
    for method in METHODS:
        start = process_time()
        known = method not in skip
        row[method] = bits(p, budget=budget, dim=DIM, method=method, gamma=gamma, most=MOST).objective if known else None
        row[f"{method} s"] = round(process_time() - start, 4) if known else None
    return row


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people: header first."""
    cells = [["n, B, gamma", *METHODS, "limit"]]
    for row in rows:
        values = [row[method] for method in (*METHODS, "no quantiser")]
        name = f"{row['n']} {row['B']} {'1' if row['gamma'] == 1 else 'bal.'}"
        cells.append([name, *("" if value is None else f"{value:.3f}" for value in values)])
    return cells
