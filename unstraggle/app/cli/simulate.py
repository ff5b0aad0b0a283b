"""unstraggle simulate."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from .output import console, print_json, progress_bars, save_json
from .shared import PAPER_LATENCY, AsJson, Folder, Seed, app

CodeTexts = Annotated[
    list[str], typer.Argument(metavar="CODE", help="Codes, such as 'cyclic_repetition(40, s=9)', or files of Code.save.")
]


@app.command()
def simulate(
    codes: CodeTexts,
    latency: Annotated[str, typer.Option(help="Latency model.")] = PAPER_LATENCY,
    rounds: Annotated[int, typer.Option(help="Rounds to simulate (at most, if --precision is given).")] = 100_000,
    by: Annotated[
        str | None, typer.Option(help="Recovered by 'rule' (the paper's threshold, where there is one) or 'span'.")
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="End every round after so many seconds; approximate codes need one.")
    ] = None,
    sending: Annotated[str, typer.Option(help="Count 'all' messages, or let recovered clusters stop: 'cluster_stop'.")] = "all",
    precision: Annotated[
        float | None, typer.Option(help="Stop once the mean time is known to this fraction, e.g. 0.01.")
    ] = None,
    carry: Annotated[
        bool, typer.Option("--carry", help="Let workers finish the task that they are in when a round ends, as real ones do.")
    ] = False,
    transfer: Annotated[
        str, typer.Option(help="'push': workers send every message; 'pull': the master fetches what it will use.")
    ] = "push",
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Simulate rounds of one or several codes under a latency model, all on the same draws.

    Example: unstraggle simulate "cyclic_repetition(40, s=9)" "uncoded(40)"
    """
    from ...scheme.stop import Deadline
    from ...study.expression import find_code, parse_latency
    from ...study.simulation import simulate as run

    stop = None if deadline is None else Deadline(deadline)
    model = parse_latency(latency)
    parsed = [find_code(text) for text in codes]
    results = []
    with progress_bars(as_json) as told:
        for code in parsed:
            options: dict[str, Any] = {
                "by": by,
                "sending": sending,
                "precision": precision,
                "progress": partial(told, code.name),
                "carry": carry,
                "transfer": transfer,
            }
            results.append(run(code, model, stop, rounds=rounds, rng=seed, **options))
    given = {"by": by, "deadline": deadline, "sending": sending, "carry": carry, "transfer": transfer}
    about = {"latency": str(model), "seed": seed, **given, "results": [r.to_dict() for r in results]}
    if out:
        _save_simulation(out, about, results)
    if as_json:
        print_json(about)
        return
    console().print(_simulation_table(results, str(model)))
    if out:
        print(f"Written to {out}: summary.json, rounds.npz, times.png")


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


def _save_simulation(out: Path, about: dict[str, Any], results: list[Any]) -> None:
    from ..plots import completion_times

    save_json(out / "summary.json", about)
    arrays = {f"{kind}_{i}": getattr(r, kind).values for i, r in enumerate(results) for kind in ("time", "messages", "exact")}
    np.savez_compressed(out / "rounds.npz", **arrays)
    completion_times(results).savefig(out / "times.png", dpi=150)
