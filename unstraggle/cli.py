"""The command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from .errors import Invalid, UnstraggleError

PAPER_LATENCY = "ShiftedExponential(rate=10, shift=0.01)"

app = typer.Typer(
    help="Gradient coding: synchronous training that does not wait for its slowest worker.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

CodeText = Annotated[str, typer.Argument(metavar="CODE", help="A code, such as 'cyclic_repetition(40, s=9)'.")]
CodeTexts = Annotated[list[str], typer.Argument(metavar="CODE...", help="Codes, such as 'cyclic_repetition(40, s=9)'.")]
Seed = Annotated[int, typer.Option(help="Seed of the random draws; equal seeds give equal results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Folder = Annotated[Path | None, typer.Option("-o", "--out", help="Folder for results and pictures.")]


@app.command()
def simulate(
    codes: CodeTexts,
    latency: Annotated[str, typer.Option(help="Latency model.")] = PAPER_LATENCY,
    rounds: Annotated[int, typer.Option(help="Rounds to simulate (at most, if --precision is given).")] = 100_000,
    by: Annotated[str, typer.Option(help="Recovered by 'rule' (the paper's threshold) or 'span' (linear algebra).")] = "rule",
    load: Annotated[str, typer.Option(help="Count 'all' messages, or let recovered clusters stop: 'cluster_stop'.")] = "all",
    precision: Annotated[
        float | None, typer.Option(help="Stop once the mean time is known to this fraction, e.g. 0.01.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Simulate rounds of one or several codes under a latency model, all on the same draws.

    Example: unstraggle simulate "cluster(correlated_mmc(10, load=10, order=6), times=4)" --rounds 100000
    """
    from .expression import parse_code, parse_latency
    from .simulate import simulate as run

    model = parse_latency(latency)
    parsed = [parse_code(text) for text in codes]
    results = []
    with _progress(as_json) as told:
        for code in parsed:
            options: dict[str, Any] = {"by": by, "load": load, "precision": precision, "progress": partial(told, code.name)}
            results.append(run(code, model, rounds=rounds, rng=seed, **options))
    about = {"latency": str(model), "seed": seed, "by": by, "load": load, "results": [r.to_dict() for r in results]}
    if out:
        _save_simulation(out, about, results)
    if as_json:
        print(json.dumps(about))
        return
    Console().print(_simulation_table(results, str(model)))
    if out:
        print(f"Written to {out}: summary.json, rounds.npz, times.png")


@app.command()
def check(code: CodeText, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Check that a code keeps its promises: rule against linear algebra, decoding, simulation against replay.

    Example: unstraggle check "reed_solomon(8, s=3)"
    """
    from dataclasses import asdict

    from .expression import parse_code
    from .testing import check_code

    parsed = parse_code(code)
    report = check_code(parsed, rng=seed)
    print(json.dumps(asdict(report)) if as_json else report)


@app.command()
def reproduce(
    figure: Annotated[str, typer.Argument(help="'list', or a figure's name such as mmc-fig1.")] = "list",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for picture, CSV and JSON.")] = Path("out"),
    rounds: Annotated[int, typer.Option(help="Rounds for each bar.")] = 100_000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Regenerate a figure of a paper, with the rivals that it left out.

    Example: unstraggle reproduce mmc-fig1 -o out
    """
    from .papers import FIGURES

    if figure == "list":
        listing = {name: entry.title for name, entry in FIGURES.items()}
        print(json.dumps(listing) if as_json else "\n".join(f"{name:12} {title}" for name, title in listing.items()))
        return
    if figure not in FIGURES:
        raise Invalid(f"Unknown figure {figure!r}. Known: {', '.join(FIGURES)}.")
    with _progress(as_json) as told:
        rows = FIGURES[figure].write(out, rounds, seed, told)
    if as_json:
        print(json.dumps(rows))
        return
    Console().print(_figure_table(rows, FIGURES[figure].title))
    print(f"Written to {out}: {figure}.png, .pdf, .csv, .json")


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a check failed, 2 bad input."""
    from .testing import BrokenCode

    try:
        app()
    except BrokenCode as error:
        sys.exit(_complain(error, 1))
    except UnstraggleError as error:
        sys.exit(_complain(error, 2))
    except OSError as error:
        sys.exit(_complain(error, 2))


def _complain(error: Exception, code: int) -> int:
    print(f"unstraggle: {error}", file=sys.stderr)
    return code


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on the error stream, one a label; gives the function that moves them."""
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bars:

        def move(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label[:40], total=total)
            bars.update(tasks[label], completed=done, total=total)

        yield move


def _simulation_table(results: list[Any], latency: str) -> Table:
    table = Table(title=latency)
    table.add_column("code", overflow="fold")
    for column in ("time", "± 95 %", "p99", "messages", "exact"):
        table.add_column(column, justify="right", no_wrap=True)
    for rounds in results:
        half = (rounds.time.ci95[1] - rounds.time.ci95[0]) / 2
        cells = (f"{rounds.time.mean:.4g}", f"{half:.1g}", f"{rounds.time.quantile(0.99):.4g}")
        table.add_row(rounds.code, *cells, f"{rounds.messages.mean:.2f}", f"{100 * rounds.exact.mean:.4g} %")
    return table


def _figure_table(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    table.add_column("scheme")
    for column in ("time", "± 95 %", "exact", "load", "cluster stop"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        half = (row["time_ci95"][1] - row["time_ci95"][0]) / 2
        exact = "" if row["time_exact"] is None else f"{row['time_exact']:.4f}"
        table.add_row(
            row["scheme"], f"{row['time']:.4f}", f"{half:.4f}", exact, f"{row['load']:.2f}", f"{row['load_cluster_stop']:.2f}"
        )
    return table


def _save_simulation(out: Path, about: dict[str, Any], results: list[Any]) -> None:
    from .plots import completion_times

    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").write_text(json.dumps(about, indent=1) + "\n")
    arrays = {f"{kind}_{i}": getattr(r, kind).values for i, r in enumerate(results) for kind in ("time", "messages", "exact")}
    np.savez_compressed(out / "rounds.npz", **arrays)
    completion_times(results).savefig(out / "times.png", dpi=150)


if __name__ == "__main__":
    main()
