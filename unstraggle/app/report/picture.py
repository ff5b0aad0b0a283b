"""Figures as inline SVG whose lines and words follow the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEME = {"#000000": "currentColor", "#dddddd": "var(--grid)", "#ffffff": "var(--page)", "#0072b2": "var(--blue)"}
"""What the colours of the pictures' style become on a page; those that suit light and dark stay."""

IDS = re.compile(r'(\bid="|href="#|url\(#)')


def inline(figure: Figure, about: str, numbers: count[int]) -> str:
    """An SVG element. about: what it shows, for those who cannot see it. numbers: so that pictures of a page differ in ids."""
    import matplotlib as mpl

    _let_the_page_through(figure)
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "unstraggle"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    for colour, variable in THEME.items():
        text = text.replace(colour, variable)
    text = re.sub(r"font-family:[^;\"]*|(font: [^;\"]*px) [^;\"]*", lambda m: f"{m[1]} sans-serif" if m[1] else "", text)
    text = IDS.sub(rf"\g<1>p{next(numbers)}-", text)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{about}" ', text, count=1)


def _let_the_page_through(figure: Figure) -> None:
    figure.patch.set_visible(False)
    for axes in figure.axes:
        if axes.get_facecolor() == (1.0, 1.0, 1.0, 1.0):
            axes.patch.set_visible(False)
