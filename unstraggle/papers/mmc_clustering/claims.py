"""Numbers of [A]'s page that are in none of its figures: other joint laws, the link, rule and span, noise gains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.plots import BLUE, ORANGE, _clean, _figure
from ...codes import cluster, cyclic_repetition, fractional_repetition, hybrid, uncoded_mmc, uncorrelated_mmc
from ...latency import Network, ShiftedExponential
from ...plan.designs import Design
from ...plan.orders import design_noise_gain
from ...randomness import generator
from ...study.simulation import simulate
from ..files import save
from .figure1 import Progress, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINK: dict[str, Any] = {"dim": 750_000, "master": 1e9}
"""3 ms a message through the link of the master."""

MOST = 100_000

NOISY: tuple[tuple[str, tuple[int, ...], Any, Any], ...] = (
    ("hybrid 1,10 by rule", (1, 10), "hybrid", "rule"),
    ("hybrid 1,5,10 by span", (1, 5, 10), "hybrid", "span"),
    ("hybrid 1,2,3,5,7,9,10 by span", (1, 2, 3, 5, 7, 9, 10), "hybrid", "span"),
    ("GC-MMC-1", (6, 7, 8, 9, 10), "correlated", "rule"),
)
"""Name, orders, design and recovery of the points whose noise gain the page gives."""


def cases(setting: Setting) -> dict[str, tuple[Any, ...]]:
    """Code, latency and how it is recovered, by name."""
    usual = setting.latency
    fresh = ShiftedExponential(usual.rate, usual.shift, per="task")
    plain, repeated = uncoded_mmc(setting.n, setting.load), fractional_repetition(setting.n, setting.load - 1)
    few = hybrid(cluster(uncorrelated_mmc(setting.n // setting.clusters, setting.load, [1, 5, 10]), times=setting.clusters))
    return {
        "GC, fresh draws": (cyclic_repetition(setting.n, setting.load - 1), fresh, "rule"),
        "UC-MMC, fresh draws": (plain, fresh, "rule"),
        "UC-MMC, 3 ms a message": (plain, Network(usual, **LINK), "rule"),
        "fractional repetition, 3 ms a message": (repeated, Network(usual, **LINK), "rule"),
        "hybrid 1,5,10 by rule": (few, usual, "rule"),
        "hybrid 1,5,10 by span": (few, usual, "span"),
    }


def reproduce_claims(out: Path, rounds: int = MOST, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write mmc-claims.png, .pdf, .csv and .json: mean time and messages of each case."""
    setting, rows = Setting(), []
    for done, (name, (code, latency, by)) in enumerate(cases(setting).items()):
        found = simulate(code, latency, rounds=rounds, rng=generator(seed), by=by)
        rows.append(_row(name, found.time, found.messages))
        if progress:
            progress(name, done + 1, len(cases(setting)))
    about: dict[str, Any] = {"repeat": f"unstraggle reproduce mmc-claims --rounds {rounds} --seed {seed}", "rounds": rounds}
    about |= {"setting": f"n={setting.n}, load={setting.load}, {setting.latency}", "noise_gain": noise_gains(setting)}
    save(out, "mmc-claims", rows, _picture(rows), about)
    return rows


def noise_gains(setting: Setting) -> dict[str, dict[str, float]]:
    """Median and worst noise gain of some points of the front, over 80 survivor sets each."""
    found = {}
    for name, steps, kind, by in NOISY:
        gain = design_noise_gain(Design(setting.clusters, setting.n // setting.clusters, steps, kind, by))
        found[name] = {"median": round(gain.median, 3), "worst": round(gain.worst, 2)}
    return found


def _row(name: str, time: Any, messages: Any) -> dict[str, Any]:
    found = {"scheme": name, "time": time.mean, "time_ci95": list(time.ci95), "load": messages.mean}
    return found | {"load_ci95": list(messages.ci95)}


def _picture(rows: Sequence[dict[str, Any]]) -> Figure:
    figure = _figure(9.0, 2.6)
    names = [row["scheme"] for row in rows]
    for axes, (key, colour, label) in zip(
        figure.subplots(1, 2, sharey=True),
        (("time", BLUE, "mean time of a round (s)"), ("load", ORANGE, "messages")),
        strict=True,
    ):
        axes.barh(names, [row[key] for row in rows], color=colour)
        axes.set_xlabel(label)
        _clean(axes)
    figure.axes[0].invert_yaxis()
    return figure


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people."""
    return [["", "time", "messages"], *([row["scheme"], f"{row['time']:.4f}", f"{row['load']:.2f}"] for row in rows)]
