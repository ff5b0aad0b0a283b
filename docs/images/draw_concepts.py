"""Draws the pictures of docs/concepts.md from the library's own tables.

python docs/images/draw_concepts.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Rectangle

from unstraggle import codes
from unstraggle.app.plots.style import BLUE, COLOURS, GREY, ORANGE, _clean, _figure
from unstraggle.scheme.code import Code

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STRAGGLING, SLOW = np.array([1.0, 1.15, 3.2, 0.9]), np.array([1.0, 1.15, 2.1, 0.9])
"""Seconds that four workers take for a partition in the pictures: worker 2 is the straggler."""

Speeds = np.ndarray[Any, Any]
LIGHT = ("#e69f00", "#56b4e9", "#cc79a7")
PARTS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")


def _box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str, **more: Any) -> None:
    """A rectangle with words in it, around (x + width / 2, y)."""
    axes.add_patch(Rectangle((x, y - height / 2), width, height, facecolor=colour, edgecolor="white", linewidth=1.5, **more))
    axes.text(
        x + width / 2, y, text, ha="center", va="center", fontsize=9, color="black" if colour in LIGHT or more else "white"
    )


def _bare(axes: Axes, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    axes.set(xlim=xlim, ylim=ylim, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def table() -> Figure:
    """Partitions, workers, messages, and the sum that two of four messages already give."""
    code = codes.cyclic_repetition(4, s=1)
    figure = _figure(9.2, 3.5)
    axes = figure.subplots()
    _bare(axes, (0, 11.4), (-0.5, 5.2))
    titles = {0.9: "worker", 2.55: "holds partitions", 5.5: "sends one message", 8.05: "at the master", 10.2: "weight"}
    for x, title in titles.items():
        axes.text(x, 4.85, title, ha="center", fontsize=9, color="#555555")
    got = np.array([True, True, False, True])
    weights = code.decoder.weights(got)[0]
    for worker in range(4):
        _worker_row(axes, code, worker, 4 - worker, bool(got[worker]), float(weights[worker]))
    axes.text(10.2, 0.05, "sum of all partial gradients\n= $m_1 + m_3$", ha="center", va="center", fontsize=10)
    axes.text(0.0, 0.05, "4 partitions, 4 workers, 2 partitions each: any 3 messages are enough.", va="center", fontsize=10)
    return figure


def _worker_row(axes: Axes, code: Code, worker: int, y: float, here: bool, weight: float) -> None:
    parts = _parts(code, worker)
    axes.text(0.9, y, str(worker), ha="center", va="center", fontsize=11)
    for place, part in enumerate(sorted(parts, key=lambda part: (part - worker) % 4)):
        _box(axes, 1.75 + 0.8 * place, y, 0.8, 0.72, str(part), PARTS[part])
    said = " + ".join(f"$g_{part}$" for part in sorted(parts, key=lambda part: (part - worker) % 4))
    axes.text(5.5, y, f"$m_{worker}$ = {said}", ha="center", va="center", fontsize=11)
    axes.annotate("", (7.3, y), (6.6, y), arrowprops={"arrowstyle": "->", "color": "black" if here else GREY})
    axes.text(8.05, y, "arrived" if here else "late", ha="center", va="center", fontsize=10, color=BLUE if here else ORANGE)
    axes.text(10.2, y, f"{weight + 0.0:.0f}" if here else "-", ha="center", va="center", fontsize=11)


def _parts(code: Code, worker: int) -> list[int]:
    """The partitions in the first message of a worker."""
    return [part for part, _ in code.program(worker).messages[0].pairs]


def waiting() -> Figure:
    """One round with a slow worker: waiting for all, and a code."""
    figure = _figure(9.2, 3.9)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _round(upper, codes.uncoded(4), STRAGGLING, "wait for all: one partition each")
    title = "cyclic repetition, s = 1: two partitions each, any 3 of 4 messages"
    _round(lower, codes.cyclic_repetition(4, s=1), STRAGGLING, title)
    lower.set_xlabel("seconds since the start of the round")
    return figure


def _round(axes: Axes, code: Code, speeds: Speeds, title: str) -> None:
    """Bars of tasks until each worker is done or the round ends."""
    end = _end(code, speeds)
    for t in range(len(code.tasks)):
        worker, place = int(code.tasks.worker[t]), int(code.tasks.position[t])
        begin, done = speeds[worker] * place, speeds[worker] * (place + 1)
        _task(axes, begin, min(done, end), 3 - worker, int(code.tasks.part[t]), done <= end + 1e-9)
    axes.axvline(end, color="black", linewidth=1.5)
    axes.text(end + 0.04, 3.25, f"done: {end:.1f} s", fontsize=9, va="center")
    axes.set_yticks(range(4), [f"worker {3 - y}" for y in range(4)], fontsize=9)
    axes.set(xlim=(0, 3.75), ylim=(-0.6, 3.6))
    axes.set_title(title, fontsize=9, loc="left")
    _clean(axes)


def _end(code: Code, speeds: Speeds) -> float:
    return float(code.decoder.rule.time(code.ready() * speeds[code.messages.worker]))  # type: ignore[union-attr]


def _task(axes: Axes, begin: float, end: float, y: float, part: int, whole: bool) -> None:
    if end <= begin:
        return
    look: dict[str, Any] = {} if whole else {"hatch": "////", "alpha": 0.35}
    _box(axes, begin, y, end - begin, 0.66, str(part), PARTS[part], **look)


def messages() -> Figure:
    """One message per worker against several, with the same work."""
    figure = _figure(9.2, 3.9)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, code, title in (
        (upper, codes.cyclic_repetition(4, s=2), "one message: sent when all three partitions are done (s = 2)"),
        (lower, codes.uncoded_mmc(4, load=3), "several messages: each partial gradient is sent when it is done"),
    ):
        _round(axes, code, SLOW, title)
        _arrows(axes, code, SLOW)
    lower.set_xlabel("seconds since the start of the round; a triangle is a message")
    return figure


def _arrows(axes: Axes, code: Code, speeds: Speeds) -> None:
    times, end = code.ready() * speeds[code.messages.worker], _end(code, speeds)
    for time, worker in zip(times, code.messages.worker, strict=True):
        if time <= end + 1e-9:
            axes.plot(time, 3 - worker, marker=">", markersize=9, color="black", markeredgecolor="white", clip_on=False)


def clusters() -> Figure:
    """Two clusters, each with its own half of the data."""
    code = codes.fractional_repetition(6, s=2)
    figure = _figure(9.2, 2.5)
    axes = figure.subplots()
    _bare(axes, (-0.1, 11.2), (-0.1, 3.5))
    for cluster in range(2):
        left = 5.8 * cluster
        axes.add_patch(Rectangle((left, 0), 5.3, 3.0, facecolor="#f4f4f4", edgecolor=GREY, linewidth=1))
        axes.text(left + 2.65, 3.25, f"cluster {cluster}: the first of its workers is enough", ha="center", fontsize=9)
        for place in range(3):
            worker, y = 3 * cluster + place, 2.5 - place
            axes.text(left + 0.25, y, f"worker {worker}", va="center", fontsize=9)
            for number, part in enumerate(sorted(_parts(code, worker))):
                _box(axes, left + 1.5 + 0.75 * number, y, 0.75, 0.7, str(part), PARTS[part])
            axes.text(left + 3.9, y, "sends the sum", va="center", fontsize=9)
    return figure


def blocks() -> Figure:
    """Coordinates with different redundancy: who computes which block of which partial gradient."""
    code = codes.blocks([2, 1, 1], codes.uncoded(4), codes.cyclic_repetition(4, s=1), codes.cyclic_repetition(4, s=2))
    figure = _figure(9.2, 3.1)
    axes = figure.subplots()
    _bare(axes, (-1.7, 9.6), (-0.9, 4.9))
    edges = np.concatenate([[0.0], np.cumsum(code.blocks)]) * 9.4
    for t in range(len(code.tasks)):
        worker, block, part = (int(column[t]) for column in (code.tasks.worker, code.tasks.block, code.tasks.part))
        many = block + 1
        width = (edges[block + 1] - edges[block] - 0.2) / many
        place = (part - worker) % 4
        _box(axes, edges[block] + 0.1 + width * place, 3.5 - worker, width, 0.7, str(part), PARTS[part])
    for worker in range(4):
        axes.text(-0.2, 3.5 - worker, f"worker {worker}", ha="right", va="center", fontsize=9)
    for block, words in enumerate(
        ("half of the coordinates: all 4 messages", "a quarter: any 3 of 4", "a quarter: any 2 of 4")
    ):
        axes.text((edges[block] + edges[block + 1]) / 2, 4.45, words, ha="center", fontsize=9)
        axes.plot([edges[block + 1]] * 2, [-0.1, 4.2], color=GREY, linewidth=0.8)
    axes.annotate("", (9.4, -0.45), (0, -0.45), arrowprops={"arrowstyle": "->", "color": GREY})
    axes.text(4.7, -0.75, "a worker computes and sends from left to right", ha="center", fontsize=9, color="#555555")
    return figure


def approximate() -> Figure:
    """Error of the gradient against messages there: exact codes jump, approximate ones glide. And a quantiser's rounding."""
    figure = _figure(9.2, 3.4)
    left, right = figure.subplots(1, 2)
    _errors(left)
    _rounding(right)
    return figure


