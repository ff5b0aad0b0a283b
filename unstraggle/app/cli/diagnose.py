"""unstraggle diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from .output import console, print_json, progress_bars, save_json
from .shared import AsJson, Folder, Key, Seed, TracePath, Worth, app
from .traces import read_trace

if TYPE_CHECKING:
    from ...diagnosis import Diagnosis
    from ...trace import Trace


@app.command()
def diagnose(
    trace: TracePath,
    key: Key = None,
    worth: Worth = 0.05,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Say whether stragglers are transient, persistent or caused by the data, what they cost, and what would help.

    Example: unstraggle diagnose out/measure
    """
    from ...diagnosis import diagnose as run

    recorded = read_trace(trace, key)
    with progress_bars(as_json) as told:
        found = run(recorded, rng=seed, progress=told, worth=worth)
    about = {"trace": str(trace), "key": key, "seed": seed, "rounds": len(recorded), **found.to_dict()}
    written = _save(out, about, found, recorded) if out else []
    if as_json:
        print_json(about)
        return
    lines = [found.verdict, *(f"- {reason}" for reason in found.reasons)]
    tables = [table for table in (_options(found), _workers(found)) if table.row_count]
    console().print(*lines, *tables, sep="\n", markup=False)
    if found.answer == "scheme" and found.advice:
        print(f"To try it:\n{found.advice.line}")
    if out:
        print(f"Written to {out}: {', '.join(written)}")


def _options(found: Diagnosis) -> Table:
    from ...diagnosis import percent

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

    save_json(out / "diagnosis.json", about)
    lateness(recorded).savefig(out / "lateness.png", dpi=150)
    if found.advice is None or not found.advice.candidates:
        return ["diagnosis.json", "lateness.png"]
    candidates(found.advice).savefig(out / "schemes.png", dpi=150)
    return ["diagnosis.json", "lateness.png", "schemes.png"]
