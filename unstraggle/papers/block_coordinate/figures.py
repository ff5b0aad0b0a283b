"""Optimal block coordinate gradient coding ([B]), figures 3 and 4, with the rivals tuned and a certified bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...app import plots
from ...latency import ShiftedExponential
from ...plan import block_sizes
from ..files import save

Progress = Callable[[str, int, int], None]

SHIFT, DIM, SAMPLES = 50.0, 20_000, 50
WORKERS = (10, 20, 30, 40, 50)
EXPONENTS = (-3.4, -3.2, -3.0, -2.8, -2.6)

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "optimum": ("optimal", {}),
    "x(t)": ("time", {}),
    "x(f)": ("frequency", {}),
    "single block": ("single", {}),
    "Tandon, slowdown 6": ("tandon", {}),
    "Tandon, tuned": ("tandon_tuned", {}),
    "Ferdinand, L layers": ("ferdinand", {}),
    "Ferdinand, L/2 layers": ("ferdinand", {"layers": DIM // 2}),
}
IN_PAPER = ("optimum", "x(t)", "x(f)", "single block", "Tandon, slowdown 6", "Ferdinand, L layers", "Ferdinand, L/2 layers")


def reproduce_figure3(out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Block sizes of the optimum and of both closed forms: how many coordinates tolerate how many stragglers (N = 20)."""
    latency, rows = ShiftedExponential(1e-3, SHIFT), []
    for label in ("optimum", "x(t)", "x(f)"):
        plan = block_sizes(latency, 20, DIM, METHODS[label][0], samples=SAMPLES, rng=seed)
        sizes = {f"s={s}": size for s, size in enumerate(plan.params["sizes"])}
        rows.append({"method": label, "runtime": plan.cost, "bound": plan.bound, **sizes})
    save(out, "bcgc-fig3", rows, plots.block_sizes(rows), _about("bcgc-fig3", seed, "N=20, mu=1e-3"))
    return rows


def reproduce_figure4a(out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Expected runtime against the number of workers."""
    settings = [(n, ShiftedExponential(1e-3, SHIFT)) for n in WORKERS]
    rows = _sweep("N", WORKERS, settings, seed, progress)
    figure = plots.runtimes(rows, "N", "workers N", IN_PAPER)
    save(out, "bcgc-fig4a", rows, figure, _about("bcgc-fig4a", seed, "mu=1e-3"))
    return rows


def reproduce_figure4b(out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Expected runtime against the rate of the exponential part."""
    settings = [(20, ShiftedExponential(10.0**exponent, SHIFT)) for exponent in EXPONENTS]
    rows = _sweep("log10_mu", EXPONENTS, settings, seed, progress)
    figure = plots.runtimes(rows, "log10_mu", "log10 of the rate mu", IN_PAPER)
    save(out, "bcgc-fig4b", rows, figure, _about("bcgc-fig4b", seed, "N=20"))
    return rows


def _sweep(
    key: str,
    values: Sequence[float],
    settings: Sequence[tuple[int, ShiftedExponential]],
    seed: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """One row a setting: runtime of every method, the certified bound and the paper's (Jensen), all in 1e7."""
    rows = []
    for place, (value, (n, latency)) in enumerate(zip(values, settings, strict=True)):
        row: dict[str, Any] = {key: value}
        for label, (method, options) in METHODS.items():
            plan = block_sizes(latency, n, DIM, method, samples=SAMPLES, rng=seed, **options)
            row[label] = plan.cost / 1e7
            if method == "optimal":
                row |= {"certified bound": (plan.bound or 0.0) / 1e7, "Jensen bound": plan.params["jensen"] / 1e7}
        rows.append(row)
        if progress:
            progress(f"{key} = {value}", place + 1, len(values))
    return rows


def _about(name: str, seed: int, setting: str) -> dict[str, Any]:
    shared = f"t0={SHIFT:g}, L={DIM}, M={SAMPLES}, b=1"
    return {
        "repeat": f"unstraggle reproduce {name} --seed {seed}",
        "setting": f"{setting}, {shared}",
    }


def sizes_table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Block sizes with a row per number of stragglers."""
    levels = [key for key in rows[0] if key.startswith("s=")]
    cells = [
        ["stragglers tolerated", *(row["method"] for row in rows)],
        ["runtime", *(f"{row['runtime']:.5g}" for row in rows)],
    ]
    return cells + [[level[2:], *(str(row[level]) for row in rows)] for level in levels]


def runtimes_table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Runtimes with a row per method."""
    key, *names = rows[0]
    return [[key, *(f"{row[key]:g}" for row in rows)], *([name, *(f"{row[name]:.3f}" for row in rows)] for name in names)]