def _errors(axes: Axes) -> None:
    n = 12
    cases = (
        ("ignore the slowest", codes.ignore_stragglers(n), COLOURS[6], "--"),
        ("erasurehead, s = 2", codes.erasurehead(n, s=2), COLOURS[0], "-"),
        ("cyclic repetition, s = 2 (exact)", codes.cyclic_repetition(n, s=2), COLOURS[1], "-"),
    )
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(n) for _ in range(400)])
    for name, code, colour, line in cases:
        means = [_mean_error(code, orders, count) for count in range(n + 1)]
        axes.plot(range(n + 1), means, color=colour, linestyle=line, marker="o", markersize=3.5, label=name)
    axes.set(xlabel="workers of 12 that are there", ylabel="relative error of the coefficients", ylim=(-0.03, 1.05))
    axes.legend(frameon=False, fontsize=8)
    _clean(axes)


def _mean_error(code: Code, orders: np.ndarray[Any, Any], count: int) -> float:
    """Mean over orders of arrival; an exact code gives nothing until it is recovered."""
    got = np.zeros((len(orders), code.n), dtype=bool)
    np.put_along_axis(got, orders[:, :count], True, axis=1)
    found = np.asarray(code.decoder.residual(got), dtype=float)
    if code.name.startswith("cyclic"):
        found = np.where(found < 1e-9, 0.0, 1.0)
    return float(found.mean())


