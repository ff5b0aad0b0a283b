"""Draws the states of a round, for docs/house.md, from the table by which rounds go.

python docs/images/draw_states.py [FOLDER]
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from unstraggle.app.plots.style import BLUE, GREY, ORANGE, _figure
from unstraggle.runtime.states import OVER, TRANSITIONS, Signal, State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLACES = {
    State.WAITING: (1.3, 3.6),
    State.OPEN: (5.9, 3.6),
    State.SETTLING: (10.5, 3.6),
    State.DONE: (5.9, 6.6),
    State.SKIPPED: (3.6, 1.45),
    State.APPROXIMATED: (8.2, 1.45),
    State.FAILED: (5.9, 0.3),
}
FETCHES = {
    State.WAITING: (1.3, -1.2),
    State.OPEN: (1.3, -2.9),
    State.SETTLING: (1.3, -4.6),
    State.FETCHING: (5.9, -2.9),
    State.DONE: (10.5, -1.2),
    State.APPROXIMATED: (10.5, -2.3),
    State.SKIPPED: (10.5, -3.5),
    State.FAILED: (10.5, -4.6),
}
"""Below: where messages are fetched, an end comes after their payloads."""
WIDTH, HEIGHT = 1.66, 0.62


class Way(NamedTuple):
    """How an arrow goes: from and to where, seen from the middles of its states, in which style, and where its words stand."""

    begin: tuple[float, float]
    end: tuple[float, float]
    style: str
    words: tuple[float, float]
    width: int = 22


RIGHT, LEFT, UP, DOWN = (WIDTH / 2, 0.0), (-WIDTH / 2, 0.0), (0.0, HEIGHT / 2), (0.0, -HEIGHT / 2)
STRAIGHT, BENT = "arc3,rad=0", "angle,angleA=90,angleB=0,rad=8"
LOOP = ((0.2, HEIGHT / 2), (0.62, HEIGHT / 2), "arc3,rad=-2.4")

WAYS = {
    (State.OPEN, State.DONE): Way(UP, DOWN, STRAIGHT, (5.9, 5.55)),
    (State.WAITING, State.DONE): Way(UP, LEFT, BENT, (3.2, 6.6)),
    (State.SETTLING, State.DONE): Way(UP, RIGHT, BENT, (8.6, 6.6)),
    (State.OPEN, State.WAITING): Way((-WIDTH / 2, 0.17), (WIDTH / 2, 0.17), STRAIGHT, (3.6, 4.13), 26),
    (State.WAITING, State.OPEN): Way((WIDTH / 2, -0.17), (-WIDTH / 2, -0.17), STRAIGHT, (3.3, 3.0), 23),
    (State.OPEN, State.SETTLING): Way(RIGHT, LEFT, STRAIGHT, (8.2, 3.85)),
    (State.OPEN, State.APPROXIMATED): Way((0.4, -HEIGHT / 2), (-0.5, HEIGHT / 2), STRAIGHT, (7.0, 2.5), 30),
    (State.SETTLING, State.APPROXIMATED): Way((-0.3, -HEIGHT / 2), (0.5, HEIGHT / 2), STRAIGHT, (9.45, 2.5), 30),
    (State.OPEN, State.SKIPPED): Way((-0.4, -HEIGHT / 2), (0.6, HEIGHT / 2), STRAIGHT, (4.75, 2.42), 14),
    (State.OPEN, State.FAILED): Way(DOWN, UP, STRAIGHT, (5.9, 1.2), 12),
    (State.WAITING, State.FAILED): Way(DOWN, LEFT, BENT, (3.2, 0.3), 30),
    (State.SETTLING, State.FAILED): Way(DOWN, RIGHT, BENT, (8.6, 0.3), 30),
    (State.OPEN, State.OPEN): Way(*LOOP, (7.8, 4.62), 23),
    (State.WAITING, State.WAITING): Way(*LOOP, (2.55, 4.98), 27),
    (State.WAITING, State.FETCHING): Way(RIGHT, (-0.5, HEIGHT / 2), STRAIGHT, (3.5, -1.85), 26),
    (State.OPEN, State.FETCHING): Way((WIDTH / 2, 0.17), (-WIDTH / 2, 0.17), STRAIGHT, (3.6, -2.52), 26),
    (State.FETCHING, State.OPEN): Way((-WIDTH / 2, -0.17), (WIDTH / 2, -0.17), STRAIGHT, (3.6, -3.35), 26),
    (State.SETTLING, State.FETCHING): Way(RIGHT, (-0.5, -HEIGHT / 2), STRAIGHT, (3.5, -3.95), 26),
    (State.FETCHING, State.FETCHING): Way(*LOOP, (5.9, -1.75), 27),
    (State.FETCHING, State.DONE): Way((0.75, HEIGHT / 2), LEFT, STRAIGHT, (8.55, -1.55), 26),
    (State.FETCHING, State.APPROXIMATED): Way((WIDTH / 2, 0.12), LEFT, STRAIGHT, (8.3, -2.42), 22),
    (State.FETCHING, State.SKIPPED): Way((WIDTH / 2, -0.12), LEFT, STRAIGHT, (8.3, -3.32), 22),
    (State.FETCHING, State.FAILED): Way((0.5, -HEIGHT / 2), LEFT, STRAIGHT, (8.2, -4.3), 30),
}


def arrows() -> dict[tuple[State, State], list[Signal]]:
    """The transitions between each two states."""
    found: dict[tuple[State, State], list[Signal]] = {}
    for (state, signal), then in TRANSITIONS.items():
        found.setdefault((state, then), []).append(signal)
    return found


def states() -> Figure:
    """States as boxes, transitions as arrows with what moves the round on."""
    figure = _figure(9.2, 9.8)
    axes = figure.subplots()
    axes.set(xlim=(0.2, 11.6), ylim=(-5.1, 7.1), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    for ends, signals in arrows().items():
        _arrow(axes, *ends, signals)
    for state, (x, y) in (*PLACES.items(), *FETCHES.items()):
        colour = BLUE if state is State.DONE else ORANGE if state is State.FAILED else GREY if state in OVER else "white"
        _box(axes, x, y, state.value, colour, "white" if state in OVER else "black")
    return figure


def _box(axes: Axes, x: float, y: float, text: str, colour: str, ink: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    look = "round,pad=0,rounding_size=0.14"
    box = FancyBboxPatch((x - WIDTH / 2, y - HEIGHT / 2), WIDTH, HEIGHT, look, facecolor=colour, edgecolor="black", zorder=2)
    axes.add_patch(box)
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=ink, zorder=3)


def _arrow(axes: Axes, state: State, then: State, signals: list[Signal]) -> None:
    places = FETCHES if State.FETCHING in (state, then) else PLACES
    way, (x, y), (u, v) = WAYS[state, then], places[state], places[then]
    begin, end = (x + way.begin[0], y + way.begin[1]), (u + way.end[0], v + way.end[1])
    look = {"arrowstyle": "-|>", "color": "#555555", "connectionstyle": way.style, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=look)
    words = ",\nor ".join(textwrap.fill(signal.value, way.width) for signal in signals)
    back = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(*way.words, words, ha="center", va="center", fontsize=8.5, bbox=back, gid=f"{state.name} {then.name}")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    states().savefig(folder / "round-states.png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
