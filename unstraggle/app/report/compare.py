"""Several runs side by side: a table and a page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ... import __version__
from ...errors import Invalid
from ...statistics import NORMAL_975
from ...study.rounds import Sample
from .. import plots
from ..runs import Run, read_run
from . import html
from .page import OF, TIMES, splits
from .picture import inline

HEAD = ("run", "steps", "mean s", "95 % interval", "p99 s", "wait s", "time / first", "exact", "kB per step", "last loss")


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
    """A row for each run; the ratio is to the first run's mean time, with the interval of a ratio of independent means.

    Times are the wall-clock times of steps; where a run has none, the waits for rounds of all.
    """
    clock = common_clock(runs)
    first = runs[0].timed_by(clock).time
    return [_row(name, run, clock, None if run is runs[0] else first) for name, run in named(runs).items()]


def common_clock(runs: Sequence[Run]) -> Literal["wall", "wait"]:
    """What times of several runs can be compared."""
    return "wall" if all(run.clock == "wall" for run in runs) else "wait"


def named(runs: Sequence[Run]) -> dict[str, Run]:
    """Runs by what they ran, and by their folder too where several ran the same."""
    codes = [run.code for run in runs]
    labels = [code if codes.count(code) == 1 else f"{code} in {run.path.name}" for code, run in zip(codes, runs, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{code} in {run.path}" for code, run in zip(codes, runs, strict=True)]
    if len(set(labels)) < len(labels):
        raise Invalid("A comparison needs different runs, but the same directory was given twice.")
    return dict(zip(labels, runs, strict=True))


def _row(name: str, run: Run, clock: Literal["wall", "wait"], first: Sample | None) -> dict[str, Any]:
    rounds, wait = run.timed_by(clock), run.timed_by("wait").time
    sizes = [step["bytes"] for step in run.steps if step.get("bytes") is not None]
    losses = [step["loss"] for step in run.steps if step.get("loss") is not None]
    ratio, half = _ratio(rounds.time, first)
    row = {"run": name, "path": str(run.path), "steps": len(rounds), "clock": clock, "ratio": _number(ratio)}
    row |= {"wall": rounds.time.to_dict() if clock == "wall" else None, "wait": wait.to_dict()}
    row |= {"ratio_ci95": [_number(ratio - half), _number(ratio + half)], "exact": _number(rounds.exact.mean)}
    return row | {"bytes": float(np.mean(sizes)) if sizes else None, "loss": losses[-1] if losses else None}


def _ratio(time: Sample, first: Sample | None) -> tuple[float, float]:
    if first is None or not first.mean > 0:
        return 1.0, 0.0
    ratio = time.mean / first.mean
    return ratio, NORMAL_975 * ratio * float(np.hypot(time.se / max(time.mean, 1e-300), first.se / first.mean))


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The row in words, as `HEAD` names them."""
    time, ratio = row[row["clock"]], row["ratio_ci95"]
    ends = time["ci95"]
    interval = f"{ends[0]:.4g} to {ends[1]:.4g}" if ends[0] is not None else "-"
    half = f" ± {(ratio[1] - ratio[0]) / 2:.3f}" if None not in ratio and ratio[0] < ratio[1] else ""
    exact = f"{100 * row['exact']:.4g} %" if row["exact"] is not None else "-"
    size = f"{row['bytes'] / 1000:.4g}" if row["bytes"] is not None else "-"
    loss = f"{row['loss']:.4g}" if row["loss"] is not None else "-"
    times = f"{time['mean']:.4g}", interval, f"{time['p99']:.4g}", f"{row['wait']['mean']:.4g}"
    return row["run"], str(row["steps"]), *times, f"{row['ratio']:.3f}{half}", exact, size, loss


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """The fastest run among those whose gradients were exact, where the intervals tell; and who was faster at that price."""
    exact = [row for row in rows if row["exact"] in (None, 1.0)]
    best = min(exact or rows, key=_mean)
    always = " with the exact gradient in every step" if best["exact"] == 1.0 else ""
    close = [row for row in exact or rows if row is not best and not _resolved(best, row)]
    what = "s per step" if best["clock"] == "wall" else "s of waiting per round"
    said = f"Fastest{always}: {best['run']}, {_mean(best):.4g} {what}."
    if close:
        both = " and ".join(f"{row['run']} ({_mean(row):.4g} {what})" for row in (best, *close))
        said = f"Which is fastest{always} is not resolved: {both} do not differ by more than chance explains."
    for row in rows:
        if row not in exact and _mean(row) < _mean(best) and _resolved(row, best):
            said += f" {row['run']} takes {_mean(row):.4g} s, but {100 * row['exact']:.3g} % of its gradients are exact."
    return said


def _mean(row: dict[str, Any]) -> float:
    return float(row[row["clock"]]["mean"])


def _resolved(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the 95 % interval of the difference of two means leaves out zero; one step says nothing of its mean."""
    errors = [row[row["clock"]]["se"] for row in (one, other)]
    return None not in errors and abs(_mean(one) - _mean(other)) > NORMAL_975 * float(np.hypot(*errors))


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
    clock = common_clock(list(runs.values()))
    times = [replace(run.timed_by(clock), code=name) for name, run in runs.items()]
    yield "times", TIMES[clock], plots.completion_times(times, of=OF[clock])
    known = {name: found for name, run in runs.items() if (found := splits(run))}
    if known:
        yield "split", "Where the time of a step goes", plots.time_split(known)


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