def _rounding(axes: Axes) -> None:
    """Seven levels, and a value between two of them that goes up or down at random."""
    _bare(axes, (-1.25, 1.25), (-1.4, 1.9))
    levels = np.arange(-3, 4) / 3
    axes.plot([-1.1, 1.1], [0, 0], color="black", linewidth=1)
    axes.plot(levels, np.zeros(7), "|", color="black", markersize=14)
    for level, name in ((-1, "-norm"), (0, "0"), (1, "norm")):
        axes.text(level, -0.3, name, ha="center", va="top", fontsize=9)
    value = 0.45
    low, high = 1 / 3, 2 / 3
    axes.plot(value, 0, "o", color=BLUE, markersize=8)
    for to, chance, side in ((low, (high - value) * 3, "right"), (high, (value - low) * 3, "left")):
        style = {"arrowstyle": "->", "color": ORANGE, "connectionstyle": f"arc3,rad={0.7 if to < value else -0.7}"}
        axes.annotate("", (to, 0.06), (value, 0.06), arrowprops=style)
        axes.text(to + (-0.03 if to < value else 0.03), 0.42, f"{100 * chance:.0f} %", ha=side, fontsize=9, color=ORANGE)
    axes.text(0, 1.25, "3 bits per coordinate: 3 levels on each side of zero", ha="center", fontsize=9)
    axes.text(0, 1.0, "a value goes to one of its neighbours, right in the mean", ha="center", fontsize=9)
    axes.text(0, -0.75, "one norm for every 512 coordinates travels along", ha="center", fontsize=9, color="#555555")


PICTURES = {
    "concepts-table": table,
    "concepts-waiting": waiting,
    "concepts-messages": messages,
    "concepts-clusters": clusters,
    "concepts-blocks": blocks,
    "concepts-approximate": approximate,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw().savefig(folder / f"{name}.png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
