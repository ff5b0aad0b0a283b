"""Pictures that stand beside those of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import BLUE, COLOURS, ORANGE, _clean, _figure, _plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OFF_SCALE = 2.2
RUNTIME_STYLES = (
    ("o", "-"),
    ("s", "--"),
    ("^", "-."),
    ("v", ":"),
    ("D", "-"),
    ("P", "--"),
    ("X", "-."),
    ("*", ":"),
    ("<", "-"),
    (">", "--"),
)
"""A marker and a line for each of ten methods, so that they can be told apart without colours."""


BARS = ((BLUE, ""), (ORANGE, "//"))
"""Colour and hatch of bars: of the paper, and added here."""


def time_and_load(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Bars of completion time and of messages per round; the paper's schemes in blue, the others in orange."""
    figure = _figure(9.0, 0.8 + 0.36 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True)
    _bars(left, rows, "time", "mean completion time of a round (s)", "{:.3f}")
    _bars(right, rows, "load", "messages sent in a round, mean", "{:.1f}")
    stop = [row["load_cluster_stop"] for row in rows]
    right.scatter(
        stop, range(len(rows)), marker="|", s=110, color="black", zorder=3, label="if recovered clusters stop sending"
    )
    right.legend(loc="lower right", frameon=False, fontsize=8)
    left.set_yticks(range(len(rows)), [row["scheme"] for row in rows])
    left.invert_yaxis()
    handles = [left.barh([0], [0], color=colour, hatch=hatch, edgecolor="white") for colour, hatch in BARS]
    left.legend(handles, ["in the paper's figure", "added here"], loc="lower right", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def runtimes(rows: Sequence[dict[str, Any]], key: str, label: str, in_paper: Sequence[str]) -> Figure:
    """Expected runtime of every method against one parameter, each with a marker of its own; * marks what the paper lacks.

    Methods that agree lie on each other: earlier ones are drawn wide, with hollow markers, and show around the later ones.
    """
    figure = _figure(7.6, 4.4)
    axes = figure.subplots()
    names = [name for name in rows[0] if name != key]
    x = [row[key] for row in rows]
    for number, name in enumerate(names):
        marker, dashes = RUNTIME_STYLES[number % len(RUNTIME_STYLES)]
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "marker": marker, "linestyle": dashes}
        if "bound" in name:
            look["color"] = "#777777"
        if any(_same(rows, name, other) for other in names[number + 1 :]):
            look |= {"linewidth": 4.5, "markersize": 11, "markerfacecolor": "none", "alpha": 0.55}
        axes.plot(x, [row[name] for row in rows], **({"linewidth": 1.4, "markersize": 5} | look), label=_marked(name, in_paper))
    axes.set(xlabel=label, ylabel="expected runtime (1e7)", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=3)
    figure.supxlabel("* not in the paper", fontsize=7, x=0.99, ha="right")
    _clean(axes)
    return figure


def _marked(name: str, in_paper: Sequence[str]) -> str:
    return name if name in in_paper else f"{name}*"


def _same(rows: Sequence[dict[str, Any]], name: str, other: str) -> bool:
    """Whether two curves cannot be told apart over more than half of the picture."""
    return bool(2 * sum(abs(row[name] - row[other]) <= 0.01 * abs(row[name]) for row in rows) > len(rows))


def time_against_load(rows: Sequence[dict[str, Any]], limit: float, title: str) -> Figure:
    """Time against messages per round: a line for each `front`, named points for rows without, and the limit that none passes.

    Points that take more than OFF_SCALE times as long as the fronts stand at the upper edge, with their time.
    """
    figure = _figure(7.6, 4.6)
    axes = figure.subplots()
    names = list(dict.fromkeys(row["front"] for row in rows if row["front"]))
    for name, colour, style in zip(names, COLOURS[2:], ("o-", "s--", "^:"), strict=False):
        line = [row for row in rows if row["front"] == name]
        x, y = [row["load"] for row in line], [row["time"] for row in line]
        axes.plot(x, y, style, color=colour, markersize=3.5, linewidth=1.1, label=name)
    others = [row for row in rows if not row["front"]]
    top = OFF_SCALE * max(row["time"] for row in rows if row["front"])
    axes.set(xscale="log", yscale="log", xlabel="messages sent in a round, mean", ylabel="mean completion time of a round (s)")
    loads = [row["load"] for row in rows]
    axes.set(xlim=(0.75 * min(loads), 1.3 * max(loads)), ylim=(0.85 * limit, top))
    for row in others:
        _named_point(axes, row, top, left=any(_crowds(row, other) for other in others))
    axes.axhline(limit, color="black", linestyle=":", linewidth=1)
    text = "until here, fewer whole partial gradients are done than there are partitions: no such code is faster"
    axes.annotate(text, (0.01, limit), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=7)
    _plain_ticks(axes)
    for colour, marker, label in ((BLUE, "D", "in the paper's figure"), (ORANGE, "P", "added here")):
        axes.scatter([], [], s=30, marker=marker, color=colour, label=label)
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    axes.set_title(title, fontsize=10)
    _clean(axes)
    return figure


def _named_point(axes: Axes, row: dict[str, Any], top: float, left: bool) -> None:
    high = row["time"] >= top
    at, marker = (row["load"], 0.96 * top if high else row["time"]), "^" if high else "D" if row["in_paper"] else "P"
    axes.scatter(*at, s=30, marker=marker, color=BLUE if row["in_paper"] else ORANGE, zorder=3)
    place, side = ((-6, -3), "right") if left else ((7, -3), "left") if high else ((6, 4), "left")
    name = f"{row['scheme']}: {row['time']:.2f}" if high else row["scheme"]
    axes.annotate(name, at, place, textcoords="offset points", ha=side, fontsize=8)


def _crowds(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the name of a point, written to its right, would run into another point."""
    return row is not other and 1 <= other["load"] / row["load"] < 1.6 and abs(np.log(other["time"] / row["time"])) < 0.1


def _bars(axes: Axes, rows: Sequence[dict[str, Any]], key: str, label: str, text: str) -> None:
    values = [row[key] for row in rows]
    errors = [(row[f"{key}_ci95"][1] - row[f"{key}_ci95"][0]) / 2 for row in rows]
    colours, hatches = zip(*(BARS[0] if row["in_paper"] else BARS[1] for row in rows), strict=True)
    look: dict[str, Any] = {"color": colours, "hatch": hatches, "edgecolor": "white", "linewidth": 0}
    axes.barh(range(len(rows)), values, xerr=errors, height=0.62, error_kw={"elinewidth": 1}, **look)
    for place, value in enumerate(values):
        axes.annotate(text.format(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, 1.16 * max(values))
    axes.set_xlabel(label, fontsize=9)
    axes.tick_params(labelsize=8)
    _clean(axes)
