"""Pictures of the reproduction of [C]: objectives of bit allocation, and training curves with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...app.plots import COLOURS, GREY, _clean, _figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "dp": "exact (dynamic program)",
    "fast": "fast",
    "greedy": "greedy",
    "equal": "equal bits",
    "relaxation": "relaxation, rounded",
}
MARKS = {"dp": "o-", "fast": "x:", "greedy": "s--", "equal": "v--", "relaxation": "^--"}

STYLE: dict[str, tuple[str, str]] = {
    "SGD": ("#000000", "-"),
    "proposed": (COLOURS[1], "-"),
    "OSGC": (COLOURS[0], "-"),
    "SGC": (COLOURS[2], "-"),
    "1-bit SGC": (COLOURS[2], ":"),
    "IS-SGD": (COLOURS[3], "-"),
    "EHD": (COLOURS[4], "-"),
    "OD": (COLOURS[5], "-"),
    "BGC": (GREY, "-"),
}
"""Colour and line of the schemes of the paper; others take what is left, dashed."""


def objectives(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> Figure:
    """F against bits per worker: a panel for each number of workers and gamma."""
    panels = list(dict.fromkeys((row["n"], row["gamma"]) for row in rows))
    figure = _figure(9.0, 6.4)
    for axes, (n, gamma) in zip(figure.subplots(2, 2, sharex=True).flat, panels, strict=True):
        mine = [row for row in rows if (row["n"], row["gamma"]) == (n, gamma)]
        for number, method in enumerate(methods):
            line = [(row["B/n"], row[method]) for row in mine if row[method] is not None]
            if line:
                axes.plot(*zip(*line, strict=True), MARKS[method], color=COLOURS[number], markersize=5, label=NAMES[method])
        axes.axhline(mine[0]["no quantiser"], color=GREY, linestyle=":", linewidth=1, label="no quantiser: the limit")
        axes.set_title(f"n = {n}, gamma {'= 1' if gamma == 1 else gamma}", fontsize=9)
        axes.set(ylabel="objective F", ylim=(0, None))
        _clean(axes)
    for axes in figure.axes[-2:]:
        axes.set_xlabel("budget B / n, bits per worker and coordinate")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=6)
    return figure


def against_rate(rows: Sequence[dict[str, Any]]) -> Figure:
    """Final loss against the learning rate, a panel per budget: rows with B, scheme, rate, above, half."""
    budgets = list(dict.fromkeys(row["B"] for row in rows))
    figure = _figure(1.9 + 3.4 * len(budgets), 3.4)
    for axes, budget in zip(figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0], budgets, strict=True):
        for label in dict.fromkeys(row["scheme"] for row in rows):
            mine = [row for row in rows if (row["B"], row["scheme"]) == (budget, label)]
            rates, losses, halves = ([row[key] for row in mine] for key in ("rate", "above", "half"))
            colour, style = STYLE.get(label.split(",")[0], (GREY, "--"))
            axes.errorbar(rates, losses, halves, color=colour, linestyle=style, marker="o", markersize=3, label=label)
        axes.set(xscale="log", xlabel="learning rate", title=f"B = {budget}")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_ylim(0, None)
        axes.title.set_fontsize(9)
        _clean(axes)
    figure.axes[0].set_ylabel("final loss above plain SGD's least")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right center")
    return figure


def curves(panels: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss of every scheme: a row per panel, at one rate for all on the left, at each scheme's own best rate on the right.

    A panel has title, x (its label), log, rate, and lines: scheme, and for shared and tuned x, mean, half (of the interval).
    """
    figure = _figure(9.0, 2.5 * len(panels))
    grid = figure.subplots(len(panels), 2, squeeze=False, sharey="row")
    for (left, right), panel in zip(grid, panels, strict=True):
        _lines(left, panel, "shared")
        _lines(right, panel, "tuned")
        left.set_title(f"({panel['name']}) {panel['title']}: one rate for all, {panel['rate']:g}", fontsize=9)
        right.set_title("each at its own best rate", fontsize=9)
        left.set_ylabel("training loss", fontsize=9)
        for axes in (left, right):
            axes.set_xlabel(panel["x"], fontsize=8, labelpad=1)
        right.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _lines(axes: Axes, panel: Mapping[str, Any], kind: str) -> None:
    extra = [line["scheme"] for line in panel["lines"] if line["scheme"] not in STYLE]
    spare = dict(zip(extra, COLOURS[2:] + COLOURS[:1], strict=False))
    top = 1.15 * max(line["shared"]["mean"][0] for line in panel["lines"])
    for line in panel["lines"]:
        colour, style = STYLE.get(line["scheme"], (spare.get(line["scheme"], GREY), "--"))
        x, mean, half = (np.asarray(line[kind][key], dtype=float) for key in ("x", "mean", "half"))
        axes.plot(x, np.minimum(mean, 2 * top), style, color=colour, linewidth=1.3, label=line["scheme"])
        axes.fill_between(x, mean - half, np.minimum(mean + half, 2 * top), color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(0, top)
    axes.set_xscale("log" if panel["log"] else "linear")
    axes.tick_params(labelsize=8)
    _clean(axes)
