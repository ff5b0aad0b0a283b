"""Ozfatura, Gunduz, Ulukus: Gradient Coding with Clustering and Multi-message Communication (arXiv 1903.01974), figure 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scipy.special import digamma

from ...app import plots
from ...codes import (
    cluster,
    correlated_mmc,
    cyclic_repetition,
    fractional_repetition,
    hybrid,
    lagrange,
    uncoded,
    uncoded_mmc,
    uncorrelated_mmc,
)
from ...errors import Invalid
from ...latency import ShiftedExponential
from ...randomness import generator
from ...scheme.code import Code
from ...scheme.recovery import By
from ...study.simulation import simulate
from ..files import save

Progress = Callable[[str, int, int], None]

CARRIED = 50_000
"""Rounds with carry-over at most: they follow one another, which takes longer to simulate."""


@dataclass(frozen=True)
class Setting:
    """The numbers of the paper's section IV: workers, load, clusters, orders and the latency model."""

    n: int = 40
    load: int = 10
    clusters: int = 4
    order: int = 6
    orders: tuple[int, ...] = (6, 8, 10)
    latency: ShiftedExponential = field(default_factory=lambda: ShiftedExponential(rate=10, shift=0.01))

    def __post_init__(self) -> None:
        if self.clusters < 1 or self.n % self.clusters:
            raise Invalid(f"Clusters must divide the workers evenly, but got n={self.n}, clusters={self.clusters}.")


@dataclass(frozen=True, eq=False)
class Scheme:
    """A bar of the figure."""

    label: str
    code: Code
    by: By = "rule"
    in_paper: bool = False
    expected: float | None = None


def schemes(setting: Setting) -> list[Scheme]:
    """The five schemes of the figure, and those that it should be compared with."""
    size = setting.n // setting.clusters
    inside = partial(cluster, times=setting.clusters)
    shared = inside(correlated_mmc(size, setting.load, setting.order))
    different = inside(uncorrelated_mmc(size, setting.load, setting.orders))
    plain = uncoded_mmc(setting.n, setting.load)
    coded = cyclic_repetition(setting.n, setting.load - 1)
    interpolated = lagrange(setting.n, setting.load)
    return [
        Scheme("GC", coded, in_paper=True, expected=order_statistic(setting, coded.threshold or 0)),
        Scheme("LCC", interpolated, in_paper=True, expected=order_statistic(setting, interpolated.threshold or 0)),
        Scheme("UC-MMC", plain, in_paper=True),
        Scheme("GC-MMC-1", shared, in_paper=True),
        Scheme("GC-MMC-2", different, in_paper=True),
        *_several(setting),
        Scheme("wait for all", uncoded(setting.n), expected=order_statistic(setting, setting.n, load=1)),
        *_repetition(setting),
        Scheme("GC-MMC-2 hybrid", hybrid(different)),
        Scheme("UC-MMC by span", plain, by="span"),
        Scheme("GC-MMC-1 by span", shared, by="span"),
        Scheme("GC-MMC-2 by span", different, by="span"),
        Scheme("hybrid by span", hybrid(different), by="span"),
    ]


def _several(setting: Setting) -> list[Scheme]:
    """LCC with two messages a worker, and with one for every task, which float64 cannot decode in the paper's setting."""
    counts = [count for count in (2, setting.load) if count <= setting.load and setting.load % count == 0]
    return [Scheme(f"LCC, {count} messages", lagrange(setting.n, setting.load, count)) for count in dict.fromkeys(counts)]


def _repetition(setting: Setting) -> list[Scheme]:
    if setting.n % setting.load:
        return []
    exact = setting.load * setting.latency.shift + _harmonic(setting.n // setting.load) / setting.latency.rate
    return [Scheme("fractional repetition", fractional_repetition(setting.n, setting.load - 1), expected=exact)]


def order_statistic(setting: Setting, count: int, load: int | None = None) -> float:
    """Mean time until `count` of n workers have finished `load` tasks: load (shift + (H_n - H_(n - count)) / rate)."""
    wait = (_harmonic(setting.n) - _harmonic(setting.n - count)) / setting.latency.rate
    return (load or setting.load) * (setting.latency.shift + wait)


def _harmonic(n: int) -> float:
    return float(digamma(n + 1) + 0.5772156649015329)


def figure1(
    rounds: int = 100_000, seed: int = 0, setting: Setting | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Time and load of every scheme, each on the same draws: one dictionary a bar.

    The paper lets every round start with free workers; `time_carried` does not: who is inside a task when a round ends stays
    in it.
    """
    setting = setting or Setting()
    return [measure(scheme, setting, rounds, seed, progress) for scheme in schemes(setting)]


def measure(scheme: Scheme, setting: Setting, rounds: int, seed: int, progress: Progress | None) -> dict[str, Any]:
    told = partial(progress, scheme.label) if progress else None
    run = partial(simulate, scheme.code, setting.latency, rounds=rounds, by=scheme.by)
    everything = run(rng=generator(seed), progress=told)
    early = run(rng=generator(seed), sending="cluster_stop")
    carried = run(rng=generator(seed), rounds=min(rounds, CARRIED), carry=True)
    return {
        "scheme": scheme.label,
        "in_paper": scheme.in_paper,
        "time": everything.time.mean,
        "time_ci95": list(everything.time.ci95),
        "time_exact": scheme.expected,
        "time_carried": carried.time.mean,
        "time_carried_ci95": list(carried.time.ci95),
        "load": everything.messages.mean,
        "load_ci95": list(everything.messages.ci95),
        "load_cluster_stop": early.messages.mean,
        "by": scheme.by,
        "code": scheme.code.name,
    }


def reproduce_figure1(
    out: Path, rounds: int = 100_000, seed: int = 0, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Write mmc-fig1.png, .pdf, .csv and .json into a folder and return the table."""
    rows, setting = figure1(rounds, seed, progress=progress), Setting()
    about = {
        "repeat": f"unstraggle reproduce mmc-fig1 --rounds {rounds} --seed {seed}",
        "setting": f"n={setting.n}, load={setting.load}, {setting.latency}",
        "rounds": rounds,
    }
    figure = plots.time_and_load(rows, f"{setting.n} workers, load {setting.load}, {rounds:,} rounds")
    save(out, "mmc-fig1", rows, figure, about)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The rows for people: header first."""
    cells = [["scheme", "time", "± 95 %", "exact", "carry-over", "load", "cluster stop"]]
    for row in rows:
        half = (row["time_ci95"][1] - row["time_ci95"][0]) / 2
        exact = "" if row["time_exact"] is None else f"{row['time_exact']:.4f}"
        stop = "" if row["load_cluster_stop"] is None else f"{row['load_cluster_stop']:.2f}"
        carried = f"{row['time_carried']:.3f}" if "time_carried" in row else ""
        cells.append([row["scheme"], f"{row['time']:.4f}", f"{half:.4f}", exact, carried, f"{row['load']:.2f}", stop])
    return cells
