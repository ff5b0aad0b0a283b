"""Pictures of training: loss against time and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import Invalid
from .style import COLOURS, GREY, _clean, _figure, _short

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

WIDE = 5.0
"""Losses that fall by more than this factor are drawn on a logarithmic axis."""

POINTS = 2000
"""Points of a curve at most."""


def training(runs: Sequence[Any], target: float | None, label: str = "loss on all training data") -> Figure:
    """Loss against wall-clock and against step, one curve per scheme: mean over runs, with the range of the runs behind it."""
    figure = _figure(9.0, 3.8)
    left, right = figure.subplots(1, 2, sharey=True)
    for number, run in enumerate(runs):
        colour, mean = COLOURS[number % len(COLOURS)], run.losses.mean(axis=0)
        low, high = run.losses.min(axis=0), run.losses.max(axis=0)
        steps = getattr(run, "steps_at", np.arange(run.losses.shape[1]))
        for axes, at in ((left, run.seconds.mean(axis=0)), (right, steps)):
            if len(run.losses) > 1:
                axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(at, mean, color=colour, label=_short(run.entry.name, 40), linestyle=("-", "--", "-.", ":")[number % 4])
    low, high = min(run.losses.min() for run in runs), max(run.losses.max() for run in runs)
    scale = "log" if high > WIDE * low > 0 else "linear"
    for axes, unit in ((left, "wall-clock (s)"), (right, "step")):
        axes.set(xlabel=unit, yscale=scale, xlim=(0, None))
        _clean(axes)
    if target is not None:
        left.annotate(
            "target", (1, target), (0, 3), ("axes fraction", "data"), "offset points", color=GREY, fontsize=7, ha="right"
        )
        for axes in (left, right):
            axes.axhline(target, color=GREY, linewidth=0.8)
    left.set_ylabel(label)
    left.legend(loc="upper right", frameon=False, fontsize=8)
    return figure


@dataclass(frozen=True)
class Named:
    """A curve's name."""

    name: str


@dataclass(frozen=True, eq=False)
class Curve:
    """Repetitions of one run: losses and seconds (repeats, points), and which steps the points are."""

    entry: Named
    losses: NDArray[np.float64]
    seconds: NDArray[np.float64]
    steps_at: NDArray[np.int64]


def loss(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Loss against wall-clock and against step, a curve for each run: its records, of which those with "loss" are drawn.

    Records with different "repeat" are repetitions: their mean is drawn, and their range behind it.
    """
    return training([_curve(name, records) for name, records in runs.items()], None, "loss")


def _curve(name: str, records: Sequence[Mapping[str, Any]]) -> Curve:
    repeats: dict[Any, list[tuple[float, float]]] = {}
    passed: dict[Any, float] = {}
    for record in records:
        which = record.get("repeat")
        passed[which] = passed.get(which, 0.0) + record.get("wall", np.nan)
        if record.get("loss") is not None and np.isfinite(passed[which]):
            repeats.setdefault(which, []).append((record["loss"], passed[which]))
    if not repeats:
        raise Invalid(f'A picture of the loss needs records with "loss" and "wall", but {name!r} has none.')
    length = max(map(len, repeats.values()))
    whole = [mine for mine in repeats.values() if len(mine) == length]  # an interrupted repetition is left out
    shown = np.unique(np.linspace(0, length - 1, POINTS).astype(int))
    drawn = np.array([[mine[place] for place in shown] for mine in whole], dtype=float)
    return Curve(Named(name), drawn[:, :, 0], drawn[:, :, 1], shown)
