"""Pictures. One style: colour-blind safe, labelled with units, readable in print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .rounds import Rounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8c8c8c"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def time_and_load(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Bars of completion time and of messages a round; the paper's schemes in blue, the others in orange."""
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
    handles = [left.barh([0], [0], color=colour) for colour in (BLUE, ORANGE)]
    left.legend(handles, ["in the paper's figure", "added here"], loc="lower right", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure


def completion_times(results: Sequence[Rounds]) -> Figure:
    """Distribution of the completion time, one curve a code: how often a round has ended by then."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    for number, rounds in enumerate(results):
        values = np.sort(rounds.time.values[np.isfinite(rounds.time.values)])
        at = np.unique(np.linspace(0, len(values) - 1, 1000).astype(int)) if len(values) else np.empty(0, dtype=int)
        label = rounds.code if len(rounds.code) <= 60 else rounds.code[:57] + "..."
        axes.plot(values[at], (at + 1) / len(rounds), color=COLOURS[number % len(COLOURS)], label=label)
    axes.set(
        xlabel="completion time of a round (s)", ylabel="share of rounds that ended by then", ylim=(0, 1.02), xlim=(0, None)
    )
    axes.legend(loc="lower right", frameon=False, fontsize=7)
    _clean(axes)
    return figure


def _bars(axes: Axes, rows: Sequence[dict[str, Any]], key: str, label: str, text: str) -> None:
    values = [row[key] for row in rows]
    errors = [(row[f"{key}_ci95"][1] - row[f"{key}_ci95"][0]) / 2 for row in rows]
    colours = [BLUE if row["in_paper"] else ORANGE for row in rows]
    axes.barh(range(len(rows)), values, xerr=errors, color=colours, height=0.62, error_kw={"elinewidth": 1})
    for place, value in enumerate(values):
        axes.annotate(text.format(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, 1.16 * max(values))
    axes.set_xlabel(label, fontsize=9)
    axes.tick_params(labelsize=8)
    _clean(axes)


def _figure(width: float, height: float) -> Figure:
    """A figure of its own, which needs no display and no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
