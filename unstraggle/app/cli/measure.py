"""unstraggle measure: record when workers compute and send, while they train without a code."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ...checks import require_known
from ...errors import Invalid
from .ending import Explained
from .measure_rounds import PROBLEMS, TASKS, Step, rounds_of
from .output import console, print_json, progress_bars, save_json
from .shared import AsJson, Seed, app, one_of, options_of, out_option
from .workers import fresh

if TYPE_CHECKING:
    from ...trace import Trace

ENGINES = ("local", "ray", "mpi")
LINES = 12
"""Workers in the table at most."""
SHORT = 1e-3
"""Seconds below which tasks are over before the operating system has let them run: their times are its, not the machine's."""
WARM_UP = 1
"""Rounds at the start that pay for what is loaded and compiled, and are not kept."""


@app.command()
def measure(
    context: typer.Context,
    task: Annotated[
        str,
        typer.Option(
            help=f"What to train: {', '.join((*PROBLEMS, *TASKS))}; the last two need torch.",
            autocompletion=one_of(lambda: (*PROBLEMS, *TASKS)),
        ),
    ] = "logistic",
    engine: Annotated[
        str, typer.Option(help=f"Where the workers are: {', '.join(ENGINES)}.", autocompletion=one_of(lambda: ENGINES))
    ] = "local",
    workers: Annotated[int, typer.Option("-n", "--workers", help="Number of workers.")] = 4,
    rounds: Annotated[int, typer.Option(help="Rounds to record, each a step of training.")] = 100,
    dim: Annotated[int, typer.Option(help="Coordinates of the gradient, for tasks on random data.")] = 100,
    samples: Annotated[int, typer.Option(help="Samples, for tasks on random data.")] = 4000,
    task_ms: Annotated[
        float, typer.Option(help="Milliseconds that a task on random data should take: its gradient is computed repeatedly.")
    ] = 20.0,
    latency: Annotated[str | None, typer.Option(help="Make workers this slow, for a rehearsal.")] = None,
    uneven: Annotated[
        bool, typer.Option("--uneven", help="Cut shares into a quarter and the rest, which tells the fixed cost of a task.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Annotated[Path, out_option("Folder for the trace; an older one there is replaced.")] = Path("out/measure"),
) -> None:
    """Record when each worker computes and sends, while training that waits for all: a trace for diagnose, fit and plan auto.

    On a cluster use --engine ray on one of its machines, or --engine mpi under mpiexec. Ctrl+C keeps what was recorded.

    Example: unstraggle measure --workers 8 --rounds 200 -o out/measure
    """
    require_known("task", task, (*PROBLEMS, *TASKS))
    require_known("engine", engine, ENGINES)
    if workers < 2 or rounds < 1:
        raise Invalid(f"measure compares workers: it needs --workers >= 2 and --rounds >= 1, but got {workers} and {rounds}.")
    if not 0 <= task_ms < float("inf"):
        raise Invalid(f"--task-ms is a number of milliseconds >= 0, but got {task_ms}.")
    going = rounds_of(task, engine, workers, dim, samples, task_ms / 1e3, latency, seed, out / "trace.jsonl", uneven)
    _record(out, going, f"{task}, {workers} workers", rounds, as_json)
    _finish(out, options_of(context), as_json)


def _record(out: Path, going: AbstractContextManager[Step], label: str, rounds: int, quiet: bool) -> None:
    """Take all steps, or as many as there are until it is interrupted. An older trace goes once workers are ready."""
    ready = False
    try:
        with going as step, progress_bars(quiet) as told:
            fresh(out / "trace.jsonl")
            ready = True
            for done in range(rounds + WARM_UP):
                step()
                told(label, done, rounds)
    except (KeyboardInterrupt, SystemExit) as end:
        kept = len(_trim(out)) if ready and (out / "trace.jsonl").exists() else 0
        then = f" Next: unstraggle diagnose {out}" if kept else ""
        print(f"unstraggle: interrupted; {kept} rounds are recorded.{then}", file=sys.stderr)
        raise Explained(end.code if isinstance(end, SystemExit) else 130) from end


def _trim(out: Path) -> Trace:
    """The trace without its first round."""
    from ...trace import read, write

    recorded = read(out / "trace.jsonl")
    if len(recorded) > WARM_UP:
        recorded = recorded[WARM_UP:]
        write(out / "trace.jsonl", recorded)
    return recorded


def _finish(out: Path, options: dict[str, Any], as_json: bool) -> None:
    from ...latency import fixed_cost
    from ..runs import command_line, write_config

    recorded = _trim(out)
    about = {"scheme": "none", "trace": str(out / "trace.jsonl"), "next": f"unstraggle diagnose {out}", **summary(recorded)}
    write_config(out, command_line(), options)
    save_json(out / "summary.json", about)
    if as_json:
        print_json(about)
        return
    console().print(_table(about))
    if about["task_seconds"] < SHORT:
        print(
            f"A task takes {1e3 * about['task_seconds']:.2g} ms. So short a time is that of the operating system more than "
            "that of the machine: measure tasks of 10 ms or more (--task-ms, --samples)."
        )
    low, high = about["idle_share_ci95"]
    interval = f"({100 * low:.1f} to {100 * high:.1f} %)"
    print(f"Idle, waiting for the slowest: {100 * about['idle_share']:.1f} % of the workers' time {interval}.")
    if options.get("uneven"):
        print(fixed_cost(recorded))
    print(f"Trace: {about['trace']}\nNext:  {about['next']}")


def summary(trace: Trace) -> dict[str, Any]:
    """What the rounds show of each worker, the one that was slowest most often first. Numbers are those of `diagnose`.

    Times are of computing, or of arrival where the links make the difference.
    """
    import numpy as np

    from ...diagnosis import diagnose
    from ...latency import fixed_cost

    found = diagnose(trace, schemes=False)
    median = np.median(trace.seconds if found.where == "compute" else trace.finish, axis=0)
    rows = [
        {"worker": row.worker, "median": float(median[row.worker]), "factor": row.factor, "slowest": row.slowest}
        for row in found.table
    ]
    rows.sort(key=lambda row: (-row["slowest"], -row["median"]))
    ended = trace.durations[np.isfinite(trace.durations)]
    usual = float(np.median(ended)) if len(ended) else float("inf")
    about: dict[str, Any] = {"rounds": len(trace), "workers": trace.n, "where": found.where}
    about |= {"task_seconds": usual, "fixed_cost": fixed_cost(trace).to_dict()}
    return about | {"idle_share": found.idle_share, "idle_share_ci95": found.idle_share_ci95, "table": rows}


def _table(about: dict[str, Any]) -> Table:
    rows = about["table"]
    more = f"the {LINES} that were slowest most often, of {len(rows)}" if len(rows) > LINES else None
    table = Table(title=f"{about['rounds']} rounds of {about['workers']} workers", caption=more)
    for column in ("worker", "median ms", "time / median", "slowest"):
        table.add_column(column, justify="right")
    for row in rows[:LINES]:
        cells = f"{1e3 * row['median']:.4g}", f"{row['factor']:.2f}", f"{100 * row['slowest']:.0f} %"
        table.add_row(str(row["worker"]), *cells)
    return table
