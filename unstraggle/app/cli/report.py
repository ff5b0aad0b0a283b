"""unstraggle report, unstraggle compare: run directories as pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .output import busy, console, print_json
from .shared import AsJson, Folder, app, out_option

Runs = Annotated[
    list[Path], typer.Argument(metavar="DIR", help="Run directories; the first is what the others are held against.")
]


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, as `unstraggle run -o` writes it.")],
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Make one self-contained HTML page of a run: report.html, in its own folder or in another.

    Example: unstraggle report out/run
    """
    from ..report import report as page
    from ..runs import read_run

    with busy(f"reading {directory}", as_json):
        text = page(read_run(directory))
    target = (out or directory) / "report.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"report": str(target)})
        return
    print(f"Written: {target}")


@app.command()
def compare(
    directories: Runs,
    as_json: AsJson = False,
    out: Annotated[Path, out_option("Folder for compare.html.")] = Path("out"),
) -> None:
    """Compare several runs: a table, and one HTML page.

    Example: unstraggle compare out/uncoded out/coded -o out
    """
    from ..report import write_comparison

    with busy("reading the runs", as_json):
        target, rows = write_comparison(directories, out)
    if as_json:
        print_json({"page": str(target), "runs": rows})
        return
    console().print(_table(rows))
    print(f"Written: {target}")


def _table(rows: list[dict[str, object]]) -> Table:
    from ..report.compare import HEAD, cells

    left_out = ("steps", "95 % interval", "wait s", "kB per step")  # for which 80 columns are too few
    shown = [number for number, name in enumerate(HEAD) if name not in left_out]
    table = Table()
    table.add_column(HEAD[0], overflow="fold", min_width=16)
    for number in shown[1:]:
        table.add_column(HEAD[number], justify="right", no_wrap=True)
    for row in rows:
        words = cells(row)
        table.add_row(*(words[number] for number in shown))
    return table
