"""Pictures of a code's table, and of what its messages may be quantised to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .style import BLUE, GREY, ORANGE, _clean, _figure, _short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...plan.compression import Compression
    from ...scheme.code import Code


def code_matrix(code: Code) -> Figure:
    """The encoding matrix: a row per message, a column per partition; lines part the workers. Of complex ones the size."""
    from matplotlib.colors import LinearSegmentedColormap

    coef = code.messages.coef.toarray()
    values = np.abs(coef) if np.iscomplexobj(coef) else coef
    most = float(np.abs(values).max()) or 1.0
    rows, columns = values.shape
    figure = _figure(float(np.clip(2.2 + 0.2 * columns, 3.6, 9.0)), float(np.clip(1.4 + 0.2 * rows, 2.4, 10.0)))
    axes = figure.subplots()
    scale = LinearSegmentedColormap.from_list("signed", [ORANGE, "white", BLUE])
    image = axes.imshow(values, cmap=scale, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=axes, label="coefficient", pad=0.03)
    workers = np.asarray(code.messages.worker)
    if rows > code.n:
        for edge in np.flatnonzero(np.diff(workers)):
            axes.axhline(edge + 0.5, color=GREY, linewidth=0.8)
    first = np.flatnonzero(np.diff(workers, prepend=-1))
    some = first[:: max(1, -(-len(first) // 24))]
    axes.set_yticks(some, [str(worker) for worker in workers[some]], fontsize=7)
    axes.set(xlabel="partition", ylabel="worker, a row per message")
    axes.set_xticks(range(0, columns, max(1, -(-columns // 16))))
    axes.set_title(_short(code.name, 56), fontsize=8, wrap=True)
    return figure


def bits(found: Compression) -> Figure:
    """Error against bits per coordinate, and the link below which they pay: the chosen bits in orange."""
    choices = [choice for choice in found.choices if choice.bits < 32]
    figure = _figure(8.6, 3.6)
    left, right = figure.subplots(1, 2)
    colours = [ORANGE if choice.bits == found.bits else BLUE for choice in choices]
    places = range(len(choices))
    left.plot(places, [choice.omega for choice in choices], color=GREY, linewidth=1, zorder=1)
    left.scatter(places, [choice.omega for choice in choices], color=colours, zorder=2)
    left.set(yscale="log", ylabel="relative variance of a message, omega")
    links = np.array([choice.break_even for choice in choices])
    top = 10 * max(float(links[np.isfinite(links)].max(initial=0.0)), found.bandwidth)
    right.bar(places, np.where(np.isfinite(links), links, top), color=colours, width=0.62)
    right.axhline(found.bandwidth, color="black", linestyle="--", linewidth=1, label="this link")
    low = min(float(links[links > 0].min(initial=found.bandwidth)), found.bandwidth)
    right.set(yscale="log", ylim=(low / 10, top), ylabel="pays on links below (bytes/s)")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.set_xticks(places, [str(choice.bits) for choice in choices])
        axes.set_xlabel("bits per coordinate")
        _clean(axes)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    figure.suptitle(_short(found.verdict, 100), fontsize=9)
    return figure
