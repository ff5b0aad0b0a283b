"""unstraggle train and unstraggle demo: a real model, slow workers, coded against uncoded."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...checks import require_known
from ...errors import Invalid
from .ending import Explained
from .output import console, print_json, progress_bars, save_json
from .shared import AsJson, Folder, Seed, app, one_of, options_of, out_option

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
    """Train on handwritten digits with 8 workers, two of them slow: wait, ignore, repeat, or code. Takes two minutes.

    Example: unstraggle demo
    """
    train(context, seed=seed, as_json=as_json, out=out)


@app.command()
def train(
    context: typer.Context,
    task: Annotated[
        str, typer.Option(help=f"What to train: {' or '.join(TASKS)}.", autocompletion=one_of(lambda: TASKS))
    ] = "digits",
    workers: Annotated[int, typer.Option("-n", "--workers", help="Worker processes, a multiple of 4.")] = 8,
    slow: Annotated[int, typer.Option(help="How many of them are slow.")] = 2,
    factor: Annotated[float, typer.Option(help="How many times slower these are.")] = 10.0,
    unit: Annotated[float, typer.Option(help="Seconds that a worker is made to take for its share of a batch.")] = 0.03,
    by_label: Annotated[
        bool, typer.Option("--by-label/--shuffled", help="Whether partitions hold different labels, or random samples.")
    ] = True,
    scheme: Schemes = None,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = 40,
    repeats: Annotated[int, typer.Option(help="Repetitions with other weights and batches, for the intervals.")] = 4,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Train one model with several schemes on local workers of which some are slow, and compare them by wall-clock.

    Delays are injected: a worker computes for real, and then waits until its drawn time is over. Without --scheme: wait for
    all, ignore the slowest, fractional repetition, and a clustered multi-message code.

    Example: unstraggle train --task mnist --factor 5 --steps 60 -o out/train
    """
    _check(workers, slow, steps, repeats, scheme or [])
    comparison, tasks = modules()
    require_known("task", task, tasks.TASKS)
    places = [int((number + 0.5) * workers / slow) for number in range(slow)] if slow else []
    latency = comparison.stragglers(workers, places, unit, factor)
    data = tasks.task(task).by_label() if by_label else tasks.task(task)
    chosen = list(comparison.entries(workers, slow))
    if scheme:
        chosen = [chosen[0], *(comparison.Entry(text, text) for text in scheme)]
    began = time.perf_counter()
    about = {"task": task, "workers": workers, "slow": places, "factor": factor, "unit": unit, "steps": steps, "seed": seed}
    about |= {"by_label": by_label, "repeats": repeats}
    runs: list[Any] = []
    if out:
        _configure(out, chosen, options_of(context))
    try:
        with progress_bars(as_json) as told:
            options = {"steps": steps, "repeats": repeats, "seed": seed, "told": told, "out": out}
            for run in comparison.compare(data, chosen, latency, **options):
                runs.append(run)
    except (KeyboardInterrupt, SystemExit) as end:
        _keep_what_there_is(out, about, comparison, runs)
        raise Explained(end.code if isinstance(end, SystemExit) else 130) from end
    about |= _results(comparison, runs) | {"took": time.perf_counter() - began}
    if out:
        _save(out, about, runs)
    if as_json:
        print_json(about)
        return
    _print(about, out)


def modules() -> tuple[Any, Any]:
    """What trains, where torch is installed."""
    try:
        from ...torch import tasks
        from .. import comparison
    except ModuleNotFoundError as error:
        raise Invalid(f"Training needs {error.name}. Run: pip install 'unstraggle[torch,examples]'") from error
    return comparison, tasks


def _check(workers: int, slow: int, steps: int, repeats: int, schemes: list[str]) -> None:
    """Before anything is trained."""
    from ...study.expression import find_code

    if workers < 4 or workers % 4:
        raise Invalid(f"--workers must be a multiple of 4, but is {workers}.")
    if not 0 <= slow < workers or steps < 1 or repeats < 1:
        raise Invalid("--slow must be below --workers, and --steps and --repeats at least 1.")
    for code in map(find_code, schemes):
        if code.n != workers:
            raise Invalid(f"{code.name} is for {code.n} workers, but --workers is {workers}. Change one of them.")


def _results(comparison: Any, runs: list[Any]) -> dict[str, Any]:
    target = SLACK * float(runs[0].losses[:, -1].mean())
    return {"target": target, "rows": comparison.table(runs, target)}


def _configure(out: Path, chosen: list[Any], options: dict[str, Any]) -> None:
    from ..runs import command_line, write_config

    for folder in (out, *(out / entry.name.replace(" ", "-") for entry in chosen)):
        write_config(folder, command_line(), options)


def _save(out: Path, about: dict[str, Any], runs: list[Any]) -> None:
    from ..plots import training

    save_json(out / "summary.json", about)
    if runs:
        training(runs, about["target"]).savefig(out / "loss.png", dpi=150)


def _keep_what_there_is(out: Path | None, about: dict[str, Any], comparison: Any, runs: list[Any]) -> None:
    """The summary of the schemes that were finished; the steps of the one that was not are in its folder."""
    if out:
        _save(out, about | (_results(comparison, runs) if runs else {"rows": []}) | {"interrupted": True}, runs)
    kept = f"; {len(runs)} schemes were finished" + (f", all steps are in {out}" if out else "")
    print(f"unstraggle: interrupted{kept}.", file=sys.stderr)


def _print(about: dict[str, Any], out: Path | None) -> None:
    who = ", ".join(map(str, about["slow"])) or "none"
    title = f"{about['task']}: {about['workers']} workers, slow: {who} ({about['factor']:g} x); {about['steps']} steps"
    caption = f"± 95 % over {about['repeats']} runs; target loss {about['target']:.3f}; MB per step"
    shown = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("scheme", overflow="fold", min_width=18)
    for column in ("ms/step", "s to target", "speed-up", "final loss", "exact", "MB"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in about["rows"]:
        reached = _with_half(row["to_target"], 1) if row["to_target"] else "never"
        faster = f"{row['speedup']:.1f} x" if row["speedup"] else "-"
        loss = _with_half(row["loss"], 3)
        exact = f"{100 * row['exact']:.3g} %"
        shown.add_row(row["scheme"], f"{1e3 * row['wall'][0]:.0f}", reached, faster, loss, exact, f"{row['megabytes']:.2f}")
    console().print(shown)
    if out:
        print(f"Written to {out}: loss.png, summary.json, and a folder for each scheme. Took {about['took']:.0f} s.")


def _with_half(interval: tuple[float, float], digits: int) -> str:
    """A mean and half the width of its interval, where there is one: it takes two runs."""
    mean, half = (f"{value:.{digits}f}" for value in interval)
    return mean if half == "nan" else f"{mean} ± {half}"
