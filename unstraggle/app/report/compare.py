"""Several runs side by side: a table and a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...errors import Invalid
from ...statistics import NORMAL_975
from ...study.rounds import Sample
from .. import plots
from ..runs import Run, read_run
from . import html
from .picture import inline

HEAD = ("run", "steps", "mean s", "95 % interval", "p99 s", "time / first", "exact", "kB a step", "last loss")


def write_comparison(paths: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> tuple[Path, list[dict[str, Any]]]:
    """Write compare.html into a folder; gives its path and the rows of its table."""
    runs = [read_run(path) for path in paths]
    page = comparison(runs)
    target = Path(out) / "compare.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page, encoding="utf-8")
    return target, table(runs)


def comparison(runs: Sequence[Run]) -> str:
    """The page, as text."""
    if len(runs) < 2:
        raise Invalid(f"A comparison needs at least two runs, but got {len(runs)}. For one, use `unstraggle report`.")
    title = f"{len(runs)} runs compared"
    return html.fill(title, "unstraggle: comparison", _sections(runs), f"unstraggle {__version__}")


def table(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A row a run; the ratio is to the first run's mean time, with the interval of a ratio of independent means."""
    first = runs[0].rounds.time
    return [_row(name, run, None if run is runs[0] else first) for name, run in named(runs).items()]


def named(runs: Sequence[Run]) -> dict[str, Run]:
    """Runs by what they ran, and by their folder too where several ran the same."""
    codes = [run.code for run in runs]
    labels = [code if codes.count(code) == 1 else f"{code} in {run.path.name}" for code, run in zip(codes, runs, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{code} in {run.path}" for code, run in zip(codes, runs, strict=True)]
    if len(set(labels)) < len(labels):
        raise Invalid("A comparison needs different runs, but the same directory was given twice.")
    return dict(zip(labels, runs, strict=True))


def _row(name: str, run: Run, first: Sample | None) -> dict[str, Any]:
    rounds = run.rounds
    sizes = [step["bytes"] for step in run.steps if step.get("bytes") is not None]
    losses = [step["loss"] for step in run.steps if step.get("loss") is not None]
    ratio, half = _ratio(rounds.time, first)
    row = {"run": name, "path": str(run.path), "steps": len(rounds), "time": rounds.time.to_dict(), "ratio": _number(ratio)}
    row |= {"ratio_ci95": [_number(ratio - half), _number(ratio + half)], "exact": _number(rounds.exact.mean)}
    return row | {"bytes": float(np.mean(sizes)) if sizes else None, "loss": losses[-1] if losses else None}


def _ratio(time: Sample, first: Sample | None) -> tuple[float, float]:
    if first is None or not first.mean > 0:
        return 1.0, 0.0
    ratio = time.mean / first.mean
    return ratio, NORMAL_975 * ratio * float(np.hypot(time.se / max(time.mean, 1e-300), first.se / first.mean))


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The row in words, as `HEAD` names them."""
    time, ends, ratio = row["time"], row["time"]["ci95"], row["ratio_ci95"]
    interval = f"{ends[0]:.4g} to {ends[1]:.4g}" if ends[0] is not None else "-"
    against = f"{row['ratio']:.3f}" + (
        f" ± {(ratio[1] - ratio[0]) / 2:.3f}" if None not in ratio and ratio[0] < ratio[1] else ""
    )
    exact = f"{100 * row['exact']:.4g} %" if row["exact"] is not None else "-"
    size = f"{row['bytes'] / 1000:.4g}" if row["bytes"] is not None else "-"
    loss = f"{row['loss']:.4g}" if row["loss"] is not None else "-"
    return row["run"], str(row["steps"]), f"{time['mean']:.4g}", interval, f"{time['p99']:.4g}", against, exact, size, loss


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """The fastest run among those whose gradients were exact; and who was faster at that price."""
    exact = [row for row in rows if row["exact"] in (None, 1.0)]
    best = min(exact or rows, key=lambda row: row["time"]["mean"])
    always = " with the exact gradient in every step" if best["exact"] == 1.0 else ""
    said = f"Fastest{always}: {best['run']}, {best['time']['mean']:.4g} s a step."
    for row in rows:
        if row not in exact and row["time"]["mean"] < best["time"]["mean"]:
            said += (
                f" {row['run']} takes {row['time']['mean']:.4g} s, but {100 * row['exact']:.3g} % of its gradients are exact."
            )
    return said


def _sections(runs: Sequence[Run]) -> Iterator[str]:
    rows, numbers, all_runs = table(runs), count(), named(runs)
    said = verdict(rows)
    yield f'<section id="verdict" class="verdict"><p><strong>{html.escape(said)}</strong></p></section>'
    yield html.section("table", "Runs", html.table(HEAD, map(cells, rows)))
    for name, title, figure in _pictures(all_runs):
        yield html.section(name, title, html.figure(inline(figure, title, numbers)))
    yield html.section("repeat", "How to repeat", "".join(_command(name, run) for name, run in all_runs.items()))


def _command(name: str, run: Run) -> str:
    return f'<p class="note">{html.escape(name)}</p><pre>{html.escape(run.command or "The command was not recorded.")}</pre>'


def _pictures(runs: dict[str, Run]) -> Iterator[tuple[str, str, Any]]:
    losses = {name: run.steps for name, run in runs.items() if run.has_loss}
    if losses:
        yield "loss", "Loss", plots.loss(losses)
    yield "times", "Step times", plots.completion_times([_renamed(name, run) for name, run in runs.items()])
    splits = {name: [step for step in run.steps if step.get("split")] for name, run in runs.items()}
    if any(splits.values()):
        yield (
            "split",
            "Where the time of a step goes",
            plots.time_split({name: found for name, found in splits.items() if found}),
        )


def _renamed(name: str, run: Run) -> Any:
    from dataclasses import replace

    return replace(run.rounds, code=name)


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
