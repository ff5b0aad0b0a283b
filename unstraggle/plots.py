"""Pictures. One style: colour-blind safe, labelled with units, readable in print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .rounds import Rounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .latency import Fit
    from .plan import Front, Plan

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8c8c8c"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
OFF_SCALE = 2.2


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
        label = _short(rounds.code)
        axes.plot(values[at], (at + 1) / len(rounds), color=COLOURS[number % len(COLOURS)], label=label)
    axes.set(
        xlabel="completion time of a round (s)", ylabel="share of rounds that ended by then", ylim=(0, 1.02), xlim=(0, None)
    )
    axes.legend(loc="lower right", frameon=False, fontsize=7)
    _clean(axes)
    return figure


def block_sizes(rows: Sequence[dict[str, Any]]) -> Figure:
    """Coordinates at each redundancy, one line a method: rows with keys method and s=0, s=1, ..."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    for number, row in enumerate(rows):
        sizes = [value for key, value in row.items() if key.startswith("s=")]
        axes.plot(
            range(len(sizes)), sizes, "o-", markersize=4, color=COLOURS[number], label=f"{row['method']}: {row['runtime']:.3g}"
        )
    axes.set(xlabel="stragglers tolerated by a block", ylabel="coordinates in the block", yscale="log")
    axes.set_xticks(range(0, len(sizes), max(1, len(sizes) // 10)))
    axes.legend(frameon=False, fontsize=8, title="expected runtime", title_fontsize=8)
    _clean(axes)
    return figure


def runtimes(rows: Sequence[dict[str, Any]], key: str, label: str, in_paper: Sequence[str]) -> Figure:
    """Expected runtime of every method against one parameter; what the paper does not show is dashed."""
    figure = _figure(7.6, 4.4)
    axes = figure.subplots()
    names = [name for name in rows[0] if name != key]
    for number, name in enumerate(names):
        style = "o-" if name in in_paper else "s--"
        colour = "#777777" if "bound" in name else COLOURS[number % len(COLOURS)]
        style = ":" if "bound" in name else style
        width = 2.2 if name == "certified bound" else 1.4
        axes.plot(
            [row[key] for row in rows],
            [row[name] for row in rows],
            style,
            color=colour,
            markersize=4,
            linewidth=width,
            label=name,
        )
    axes.set(xlabel=label, ylabel="expected runtime (1e7)", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _clean(axes)
    return figure


def fitted_distributions(fit: Fit) -> Figure:
    """Measured times and the families fitted to them: the best five, and always the shifted exponential of the literature."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    times = fit.times
    at = np.unique(np.linspace(0, len(times) - 1, 1000).astype(int))
    axes.plot(times[at], (at + 1) / len(times), color=GREY, linewidth=4, alpha=0.6, label=f"measured, {len(times)} times")
    low, high = times[0], times[int(0.999 * (len(times) - 1))]
    long = high > 20 * low
    grid = np.geomspace(low, high, 500) if long else np.linspace(low, high, 500)
    shown = [one for place, one in enumerate(fit.ranking) if place < 5 or one.name == "ShiftedExponential"]
    for number, one in enumerate(shown):
        label = f"{one.name}, KS distance {one.ks:.3f}"
        axes.plot(grid, one.model.cdf(grid), "-" if one.passes else "--", linewidth=1.3, color=COLOURS[number], label=label)
    axes.set(xlabel="time of a unit of work (s)", ylabel="share of times up to that", ylim=(0, 1.02), xlim=(None, high))
    axes.set_xscale("log" if long else "linear")
    axes.legend(loc="lower right", frameon=False, fontsize=7, title="dashed: does not fit", title_fontsize=7)
    _clean(axes)
    return figure


def redundancy_curve(plan: Plan) -> Figure:
    """Expected time against the stragglers tolerated: a `redundancy` plan, with its optimum and waiting for all."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    rows = [row for row in plan.params["table"] if row["time"] is not None]
    for number, scheme in enumerate(("cyclic_repetition", "fractional_repetition")):
        mine = [row for row in rows if row["scheme"] in (scheme, "uncoded")]
        times = np.array([row["time"] for row in mine])
        errors = np.abs(np.array([row["ci95"] for row in mine]).reshape(-1, 2).T - times)
        label, colour = scheme.replace("_", " "), COLOURS[number]
        axes.errorbar([row["s"] for row in mine], times, errors, fmt="o-", markersize=3, color=colour, label=label)
    for row in rows:
        if row["scheme"] == "uncoded":
            axes.axhline(row["time"], color=GREY, linestyle="--", linewidth=1, label="wait for all")
    axes.plot(plan.params["s"], plan.cost, "*", markersize=13, color="black", label=f"best: {plan.name}", zorder=4)
    axes.set(xlabel="stragglers tolerated, s", ylabel="expected time of a round (s)", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    _clean(axes)
    return figure


def front(found: Front) -> Figure:
    """Expected time against messages a round of the plans on a front, and the limit that none passes."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    axes.plot([plan.messages or np.nan for plan in found], [plan.cost for plan in found], color=GREY, linewidth=1, zorder=1)
    for number, by in enumerate(("rule", "span")):
        mine = [plan for plan in found if plan.params.get("by") == by]
        times, halves = [plan.cost for plan in mine], [(plan.ci95[1] - plan.ci95[0]) / 2 for plan in mine]
        x = [plan.messages or np.nan for plan in mine]
        axes.errorbar(x, times, halves, fmt="o", markersize=4, color=COLOURS[number], label=f"recovered by {by}")
    if found[0].bound is not None:
        axes.axhline(
            found[0].bound, color="black", linestyle=":", linewidth=1, label="fewer partial gradients are done than partitions"
        )
    axes.set(xlabel="messages sent in a round, mean", ylabel="expected time of a round (s)", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    _clean(axes)
    return figure


def time_against_load(rows: Sequence[dict[str, Any]], limit: float, title: str) -> Figure:
    """Time against messages a round: a line for each `front`, named points for rows without, and the limit that none passes.

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
    for colour, label in ((BLUE, "in the paper's figure"), (ORANGE, "added here")):
        axes.scatter([], [], s=30, marker="D", color=colour, label=label)
    axes.legend(loc="upper right", frameon=False, fontsize=8)
    axes.set_title(title, fontsize=10)
    _clean(axes)
    return figure


def candidates(advice: Any) -> Figure:
    """Time that each scheme saves against waiting for all, with its 95 % interval; schemes that are not exact in grey."""
    shown = [c for c in advice.candidates if c.saving > -1][:16]
    figure = _figure(8.6, 1.2 + 0.32 * len(shown))
    axes = figure.subplots()
    for place, c in enumerate(shown):
        low, high = c.saving_ci95
        axes.barh(place, 100 * c.saving, color=(BLUE if c is advice.chosen else ORANGE) if c.exact else GREY, height=0.62)
        axes.plot([100 * low, 100 * high], [place, place], color="black", linewidth=1)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(shown)), [_short(c.name if c.exact else f"{c.name} (not exact)") for c in shown], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("time saved against waiting for all (%)")
    figure.suptitle(_short(advice.verdict, 110), fontsize=9)
    _clean(axes)
    return figure


def _named_point(axes: Axes, row: dict[str, Any], top: float, left: bool) -> None:
    high = row["time"] >= top
    at, marker = (row["load"], 0.96 * top if high else row["time"]), "^" if high else "D"
    axes.scatter(*at, s=30, marker=marker, color=BLUE if row["in_paper"] else ORANGE, zorder=3)
    place, side = ((-6, -3), "right") if left else ((7, -3), "left") if high else ((6, 4), "left")
    name = f"{row['scheme']}: {row['time']:.2f}" if high else row["scheme"]
    axes.annotate(name, at, place, textcoords="offset points", ha=side, fontsize=8)


def _crowds(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the name of a point, written to its right, would run into another point."""
    return row is not other and 1 <= other["load"] / row["load"] < 1.6 and abs(np.log(other["time"] / row["time"])) < 0.1


def _plain_ticks(axes: Axes) -> None:
    """Numbers on logarithmic axes as people write them."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 4, 6)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


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
