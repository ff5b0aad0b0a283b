"""unstraggle diagnose."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from .app import AsJson, Folder, Seed, app, progress_bars

if TYPE_CHECKING:
    from ..diagnosis import Diagnosis
    from ..trace import Trace


@app.command()
def diagnose(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Recorded rounds: .jsonl, .parquet, .npz, or a run's folder.")],
    key: Annotated[str | None, typer.Option(help="Array of an .npz file.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Say whether stragglers are transient, persistent or caused by the data, what they cost, and what would help.

    Example: unstraggle diagnose trace.jsonl -o out
    """
    from ..diagnosis import diagnose as run
    from ..trace import read

    with progress_bars(as_json) as told, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        recorded = read(trace / "trace.jsonl" if trace.is_dir() else trace, key=key)
        found = run(recorded, rng=seed, progress=told)
    for warning in said:  # such as a last line that is incomplete
        print(f"unstraggle: {warning.message}", file=sys.stderr)
    about = {"trace": str(trace), "key": key, "seed": seed, "rounds": len(recorded), **found.to_dict()}
    written = _save(out, about, found, recorded) if out else []
    if as_json:
        print(json.dumps(about))
        return
    console = Console(highlight=False)
    for line in (found.verdict, *(f"- {reason}" for reason in found.reasons)):
        console.print(line)
    for table in (_options(found), _workers(found)):
        if table.row_count:
            console.print(table)
    if out:
        print(f"Written to {out}: {', '.join(written)}")


def _options(found: Diagnosis) -> Table:
    from ..diagnosis import percent

    table = Table(title="What would help, on rounds that nothing was chosen on")
    table.add_column("what", overflow="fold")
    for column in ("saved", "95 % interval"):
        table.add_column(column, justify="right", no_wrap=True)
    for what, saved, interval in found.options():
        table.add_row(what, f"{100 * saved:.1f} %", percent(interval))
    return table


def _workers(found: Diagnosis) -> Table:
    """The culprits, or those that were not heard of: a few rows."""
    table = Table(title="Workers to look at")
    for column in ("worker", "time / median", "slowest", "finished nothing"):
        table.add_column(column, justify="right")
    rows = [row for row in found.table if row.worker in found.workers or row.unfinished > 0]
    for row in sorted(rows, key=lambda row: (-row.unfinished, -row.factor))[:12]:
        cells = (f"{row.factor:.2f}", f"{100 * row.slowest:.0f} %", f"{100 * row.unfinished:.0f} %")
        table.add_row(str(row.worker), *(cell.replace("nan %", "-").replace("nan", "-") for cell in cells))
    return table


def _save(out: Path, about: dict[str, Any], found: Diagnosis, recorded: Trace) -> list[str]:
    from ..plots import candidates, lateness

    out.mkdir(parents=True, exist_ok=True)
    (out / "diagnosis.json").write_text(json.dumps(about, indent=1) + "\n")
    lateness(recorded).savefig(out / "lateness.png", dpi=150)
    if found.advice is None:
        return ["diagnosis.json", "lateness.png"]
    candidates(found.advice).savefig(out / "schemes.png", dpi=150)
    return ["diagnosis.json", "lateness.png", "schemes.png"]
