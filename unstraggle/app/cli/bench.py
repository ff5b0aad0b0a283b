"""unstraggle bench."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ...checks import require_known
from ..bench import BENCHES, Result
from .output import console, print_json, progress_bars, save_json
from .shared import AsJson, Folder, Seed, app, one_of

NAMES = ("list", *BENCHES)


@app.command()
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="'list', or what to measure: all but ray and mpi.", autocompletion=one_of(lambda: NAMES)
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Measure what this machine can do, each speed against a yardstick of the same run. Takes less than a minute.

    A ratio of 1 means: as fast as the yardstick. Other work on the machine disturbs both.

    Example: unstraggle bench quantise local
    """
    if names and "list" in names:
        _list(as_json)
        return
    chosen = names or [name for name, one in BENCHES.items() if one.usual]
    for name in chosen:
        require_known("benchmark", name, BENCHES)
    began = time.perf_counter()
    found: dict[str, list[Result]] = {}
    with progress_bars(as_json) as told:
        for done, name in enumerate(chosen):
            told("measuring", done, len(chosen))
            found[name] = BENCHES[name].run(seed)
    _finish(_about(found, seed, time.perf_counter() - began), found, as_json, out)


def _list(as_json: bool) -> None:
    if as_json:
        print_json({name: one.about for name, one in BENCHES.items()})
        return
    for name, one in BENCHES.items():
        print(f"{name:12}{one.about}" + ("" if one.usual else " (only if named)"))


def _about(found: dict[str, list[Result]], seed: int, took: float) -> dict[str, Any]:
    """The results, with date, hardware and versions."""
    from ..bench.timing import processor
    from ..runs import command_line, environment

    rows = [{"benchmark": name, **one.to_dict()} for name, results in found.items() for one in results]
    where = environment() | {"processor": processor()}
    return {"command": command_line(), "seed": seed, "took": took, "environment": where, "results": rows}


def _finish(about: dict[str, Any], found: dict[str, list[Result]], as_json: bool, out: Path | None) -> None:
    if out:
        save_json(out / "bench.json", about)
    if as_json:
        print_json(about)
        return
    where = about["environment"]
    table = Table(title=f"{where['processor']}, {where['cores']} cores", caption="speed over that of the yardstick")
    table.add_column("what", overflow="fold")
    table.add_column("takes", justify="right", no_wrap=True)
    table.add_column("yardstick", overflow="fold")
    for column in ("takes", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in (one for results in found.values() for one in results):
        table.add_row(one.what, _seconds(one.seconds), one.yardstick, _seconds(one.yardstick_seconds), f"{one.ratio:.2f} x")
    console().print(table)
    if out:
        print(f"Written to {out}: bench.json")


def _seconds(value: float) -> str:
    """With a unit that suits it.

    >>> _seconds(0.00125), _seconds(2e-5), _seconds(3.0)
    ('1.25 ms', '20 µs', '3 s')
    """
    unit, scale = ("s", 1.0) if value >= 1 else ("ms", 1e3) if value >= 1e-3 else ("µs", 1e6)
    return f"{scale * value:.3g} {unit}"
