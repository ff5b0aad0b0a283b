"""unstraggle reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...checks import require_known
from ...errors import Invalid
from .output import console, print_json, progress_bars
from .shared import AsJson, Seed, app, one_of, out_option

QUICK_ROUNDS = 2000


def _figures() -> list[str]:
    from ...papers import FIGURES

    return ["list", *FIGURES]


@app.command()
def reproduce(
    figure: Annotated[
        str, typer.Argument(help="'list', or a figure's name such as mmc-fig1.", autocompletion=one_of(_figures))
    ] = "list",
    rounds: Annotated[
        int, typer.Option(help="Rounds for each simulated bar or point; figures that are computed exactly need none.")
    ] = 100_000,
    quick: Annotated[bool, typer.Option("--quick", help="A look within a minute: fewer rounds, runs or workers.")] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="As many training runs as the results in papers/ have: cagc-fig2 and cagc-fig3, a quarter of an hour.",
        ),
    ] = False,
    coco: Annotated[
        Path | None,
        typer.Option(
            help="Folder with COCO as it is published (annotations, train2017, val2017), for cagc-fig4.", metavar="DIR"
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Annotated[Path, out_option("Folder for picture, CSV and JSON.")] = Path("out"),
) -> None:
    """Regenerate a figure of a paper, with the rivals that it left out.

    Example: unstraggle reproduce mmc-fig1 -o out
    """
    from ...papers import FIGURES

    if figure == "list":
        _list({name: entry.title for name, entry in FIGURES.items()}, as_json)
        return
    require_known("figure", figure, FIGURES)
    if quick and full:
        raise Invalid("reproduce needs --quick or --full, but got both. Leave one out.")
    rounds = min(rounds, QUICK_ROUNDS) if quick else rounds
    options: dict[str, Any] = {"quick": True} if quick and FIGURES[figure].has_quick else {}
    options |= {"full": True} if full and FIGURES[figure].has_full else {}
    options |= {"coco": _coco(figure, coco)} if coco else {}
    with progress_bars(as_json) as told:
        rows = FIGURES[figure].write(out, rounds, seed, told, **options)
    if as_json:
        print_json(rows)
        return
    console().print(_table(FIGURES[figure].table(rows), FIGURES[figure].title))
    print(f"Written to {out}: {figure}.png, .pdf, .csv, .json")


def _coco(figure: str, folder: Path) -> Path:
    """A folder that has what is read of it, for a figure that reads it."""
    from ...papers import FIGURES

    if not FIGURES[figure].has_coco:
        takes = ", ".join(name for name, entry in FIGURES.items() if entry.has_coco)
        raise Invalid(f"{figure} trains on no pictures of COCO. Leave --coco out, or ask for {takes}.")
    wanted = [folder / "annotations" / f"instances_{kind}.json" for kind in ("train2017", "val2017")]
    missing = [str(path) for path in (*wanted, folder / "train2017", folder / "val2017") if not path.exists()]
    if missing:
        raise Invalid(
            f"--coco {folder} needs annotations, train2017 and val2017 as they are published, but has no {missing[0]}."
        )
    return folder


def _list(titles: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(titles)
        return
    for name, title in titles.items():
        print(f"{name:14} {title}")


def _table(cells: list[list[str]], title: str) -> Table:
    """The first row is the header, the first column the names."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(cells[0]):
        table.add_column(column, justify="right" if number else "left", no_wrap=bool(number), overflow="fold")
    for row in cells[1:]:
        table.add_row(*row)
    return table
