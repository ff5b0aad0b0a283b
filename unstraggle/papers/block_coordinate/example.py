"""Figures 1 and 2 of [B]: its example of four workers and four coordinates; block sizes and the redundancies they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...app.plots import BLUE, GREY, _clean, _figure
from ..files import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]

TIMES = (0.1, 0.1, 0.25, 1.0)
"""Of a unit of work, for each worker."""

SCHEMES = {"(b) s = 1": (1, 1, 1, 1), "(c) s = 2": (2, 2, 2, 2), "(d) s = (1, 1, 2, 2)": (1, 1, 2, 2)}
RELATED = ((1, 1, 2, 2, 2, 3), (0, 1, 1, 1, 3, 3))
"""Redundancies of six coordinates, as figure 2 has them."""


def finished(levels: Sequence[int]) -> Any:
    """(workers, coordinates) when each worker has done each coordinate of all its partitions: s + 1 of them.

    >>> finished((1, 1, 2, 2))[2].tolist()
    [0.5, 1.0, 1.75, 2.5]
    """
    return np.outer(TIMES, np.cumsum(np.add(levels, 1)))


def recovered(levels: Sequence[int]) -> Any:
    """(coordinates,) when n - s workers have done a coordinate."""
    ends = np.sort(finished(levels), axis=0)
    return ends[len(TIMES) - 1 - np.asarray(levels), np.arange(len(levels))]


def block_sizes(levels: Sequence[int], n: int = 4) -> list[int]:
    """How many coordinates tolerate 0, 1, ... stragglers (equation 6).

    >>> block_sizes((1, 1, 2, 2, 2, 3))
    [0, 2, 3, 1]
    """
    return [int(count) for count in np.bincount(levels, minlength=n)]


def reproduce_figure1(out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write bcgc-fig1.png, .pdf, .csv and .json: what each worker has done when the round ends, and what of it is used."""
    rows = []
    for name, levels in SCHEMES.items():
        end = float(recovered(levels).max())
        done = finished(levels) <= end + 1e-12
        used = finished(levels) <= recovered(levels) + 1e-12
        rows.append({"scheme": name, "runtime": round(end, 6), "done": int(done.sum()), "used": int(used.sum())})
    about = {"repeat": "unstraggle reproduce bcgc-fig1", "setting": f"N = L = 4, T = {TIMES}, a unit of work: 1/N of the data"}
    save(out, "bcgc-fig1", rows, _rounds(), about)
    return rows


def reproduce_figure2(out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write bcgc-fig2.png, .pdf, .csv and .json: redundancies of coordinates, and the block sizes that say the same."""
    rows = [{"s": " ".join(map(str, levels)), "x": " ".join(map(str, block_sizes(levels)))} for levels in RELATED]
    about = {"repeat": "unstraggle reproduce bcgc-fig2", "setting": "N = 4, L = 6"}
    save(out, "bcgc-fig2", rows, _steps(), about)
    return rows


def _rounds() -> Figure:
    """A part for each scheme: coordinates that a worker has done in time are filled, those that come too late are hollow."""
    figure = _figure(9.0, 2.6)
    for axes, (name, levels) in zip(figure.subplots(1, len(SCHEMES), sharey=True), SCHEMES.items(), strict=True):
        end = recovered(levels).max()
        for worker, ends in enumerate(finished(levels)):
            _worker(axes, worker, ends, recovered(levels), end)
        axes.axvline(end, color="black", linestyle=":", linewidth=1)
        axes.set(title=f"{name}: ends at {end:g}", xlabel="time", xlim=(0, 2.4), yticks=range(len(TIMES)))
        axes.title.set_fontsize(9)
        axes.set_yticklabels([f"worker {worker + 1}" for worker in range(len(TIMES))])
        _clean(axes)
    figure.axes[0].invert_yaxis()
    figure.supxlabel("numbers: coordinates; filled: used; hatched: done, but too late for its coordinate", fontsize=7)
    return figure


def _worker(axes: Axes, worker: int, ends: Any, needed: Any, end: float) -> None:
    starts = np.concatenate([[0.0], ends[:-1]])
    for place, (start, stop) in enumerate(zip(starts, ends, strict=True)):
        if start >= end:
            return
        used, done = stop <= needed[place] + 1e-12, stop <= end + 1e-12
        look: dict[str, Any] = {
            "color": BLUE if used else "white",
            "edgecolor": GREY,
            "hatch": "////" if done and not used else "",
        }
        axes.barh(worker, min(stop, end) - start, 0.6, start, **look)
        if done and stop - start > 0.1:
            box = None if used else {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": "white" if used else "black"}
            axes.text((start + stop) / 2, worker, f"{place + 1}", bbox=box, **style)


def _steps() -> Figure:
    """Redundancy of each coordinate; a block is a step, and its length is its size."""
    figure = _figure(7.0, 2.6)
    for axes, levels in zip(figure.subplots(1, len(RELATED), sharey=True), RELATED, strict=True):
        axes.bar(range(1, len(levels) + 1), np.add(levels, 0.06), 0.9, color=BLUE)
        axes.set(title=f"s = {levels}, x = {tuple(block_sizes(levels))}", xlabel="coordinate", xticks=range(1, len(levels) + 1))
        axes.title.set_fontsize(9)
        axes.set_yticks(range(4))
        _clean(axes)
    figure.axes[0].set_ylabel("stragglers tolerated, s")
    return figure


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Rows for people."""
    return [
        list(rows[0]),
        *([f"{value:g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows),
    ]
