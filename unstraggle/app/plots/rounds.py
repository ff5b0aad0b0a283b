"""Pictures of rounds and of times: simulated or recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...study.rounds import Rounds
from .style import COLOURS, GREY, _clean, _figure, _short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...latency import Fit


def completion_times(results: Sequence[Rounds], of: str = "completion time of a round") -> Figure:
    """Distribution of the completion time, a curve for each code: how often it is over by then. of: what the times are."""
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    for number, rounds in enumerate(results):
        values = np.sort(rounds.time.values[np.isfinite(rounds.time.values)])
        at = np.unique(np.linspace(0, len(values) - 1, 1000).astype(int)) if len(values) else np.empty(0, dtype=int)
        label = _short(rounds.code)
        axes.plot(values[at], (at + 1) / len(rounds), color=COLOURS[number % len(COLOURS)], label=label)
    what = of.rpartition(" ")[2]
    axes.set(xlabel=f"{of} (s)", ylabel=f"share of {what}s that ended by then", ylim=(0, 1.02), xlim=(0, None))
    axes.legend(loc="lower right", frameon=False, fontsize=7)
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
    axes.set_xscale("log" if long else "linear")  # before the limits: the margin below the least time may be negative
    axes.set(xlabel="time of a unit of work (s)", ylabel="share of times up to that", ylim=(0, 1.02))
    axes.set_xlim(low / 1.05 if long else low - 0.05 * (high - low), high if high > low else 1.05 * low)
    axes.legend(loc="lower right", frameon=False, fontsize=7, title="dashed: does not fit", title_fontsize=7)
    _clean(axes)
    return figure
