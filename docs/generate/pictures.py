"""The pictures of the catalogue: the table of a code, and its time or its error beside its rivals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unstraggle.app.plots import BLUE, GREY, ORANGE, code_matrix
from unstraggle.app.plots.style import _clean, _figure
from unstraggle.study.rounds import Rounds

from .numbers import DEADLINES, GOAL, ApproximateFacts, ExactFacts, repetition, waiting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 160
MATRIX, CURVES = (5.0, 4.0), (6.1, 4.0)
"""Inches: all tables in one size, and curves as high as these, since they stand side by side."""


def save(facts: ExactFacts | ApproximateFacts, folder: Path, rivals: dict[str, ApproximateFacts]) -> None:
    """Write NAME-code.png and NAME-time.png."""
    folder.mkdir(parents=True, exist_ok=True)
    matrix = code_matrix(replace(facts.code, name=facts.entry.shown))
    matrix.set_size_inches(*MATRIX)
    matrix.savefig(folder / f"{facts.entry.name}-code.png", dpi=DPI)
    figure = times(facts) if isinstance(facts, ExactFacts) else errors(facts, rivals)
    figure.savefig(folder / f"{facts.entry.name}-time.png", dpi=DPI)


def times(facts: ExactFacts) -> Figure:
    """How often a round has ended by when: this scheme, waiting for all, and plain repetition."""
    figure = _figure(*CURVES)
    axes = figure.subplots()
    name = facts.entry.name
    if name != "uncoded":
        _distribution(axes, waiting(), "wait for all", GREY, "-")
    if name != "fractional_repetition":
        _distribution(axes, repetition(), "repetition, s = 2", ORANGE, "-.")
    if facts.rule is not None:
        _distribution(axes, facts.rule, f"{name}{'' if facts.code.handing else ', by rule'}", BLUE, "-")
    if facts.code.handing is None:  # else both are the word of the round
        _distribution(axes, facts.span, f"{name}, by span", BLUE if facts.rule is None else "black", ":")
    axes.set(
        xlabel="completion time of a round (s)", ylabel="share of rounds that ended by then", xlim=(0, 1.0), ylim=(0, 1.02)
    )
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    _clean(axes)
    return figure


def _distribution(axes: Axes, rounds: Rounds, label: str, colour: str, style: str) -> None:
    values = np.sort(rounds.time.values)
    at = np.unique(np.linspace(0, len(values) - 1, 500).astype(int))
    axes.plot(
        values[at], (at + 1) / len(values), style, color=colour, linewidth=1.8, label=f"{label}: mean {rounds.time.mean:.3f} s"
    )


def errors(facts: ApproximateFacts, rivals: dict[str, ApproximateFacts]) -> Figure:
    """Relative error against the deadline: this scheme, and ignoring stragglers with and without repetition."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    figure = _figure(*CURVES)
    axes = figure.subplots()
    for name, style, colour in (("ignore_stragglers", "--", GREY), ("erasurehead", "-.", ORANGE)):
        if name in rivals and name != facts.entry.name:
            axes.plot(DEADLINES, rivals[name].errors, style, color=colour, linewidth=1.8, label=name)
    axes.plot(DEADLINES, facts.errors, "o-", color=BLUE, markersize=4, label=facts.entry.name)
    axes.axvline(waiting().time.mean, color="black", linewidth=1.0, linestyle=":", label="wait for all: mean time, error 0")
    axes.axhline(GOAL, color="#bbbbbb", linewidth=0.8)
    axes.set(xlabel="deadline of a round (s)", ylabel="relative squared error", xscale="log", yscale="log", ylim=(1e-3, 10))
    axes.set_xticks([0.05, 0.1, 0.2, 0.4, 0.8])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    _clean(axes)
    return figure
