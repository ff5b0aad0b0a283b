"""Pictures of plans: what a scheme would take, save or send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import BLUE, COLOURS, GREY, ORANGE, _clean, _figure, _short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...plan import Front, Plan


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
    """Expected time against messages per round of the plans on a front, and the limit that none passes."""
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


def block_sizes(rows: Sequence[dict[str, Any]]) -> Figure:
    """Coordinates at each redundancy, one line a method: rows with keys method and s=0, s=1, ..."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    for number, row in enumerate(rows):
        sizes = [value for key, value in row.items() if key.startswith("s=")]
        look: dict[str, Any] = {"color": COLOURS[number], "markersize": 4, "label": f"{row['method']}: {row['runtime']:.3g}"}
        axes.plot(range(len(sizes)), sizes, ("o-", "s--", "^:")[number % 3], **look)
    axes.set(xlabel="stragglers tolerated by a block", ylabel="coordinates in the block", yscale="log")
    axes.set_xticks(range(0, len(sizes), max(1, len(sizes) // 10)))
    axes.legend(frameon=False, fontsize=8, title="expected runtime", title_fontsize=8)
    _clean(axes)
    return figure


def allocation(p: Any, found: Any) -> Figure:
    """Bits of each worker's message against its straggle probability (n,), for what `plan.bits` found."""
    figure = _figure(6.4, 3.6)
    axes = figure.subplots()
    axes.scatter(p, found.bits, s=18, color=[ORANGE if number else GREY for number in found.bits.tolist()])
    axes.set(xlabel="probability that the worker is late", ylabel="bits per coordinate", ylim=(0, None))
    axes.set_title(f"{found.budget} bits, {found.method}: objective {found.objective:.4g}", fontsize=9)
    _clean(axes)
    return figure
