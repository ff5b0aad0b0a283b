"""Pictures of the reproduction of [C]: objectives of bit allocation, and training curves with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...app.plots import COLOURS, GREY, _clean, _figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "dp": "exact (dynamic program)",
    "fast": "fast: hull and core",
    "subsets": "the paper's Algorithm 1",
    "greedy": "greedy",
    "equal": "equal bits",
    "relaxation": "relaxation, rounded",
}
MARKS = {"dp": "o-", "fast": "x:", "subsets": "+-.", "greedy": "s--", "equal": "v:", "relaxation": "^-."}
WIDE: dict[str, Any] = {"linewidth": 4.5, "markersize": 11, "markerfacecolor": "none", "alpha": 0.5}
"""Look of a curve on which others lie: it shows around them."""


class Style(NamedTuple):
    """Colour, line and marker: any two of them differ in more than colour."""

    colour: str
    line: str = "-"
    marker: str = ""


STYLE = {
    "SGD": Style("#000000"),
    "proposed": Style(COLOURS[1], "-", "o"),
    "proposed, two tracks": Style(COLOURS[1], "--", "d"),
    "OSGC": Style(COLOURS[0], "--", "s"),
    "SGC": Style(COLOURS[2], "-.", "^"),
    "1-bit SGC": Style(COLOURS[2], ":", "v"),
    "IS-SGD": Style(COLOURS[3], "--", "D"),
    "EHD": Style(COLOURS[4], "-.", "P"),
    "OD": Style(COLOURS[5], ":", "X"),
    "BGC": Style(GREY, "-", "*"),
}
"""The schemes of the paper; lines of other names take the colour of the scheme that they begin with."""

SPARE = tuple(((":", "--", "-.")[i % 3], "^Dv>PX*<sod"[i % 11]) for i in range(33))
"""Lines and markers of other names: each takes the first that its panel does not have yet. Neighbours differ in both."""


def objectives(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> Figure:
    """F against bits per worker: a panel for each number of workers and gamma."""
    panels = list(dict.fromkeys((row["n"], row["gamma"]) for row in rows))
    figure = _figure(9.0, 6.4)
    for axes, (n, gamma) in zip(figure.subplots(2, 2, sharex=True).flat, panels, strict=True):
        mine = [row for row in rows if (row["n"], row["gamma"]) == (n, gamma)]
        for number, method in enumerate(methods):
            line = [(row["B/n"], row[method]) for row in mine if row[method] is not None]
            if line:
                look: dict[str, Any] = {"color": COLOURS[number], "markersize": 6} | (WIDE if method == "dp" else {})
                axes.plot(*zip(*line, strict=True), MARKS[method], **look, label=NAMES[method])
        axes.axhline(mine[0]["no quantiser"], color=GREY, linestyle=":", linewidth=1, label="no quantiser: the limit")
        axes.set_title(f"n = {n}, gamma {'= 1' if gamma == 1 else 'balanced, so that it changes with B'}", fontsize=9)
        axes.set(ylabel="objective F", ylim=(0, None))
        _clean(axes)
    for axes in figure.axes[-2:]:
        axes.set_xlabel("budget B / n, bits per worker and coordinate")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=4)
    return figure


def against_rate(rows: Sequence[dict[str, Any]]) -> Figure:
    """Final loss against the learning rate, a panel per budget: rows with B, scheme, rate, above, half."""
    budgets = list(dict.fromkeys(row["B"] for row in rows))
    figure = _figure(1.9 + 3.4 * len(budgets), 3.4)
    for axes, budget in zip(figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0], budgets, strict=True):
        for label in dict.fromkeys(row["scheme"] for row in rows):
            mine = [row for row in rows if (row["B"], row["scheme"]) == (budget, label)]
            rates, losses, halves = ([row[key] for row in mine] for key in ("rate", "above", "half"))
            colour, line, marker = STYLE.get(label.split(",")[0], Style(GREY, "--", "o"))
            axes.errorbar(rates, losses, halves, color=colour, linestyle=line, marker=marker or "o", markersize=4, label=label)
        axes.set(xscale="log", xlabel="learning rate", title=f"B = {budget}")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_ylim(0, None)
        axes.title.set_fontsize(9)
        _clean(axes)
    figure.axes[0].set_ylabel("final loss above plain SGD's least")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right center")
    return figure


def curves(panels: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]] = ()) -> Figure:
    """Loss of every scheme: a row per panel, at one rate for all on the left, at each scheme's own best rate on the right.

    A panel has title, x (its label), log, rate (if one is shared), and lines: scheme, and for shared and tuned x, mean, half;
    log_loss, where the losses in the end are to be told apart.
    Intervals are bars at a few steps, other steps for other schemes. With rows of results, a third part of each row has the
    final loss of every line, by its name; without, one legend has the paper's schemes.
    """
    figure = _figure(12.0 if rows else 9.0, 0.5 + 2.5 * len(panels))
    grid = figure.subplots(len(panels), 2 + bool(rows), squeeze=False, width_ratios=(3, 3, 2) if rows else (1, 1))
    for (left, right, *ends), panel in zip(grid, panels, strict=True):
        right.sharey(left)
        styles = styles_of([line["scheme"] for line in panel["lines"]])
        for axes, kind in ((left, "shared"), (right, "tuned")):
            _lines(axes, panel, kind, styles)
            axes.set_xlabel(panel["x"], fontsize=8, labelpad=1)
        _titles(left, right, panel)
        for axes in ends:
            _final(axes, panel, [row for row in rows if row["panel"] == panel["name"]], styles)
    if not rows:
        _legend(figure)
    return figure


def _final(axes: Axes, panel: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], styles: Mapping[str, Style]) -> None:
    """Final losses with their intervals, by name, at own rates where there are such; means with diverged runs are left out."""
    kind = "tuned" if any(row["rates"] == "tuned" for row in rows) else "shared"
    mine = [row for row in rows if row["rates"] == kind]
    whole = [row for row in mine if not row["diverged"] or row["accuracy"] is None]
    for place, row in ((place, row) for place, row in enumerate(mine) if row in whole):
        colour, dashes, marker = styles[row["scheme"]]
        bar = axes.errorbar(row["loss"], place, xerr=row["loss_half"], color=colour, marker=marker or "o", markersize=4.5)
        bar.lines[2][0].set(linestyle=dashes)
    ends = [row["loss"] + sign * row["loss_half"] for row in whole for sign in (-1, 1)]
    margin = 0.06 * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - margin, max(ends) + margin)
    axes.set_yticks(range(len(mine)), [_ended(row, row in whole) for row in mine])
    axes.yaxis.tick_right()
    axes.set_ylim(len(mine) - 0.5, -0.5)
    axes.set_xlabel("training loss in the end, ± 95 %", fontsize=8, labelpad=1)
    axes.tick_params(labelsize=8 if len(mine) < 12 else 7)
    _clean(axes)
    axes.spines["left"].set_visible(False)


def _ended(row: Mapping[str, Any], shown: bool) -> str:
    """The name of a line, and how many of its runs diverged where its mean is not shown."""
    return str(row["scheme"]) if shown else f"{row['scheme']} ({row['diverged']} of {row['runs']} diverged)"


def styles_of(names: Sequence[str]) -> dict[str, Style]:
    """A style for each line of a panel.

    >>> styles_of(["SGD", "OSGC, B = 150", "OSGC, B = 200"])["OSGC, B = 200"]
    Style(colour='#0072b2', line='--', marker='D')
    """
    found = {name: STYLE[name] for name in names if name in STYLE}
    for name in [name for name in names if name not in STYLE]:
        base = next((STYLE[known] for known in sorted(STYLE, key=len, reverse=True) if name.startswith(known)), Style(GREY))
        used = {(style.line, style.marker) for style in (base, *found.values())}
        line, marker = next((pair for pair in SPARE if pair not in used), SPARE[0])
        found[name] = Style(base.colour, line, marker)
    return found


def _titles(left: Axes, right: Axes, panel: Mapping[str, Any]) -> None:
    """What a row shows; one without a shared rate has a right half only."""
    if "rate" not in panel:
        right.set_title(f"({panel['name']}) {panel['title']}: each at its own best rate", fontsize=9)
        right.tick_params(labelleft=True)
        right.set_ylabel("training loss", fontsize=9)
        return
    left.set_title(f"({panel['name']}) {panel['title']}: one rate for all, {panel['rate']:g}", fontsize=9)
    left.set_ylabel("training loss", fontsize=9)
    if any("tuned" in line for line in panel["lines"]):
        right.set_title("each at its own best rate", fontsize=9)


def _name(handle: Any) -> str:
    return str(handle.get_label())


def _legend(figure: Figure) -> None:
    """The paper's schemes, once."""
    found = {_name(handle): handle for axes in figure.axes for handle in axes.get_legend_handles_labels()[0]}
    shown = [name for name in STYLE if name in found]
    figure.legend(
        [found[name] for name in shown], shown, frameon=False, fontsize=8, loc="outside lower center", ncols=5, handlelength=3
    )


