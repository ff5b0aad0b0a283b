"""unstraggle run: rounds of a code on real workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ...errors import Invalid
from ..steps import Keep
from .ending import Explained
from .output import console, print_json
from .run_rounds import descend, save, summary, table
from .shared import AsJson, Folder, Seed, app, one_of, options_of
from .workers import ENGINES, PROBLEMS, fresh, make_engine, make_problem, read_faults

LOSSY = 10.0
"""Patience, in usual times of a round, where messages are made to vanish: nobody else would ask for them again."""


@app.command()
def run(
    context: typer.Context,
    code: Annotated[str, typer.Argument(metavar="CODE", help="A code, such as 'cyclic_repetition(8, s=2)'.")],
    problem: Annotated[
        str, typer.Option(help="'logistic' or 'least_squares', on random data.", autocompletion=one_of(lambda: PROBLEMS))
    ] = "logistic",
    engine: Annotated[
        str, typer.Option(help=f"Where the workers are: {', '.join(ENGINES)}.", autocompletion=one_of(lambda: ENGINES))
    ] = "local",
    workers: Annotated[
        int | None, typer.Option("-n", "--workers", help="Checked against the code's number of workers.")
    ] = None,
    latency: Annotated[str | None, typer.Option(help="Latency model: workers wait as long as it says.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds, each a step of gradient descent.")] = 20,
    dim: Annotated[int, typer.Option(help="Coordinates of the gradient.")] = 100,
    samples: Annotated[int, typer.Option(help="Samples of the data set.")] = 4000,
    on_shortfall: Annotated[str, typer.Option(help="If too few messages come: wait, approximate, skip or raise.")] = "wait",
    patience: Annotated[
        float | None, typer.Option(help="Shortfall after so many times the usual time of a round; 10 with --chaos drop=.")
    ] = None,
    transfer: Annotated[
        str, typer.Option(help="'push': workers send every message; 'pull': the master fetches what it will use.")
    ] = "push",
    deadline: Annotated[float | None, typer.Option(help="End every round after so many seconds.")] = None,
    chaos: Annotated[str | None, typer.Option(help="Faults, such as 'drop=0.01,corrupt=0.01,kill=0.05'.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Serve a page that shows the run as it goes.")] = False,
    live_port: Annotated[int | None, typer.Option(help="Port of that page, which is for this machine only; 0: any.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Run rounds of a code on real workers, and compare their time with the theory of the same draws.

    Example: unstraggle run "cyclic_repetition(8, s=2)" --rounds 50 -o out/run
    """
    from ...study.expression import find_code

    parsed = find_code(code)
    if workers is not None and workers != parsed.n:
        raise Invalid(f"{parsed.name} has {parsed.n} workers, but --workers is {workers}. Leave it out.")
    if rounds < 1:
        raise Invalid(f"--rounds must be at least 1, but got {rounds}.")
    faults = read_faults(chaos)
    patience = LOSSY if patience is None and faults.get("drop") else patience
    data = make_problem(problem, parsed, dim, samples, seed)
    machine = make_engine(engine, data, latency, faults, seed)
    told = {"engine": engine, "problem": problem, "latency": latency, "seed": seed, "chaos": chaos, "patience": patience}
    told |= {"transfer": transfer} if transfer != "push" else {}
    options = options_of(context, without=("out", "as_json", "live", "live_port"))
    records: list[Mapping[str, Any]] = []
    trace = out / "trace.jsonl" if out else None
    try:
        with (
            _page(live, live_port, parsed.name) as page,
            _master(parsed, machine, deadline, trace, on_shortfall, patience, transfer) as master,
            _files(out, options) as keep,  # now that workers are ready: older ones outlive a run that cannot start
        ):
            for record in descend(master, data, rounds, as_json, page):
                records.append(record)
                keep(record)
    except (KeyboardInterrupt, SystemExit) as end:
        _keep_what_there_is(out, parsed, records, told)
        raise Explained(end.code if isinstance(end, SystemExit) else 130) from end
    about = summary(parsed, records, told)
    if out:
        save(out, about)
    if as_json:
        print_json(about)
        return
    console().print(table(about))
    if out:
        files = "config.json, summary.json, steps.jsonl, trace.jsonl, chrome.json (open it in Perfetto)"
        print(f"Written to {out}: {files}. For a page of it: unstraggle report {out}")


@contextmanager
def _files(out: Path | None, options: dict[str, Any]) -> Iterator[Keep]:
    """The files of a run, of which an older run's are replaced; gives what takes the record of each step."""
    from ..runs import command_line, write_config
    from ..steps import writing

    if out:
        fresh(out / "trace.jsonl")
        write_config(out, command_line(), options)
    with writing(out / "steps.jsonl" if out else None) as keep:
        yield keep


def _keep_what_there_is(out: Path | None, code: Any, records: list[Mapping[str, Any]], told: dict[str, Any]) -> None:
    """The summary of a run that was interrupted, and a line that says so."""
    if out and records:
        save(out, summary(code, records, told | {"interrupted": True}))
    kept = f" after {len(records)} rounds" + (f", which are in {out}" if out and records else "")
    print(f"unstraggle: interrupted{kept}.", file=sys.stderr)


@contextmanager
def _page(live: bool, port: int | None, title: str) -> Iterator[Any]:
    """The live page, if it is wanted; its address goes to the error stream, so that --json stays JSON."""
    if not live and port is None:
        yield None
        return
    from ..live import LivePage

    with LivePage(port or 0, title=title) as page:
        print(f"Live at {page.url}", file=sys.stderr, flush=True)
        yield page


@contextmanager
def _master(
    code: Any,
    engine: Any,
    deadline: float | None,
    trace: Path | None,
    on_shortfall: Any,
    patience: float | None,
    transfer: Any,
) -> Any:
    from ...runtime.master import Master
    from ...scheme.stop import Deadline

    stop = None if deadline is None else Deadline(deadline)
    given = {"on_shortfall": on_shortfall, "patience": patience, "transfer": transfer, "trace": trace}
    with Master(code, engine, stop, **given) as master:
        yield master
