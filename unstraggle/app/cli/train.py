"""unstraggle train and unstraggle demo: a real model, slow workers, coded against uncoded."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ...checks import require_known
from ...errors import Invalid
from .ending import Explained
from .output import print_json, progress_bars, save_json
from .shared import AsJson, Folder, Seed, app, one_of, options_of, out_option
from .traces import read_trace
from .train_words import announce, print_results

TASKS = ("digits", "mnist")
Schemes = Annotated[list[str] | None, typer.Option("--scheme", help="A code's expression or file; may be given several times.")]
SLACK = 1.1
"""The target loss is that of waiting for all at the end, times this."""


@app.command()
def demo(
    context: typer.Context,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Annotated[Path, out_option("Folder for results and pictures.")] = Path("out/demo"),
) -> None:
    """Train on handwritten digits with 8 workers, a different one slow each step: wait, ignore, repeat or code. Two minutes.

    Example: unstraggle demo
    """
    train(context, seed=seed, as_json=as_json, out=out, advise=True)


@app.command()
def train(
    context: typer.Context,
    task: Annotated[
        str, typer.Option(help=f"What to train: {' or '.join(TASKS)}.", autocompletion=one_of(lambda: TASKS))
    ] = "digits",
    workers: Annotated[int, typer.Option("-n", "--workers", help="Worker processes, a multiple of 4.")] = 8,
    slow: Annotated[int, typer.Option(help="How many of them are slow in a step.")] = 1,
    changing: Annotated[
        bool, typer.Option("--changing/--same", help="Whether different ones are slow each step, or always the same.")
    ] = True,
    factor: Annotated[float, typer.Option(help="How many times slower these are.")] = 10.0,
    unit: Annotated[float, typer.Option(help="Seconds that a worker is made to take for its share of a batch.")] = 0.03,
    by_label: Annotated[
        bool, typer.Option("--by-label/--shuffled", help="Whether partitions hold different labels, or random samples.")
    ] = True,
    scheme: Schemes = None,
    advise: Annotated[
        bool, typer.Option("--advise", help="Ask diagnose and plan auto about waiting for all, and train as advised; needs -o.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = 40,
    repeats: Annotated[int, typer.Option(help="Repetitions with other weights and batches, for the intervals.")] = 4,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Train one model with several schemes on local workers of which some are slow, and compare them by wall-clock.

    Tasks last as long as on machines of their own, of which some have another job: a worker computes for real, and stays in its
    task until that time is over. Nothing cuts it short: a worker that is late begins the next step late. Without --scheme: wait
    for all, ignore the slowest, fractional repetition, and a clustered multi-message code.

    Example: unstraggle train --task mnist --factor 5 --steps 60 -o out/train
    """
    _check_numbers(workers, slow, steps, repeats)
    require_known("task", task, TASKS)
    about: dict[str, Any] = {"task": task, "workers": workers, "slow": slow, "changing": changing, "factor": factor}
    about |= {"unit": unit, "by_label": by_label, "steps": steps, "repeats": repeats, "seed": seed}
    about |= announce(about, quiet=as_json)
    _check_schemes(workers, scheme or [], advise, steps * repeats, out)
    began = time.perf_counter()
    comparison, tasks = modules()
    machines = comparison.Machines(workers, unit, slow, factor, changing, seed)
    data = tasks.task(task).by_label() if by_label else tasks.task(task)
    chosen = list(comparison.entries(workers, slow))
    if scheme:
        chosen = [chosen[0], *(comparison.Entry(text, text) for text in scheme)]
    runs: list[Any] = []
    if out:
        _configure(out, chosen, options_of(context))
    try:
        with progress_bars(as_json) as told:
            rows = _with_advice(chosen, about, out, told) if advise and out else iter(chosen)
            options = {"steps": steps, "repeats": repeats, "seed": seed, "told": told, "out": out}
            for run in comparison.compare(data, rows, comparison.on_machines(machines), **options):
                runs.append(run)
    except (KeyboardInterrupt, SystemExit) as end:
        _keep_what_there_is(out, about, comparison, runs)
        raise Explained(end.code if isinstance(end, SystemExit) else 130) from end
    about |= _results(comparison, runs, about.pop("found", None)) | {"took": time.perf_counter() - began}
    stretches = [machines.stretch(read_trace(out / run.entry.folder)) for run in runs] if out else []
    about |= {"stretch": stretches[0] if out else None, "most_stretch": max(stretches, default=None)}
    if out:
        _save(out, about, runs)
    if as_json:
        print_json(about)
        return
    print_results(about, out)


