"""unstraggle report, unstraggle compare: run directories as pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .app import AsJson, app

Runs = Annotated[
    list[Path], typer.Argument(metavar="DIR DIR...", help="Run directories; the first is what the others are held against.")
]


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, as `unstraggle run -o` writes it.")],
    as_json: AsJson = False,
) -> None:
    """Make one self-contained HTML page of a run: DIR/report.html.

    Example: unstraggle report out/run
    """
    from ..report import write_report

    with Console(stderr=True, quiet=as_json).status(f"Reading {directory}"):
        target = write_report(directory)
    print(json.dumps({"report": str(target)}) if as_json else f"Written: {target}")


@app.command()
def compare(
    directories: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for compare.html.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Compare several runs: a table, and one HTML page.

    Example: unstraggle compare out/uncoded out/coded -o out
    """
    from ..report import write_comparison

    with Console(stderr=True, quiet=as_json).status("Reading the runs"):
        target, rows = write_comparison(directories, out)
    if as_json:
        print(json.dumps({"page": str(target), "runs": rows}))
        return
    Console().print(_table(rows))
    print(f"Written: {target}")


def _table(rows: list[dict[str, object]]) -> Table:
    from ..report.compare import HEAD, cells

    left_out = ("steps", "95 % interval", "kB a step")  # for which 80 columns are too few
    shown = [number for number, name in enumerate(HEAD) if name not in left_out]
    table = Table()
    table.add_column(HEAD[0], overflow="fold", min_width=16)
    for number in shown[1:]:
        table.add_column(HEAD[number], justify="right", no_wrap=True)
    for row in rows:
        words = cells(row)
        table.add_row(*(words[number] for number in shown))
    return table
