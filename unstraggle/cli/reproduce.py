"""unstraggle reproduce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ..errors import Invalid
from .app import AsJson, Seed, app, progress_bars

QUICK_ROUNDS = 2000


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="'list', or a figure's name such as mmc-fig1.")] = "list",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for picture, CSV and JSON.")] = Path("out"),
    rounds: Annotated[
        int, typer.Option(help="Rounds for each simulated bar or point; figures that are computed exactly need none.")
    ] = 100_000,
    quick: Annotated[bool, typer.Option("--quick", help="A look within a minute: fewer rounds, runs or workers.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Regenerate a figure of a paper, with the rivals that it left out.

    Example: unstraggle reproduce mmc-fig1 -o out
    """
    from ..papers import FIGURES

    if figure == "list":
        listing = {name: entry.title for name, entry in FIGURES.items()}
        print(json.dumps(listing) if as_json else "\n".join(f"{name:12} {title}" for name, title in listing.items()))
        return
    if figure not in FIGURES:
        raise Invalid(f"Unknown figure {figure!r}. Known: {', '.join(FIGURES)}.")
    rounds = min(rounds, QUICK_ROUNDS) if quick else rounds
    options = {"quick": True} if quick and FIGURES[figure].has_quick else {}
    with progress_bars(as_json) as told:
        rows = FIGURES[figure].write(out, rounds, seed, told, **options)
    if as_json:
        print(json.dumps(rows))
        return
    Console().print(_table(FIGURES[figure].table(rows), FIGURES[figure].title))
    print(f"Written to {out}: {figure}.png, .pdf, .csv, .json")


def _table(cells: list[list[str]], title: str) -> Table:
    """The first row is the header, the first column the names."""
    table = Table(title=title)
    for number, column in enumerate(cells[0]):
        table.add_column(column, justify="right" if number else "left", no_wrap=bool(number))
    for row in cells[1:]:
        table.add_row(*row)
    return table
