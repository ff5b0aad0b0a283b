"""Pieces of HTML. Everything that comes from a run is escaped here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

__all__ = ["escape", "fill", "numbers", "section", "table", "template"]


def template(name: str) -> str:
    """A file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def fill(title: str, kicker: str, body: Iterable[str], footer: str) -> str:
    """A whole page. body: HTML; the rest: plain text."""
    parts = {"title": escape(title), "kicker": escape(kicker), "footer": escape(footer), "body": "\n".join(body)}
    return Template(template("page.html")).substitute(parts, style=template("style.css"))


def section(name: str, title: str, inside: str, note: str = "") -> str:
    """A heading, a sentence, and HTML below it.

    >>> section("loss", "Loss", "<svg></svg>")
    '<section id="loss"><h2>Loss</h2><svg></svg></section>'
    """
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{said}{inside}</section>'


def figure(svg: str, caption: str = "") -> str:
    said = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{svg}{said}</figure>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of plain text."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def numbers(values: Mapping[str, str]) -> str:
    """Large numbers with a small name above each."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values.items())
    return f'<dl class="numbers">{rows}</dl>'