def _lines(axes: Axes, panel: Mapping[str, Any], kind: str, styles: Mapping[str, Style]) -> None:
    lines = [line for line in panel["lines"] if line.get(kind)]
    if not lines:
        axes.set_axis_off()
        return
    top = 1.15 * max(line[kind]["mean"][0] for line in lines if np.isfinite(line[kind]["mean"][0]))
    for number, line in enumerate(lines):
        colour, dashes, marker = styles[line["scheme"]]
        x, mean, half = (np.asarray(line[kind][key], dtype=float) for key in ("x", "mean", "half"))
        every = max(2, len(x) // 4)
        places: dict[str, Any] = {"markevery": (number % 3, 3)}
        places["errorevery"] = (1 + number % (every - 1) if every > 2 else 0, every)
        look: dict[str, Any] = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 3.5, "linewidth": 1.2}
        bars = np.where(np.isfinite(half) & (mean < top), half, 0.0)
        axes.errorbar(x, np.minimum(mean, 2 * top), bars, **look, **places, elinewidth=0.8, label=line["scheme"])
    _loss_scale(axes, panel, top)
    axes.set_xscale("log" if panel["log"] else "linear")
    axes.tick_params(labelsize=8)
    _clean(axes)


def _loss_scale(axes: Axes, panel: Mapping[str, Any], top: float) -> None:
    """Losses from zero, or on a logarithmic axis from a little below the least of both halves of a row."""
    if not panel.get("log_loss"):
        axes.set_ylim(0, top)
        return
    halves = [line[kind] for line in panel["lines"] for kind in ("shared", "tuned") if kind in line]
    axes.set_yscale("log")
    axes.set_ylim(0.85 * min(min(half["mean"]) for half in halves), top)
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10) if axes.get_ylim()[0] <= tick <= top]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def errors(rows: Sequence[dict[str, Any]]) -> Figure:
    """Exact error against the bits that are sent, a panel for each number of coordinates: rows with d, scheme, sent, error."""
    sizes = list(dict.fromkeys(row["d"] for row in rows))
    figure = _figure(9.0, 3.6)
    for axes, size in zip(figure.subplots(1, len(sizes), sharex=True, squeeze=False)[0], sizes, strict=True):
        names = list(dict.fromkeys(row["scheme"] for row in rows))
        styles = styles_of(names)
        for name in names:
            mine = [row for row in rows if (row["d"], row["scheme"]) == (size, name)]
            colour, dashes, marker = styles[name]
            x, y = [row["sent"] for row in mine], [row["error"] for row in mine]
            axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=4, linewidth=1.2, label=name)
        axes.axhline(mine[0]["limit"], color=GREY, linestyle=":", linewidth=1, label="no quantiser")
        axes.set_yscale("log")
        axes.set_xlabel("bits sent per coordinate and step", fontsize=8)
        axes.set_title(f"d = {size:,}", fontsize=9)
        _clean(axes)
    figure.axes[0].set_ylabel("E|estimate - gradient|² / |gradient|²")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=3, handlelength=3)
    return figure
