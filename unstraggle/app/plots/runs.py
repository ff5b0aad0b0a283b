"""Pictures of recorded rounds: who was late, what one round looked like, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import Invalid
from .style import COLOURS, GREY, _clean, _figure, _short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...trace import Trace

WIDEST = 600
"""Columns of a heatmap at most; beyond, a column shows the latest of several rounds."""

PARTS = dict(zip(("compute", "transfer", "slack", "decode", "outside"), (*COLOURS[:2], COLOURS[4], *COLOURS[2:4]), strict=True))


def lateness(trace: Trace) -> Figure:
    """Worker x round: when a worker's last message of a round came, over the median worker's; grey where none came."""
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Patch

    shown = _columns(_relative(trace))
    high = max(float(np.quantile(shown[np.isfinite(shown)], 0.995)), 1.1) if np.isfinite(shown).any() else 2.0
    figure = _figure(8.6, float(np.clip(1.5 + 0.16 * trace.n, 2.0, 8.0)))
    axes = figure.subplots()
    axes.set_facecolor("#bdbdbd")
    extent = (float(trace.numbers[0]) - 0.5, float(trace.numbers[-1]) + 0.5, trace.n - 0.5, -0.5)
    picture = np.ma.masked_invalid(np.maximum(shown, 1.0)).T
    image = axes.imshow(picture, cmap="viridis", norm=LogNorm(1, high), aspect="auto", extent=extent, interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, label="time over the median", pad=0.02)
    ticks = np.unique(np.round(np.geomspace(1, high, 5), 1 if high < 10 else 0))
    bar.set_ticks(list(ticks), labels=[f"{tick:g}x" for tick in ticks])
    bar.minorticks_off()
    axes.set(xlabel="round", ylabel="worker")
    _whole_numbers(axes, trace.n)
    if np.isinf(shown).any():
        patch = Patch(color="#bdbdbd", label="not heard of when the round ended")
        axes.legend(handles=[patch], loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


def schemes(steps: Sequence[Mapping[str, Any]], clock: str = "wall") -> Figure:
    """Time of every step, by the code that it ran with: the records of a run that changes its code as it goes."""
    figure = _figure(8.6, 3.0)
    axes = figure.subplots()
    seconds = np.array([np.nan if step.get(clock) is None else float(step[clock]) for step in steps])
    codes = np.array([str(step["code"]) for step in steps])
    for number, code in enumerate(dict.fromkeys(codes.tolist())):
        at = np.flatnonzero(codes == code)
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(at, seconds[at], ".", color=colour, markersize=4, label=_short(code, 44))
    for change in np.flatnonzero(codes[1:] != codes[:-1]) + 1:
        axes.axvline(change - 0.5, color=GREY, linewidth=0.8)
    axes.set(xlabel="step", ylabel="wall-clock (s)" if clock == "wall" else "wait (s)", ylim=(0, None))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8, ncols=2)
    _clean(axes)
    return figure


def timeline(trace: Trace, round: int = 0) -> Figure:
    """One round, a bar per worker: computing, sending, and those that were late. round: its place in the trace."""
    if not -len(trace) <= round < len(trace):
        raise Invalid(f"timeline needs a round between 0 and {len(trace) - 1}, as the trace has, but got {round}.")
    start, end, last = trace.start[round], trace.end[round], trace.finish[round]
    over = float(last[np.isfinite(last)].max(initial=0.0))
    figure = _figure(8.0, float(np.clip(1.3 + 0.26 * trace.n, 2.0, 9.0)))
    axes = figure.subplots()
    for worker in range(trace.n):
        for task in np.flatnonzero(np.isfinite(end[worker])):
            length = end[worker, task] - start[worker, task]
            axes.barh(worker, length, left=start[worker, task], color=COLOURS[0], height=0.6, edgecolor="white", linewidth=0.5)
        done = float(end[worker][np.isfinite(end[worker])].max(initial=0.0))
        if np.isfinite(last[worker]):
            axes.barh(worker, last[worker] - done, left=done, color=COLOURS[1], height=0.6)
        else:
            axes.barh(worker, over - done, left=done, color="none", edgecolor=GREY, hatch="////", height=0.6, linewidth=0.8)
    axes.axvline(over, color=COLOURS[2], linewidth=1.5)
    _key(axes)
    axes.set(xlabel=f"seconds since round {trace.numbers[round]} began", ylabel="worker", xlim=(0, 1.02 * over or 1))
    axes.set_ylim(trace.n - 0.4, -0.6)
    _whole_numbers(axes, trace.n)
    _clean(axes)
    return figure


def time_split(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Where the wall-clock time of the mean step of each run went, of records with a `split`, whose parts add up to it.

    The hatched bar below is how long the mean worker was idle meanwhile, where that is recorded.
    """
    figure = _figure(8.0, 1.3 + 0.55 * len(runs))
    axes = figure.subplots()
    for place, records in enumerate(runs.values()):
        left = 0.0
        for part, colour in PARTS.items():
            seconds = float(np.mean([record["split"][part] for record in records]))
            axes.barh(place - 0.12, seconds, left=left, color=colour, height=0.46, label=part if not place else None)
            left += seconds
        idle = float(np.mean([record.get("idle", np.nan) for record in records]))
        if np.isfinite(idle):
            bar: dict[str, Any] = {"color": "none", "edgecolor": GREY, "hatch": "////", "linewidth": 0.8, "height": 0.2}
            axes.barh(place + 0.25, idle, left=left - idle, label="mean worker idle" if not place else None, **bar)
    axes.set_yticks(range(len(runs)), [_short(name, 44) for name in runs], fontsize=8)
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.set_xlabel("wall-clock seconds of the mean step")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=6, frameon=False, fontsize=8, columnspacing=1.2)
    _clean(axes)
    return figure


def _relative(trace: Trace) -> NDArray[np.float64]:
    """(rounds, n) over the median of those that were heard of."""
    times = trace.finish
    heard = np.where(np.isfinite(times), times, np.nan)
    heard[np.isnan(heard).all(axis=1)] = 1.0  # nobody was: there is nothing to compare
    return np.asarray(times / np.maximum(np.nanmedian(heard, axis=1, keepdims=True), 1e-300))


def _columns(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(values) <= WIDEST:
        return values
    starts = np.linspace(0, len(values), WIDEST, endpoint=False).astype(int)
    return np.asarray(np.maximum.reduceat(values, starts, axis=0))


def _whole_numbers(axes: Any, n: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_yticks(range(0, n, max(1, -(-n // 16))))
    axes.yaxis.set_tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=axes.get_xlabel() == "round"))


def _key(axes: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    late = Patch(facecolor="none", edgecolor=GREY, hatch="////", label="late: not waited for")
    handles = [Patch(color=COLOURS[0], label="computing"), Patch(color=COLOURS[1], label="sending"), late]
    handles.append(Line2D([], [], color=COLOURS[2], label="round ends"))  # type: ignore[arg-type]
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False, fontsize=8)