def modules() -> tuple[Any, Any]:
    """What trains, where torch is installed."""
    try:
        from ...torch import tasks
        from .. import comparison
    except ModuleNotFoundError as error:
        raise Invalid(f"Training needs {error.name}. Run: pip install 'unstraggle[demo]'") from error
    return comparison, tasks


def _check_numbers(workers: int, slow: int, steps: int, repeats: int) -> None:
    """Before anything is said, so without a large import."""
    if workers < 4 or workers % 4:
        raise Invalid(f"--workers must be a multiple of 4, but is {workers}.")
    if not 0 <= slow < workers or steps < 1 or repeats < 1:
        raise Invalid("--slow must be below --workers, and --steps and --repeats at least 1.")


def _check_schemes(workers: int, schemes: list[str], advise: bool, rounds: int, out: Path | None) -> None:
    """Before anything is trained."""
    from ...plan.auto import LEAST_ROUNDS
    from ...study.expression import find_code

    if advise and (out is None or rounds < LEAST_ROUNDS):
        raise Invalid(
            f"--advise reads the trace in --out, of {LEAST_ROUNDS} steps times repeats or more. Give -o, or more steps."
        )
    for code in map(find_code, schemes):
        if code.n != workers:
            raise Invalid(f"{code.name} is for {code.n} workers, but --workers is {workers}. Change one of them.")


def _with_advice(chosen: list[Any], about: dict[str, Any], out: Path, told: Any) -> Iterator[Any]:
    """The rows, and last what `plan auto` advises on the first of them, where that is not among them."""
    from ...diagnosis import diagnose

    yield chosen[0]
    about["found"] = found = diagnose(read_trace(out / chosen[0].folder), progress=told)
    yield from chosen[1:]
    advised = found.advice.chosen if found.advice else None
    if advised and advised.name not in [entry.code for entry in chosen]:
        yield type(chosen[0])("as advised", advised.plan)


def _results(comparison: Any, runs: list[Any], found: Any = None) -> dict[str, Any]:
    from ..verdict import conclude

    target = SLACK * float(runs[0].losses[:, -1].mean())
    rows = comparison.table(runs, target)
    concluded = {} if found is None else {"conclusion": conclude(rows, found).to_dict()}
    return {"target": target, "rows": rows, **concluded}


def _configure(out: Path, chosen: list[Any], options: dict[str, Any]) -> None:
    from ..runs import command_line, write_config

    for folder in (out, *(out / entry.folder for entry in chosen)):
        write_config(folder, command_line(), options)


def _save(out: Path, about: dict[str, Any], runs: list[Any]) -> None:
    from ..plots import training

    save_json(out / "summary.json", about)
    if runs:
        training(runs, about["target"]).savefig(out / "loss.png", dpi=150)


def _keep_what_there_is(out: Path | None, about: dict[str, Any], comparison: Any, runs: list[Any]) -> None:
    """The summary of the schemes that were finished; the steps of the one that was not are in its folder."""
    about.pop("found", None)
    if out:
        _save(out, about | (_results(comparison, runs) if runs else {"rows": []}) | {"interrupted": True}, runs)
    kept = f"; {len(runs)} schemes were finished" + (f", all steps are in {out}" if out else "")
    print(f"unstraggle: interrupted{kept}.", file=sys.stderr)
