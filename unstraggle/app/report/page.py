"""One run as a page: verdict first, pictures, who was late, and how to repeat it. What is not there is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ... import __version__
from ...diagnosis import diagnose, percent
from ...diagnosis.remedies import named
from .. import plots
from ..runs import Run, read_run
from . import html, workers
from .picture import inline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...diagnosis import Diagnosis

MOST_ROWS = 24
"""Workers in the table at most."""


def write_report(path: str | os.PathLike[str]) -> Path:
    """Write report.html into a run's directory; gives its path."""
    run = read_run(path)
    target = Path(path) / "report.html"
    target.write_text(report(run), encoding="utf-8")
    return target


def report(run: Run) -> str:
    """The page of a run, as text."""
    found = diagnose(run.trace) if run.trace is not None and run.trace.n > 1 else None
    kicker = "unstraggle: report of a run"
    return html.fill(run.code, kicker, _sections(run, found), f"unstraggle {__version__}. {' '.join(run.notes)}".strip())


def _sections(run: Run, found: Diagnosis | None) -> Iterator[str]:
    numbers = count()
    yield verdict(run, found)
    yield html.numbers(dict(key_numbers(run)))
    for name, title, figure, note in _pictures(run):
        yield html.section(name, title, html.figure(inline(figure, title, numbers)), note)
    yield from _tables(run, found)
    yield _repeat(run)


def verdict(run: Run, found: Diagnosis | None) -> str:
    """What the run did, and what its trace says of the cluster."""
    kind = found.kind if found else "unknown"
    lines = [_did(run), *([found.verdict] if found else ["No trace was recorded, so nothing can be said of the workers."])]
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in (found.reasons if found else ()))
    strong = "".join(f"<p><strong>{html.escape(line)}</strong></p>" for line in lines)
    classes = f"verdict {kind} {found.answer.replace(' ', '-') if found else ''}".strip()
    return f'<section id="verdict" class="{classes}">{strong}{f"<ul>{reasons}</ul>" if reasons else ""}</section>'


def _did(run: Run) -> str:
    rounds = run.rounds
    exact = rounds.exact.mean
    said = f", {100 * exact:.4g} % of them with the exact gradient" if np.isfinite(exact) else ""
    rows = workers.rows(run)
    late = sum(row.late + row.lost for row in rows)
    waited = f" On average {late:.1f} of {len(rows)} workers were not waited for." if late > 0 else ""
    gone = tuple(sorted(row.worker for row in rows if row.lost))
    lost = f" Lost at times: {named(gone)}." if gone else ""
    return f"{len(rounds)} steps{said}, {rounds.time.mean:.4g} s each.{waited}{lost}"


def key_numbers(run: Run) -> Iterator[tuple[str, str]]:
    """Names and values, as far as they are known."""
    rounds = run.rounds
    yield "mean step", f"{rounds.time.mean:.4g} s"
    if len(rounds) > 1:
        yield "95 % interval", "{:.4g} to {:.4g} s".format(*rounds.time.ci95)
    yield "p99 step", f"{rounds.time.quantile(0.99):.4g} s"
    if any("messages" in step for step in run.steps):
        yield "messages a step", f"{rounds.messages.mean:.2f}"
    sizes = [step["bytes"] for step in run.steps if step.get("bytes") is not None]
    if sizes:
        yield "kB received a step", f"{np.mean(sizes) / 1000:.4g}"
    if isinstance(run.summary.get("ratio"), float):
        yield "measured / theory", f"{run.summary['ratio']:.3f}"
    losses = [step["loss"] for step in run.steps if step.get("loss") is not None]
    if losses:
        yield "last loss", f"{losses[-1]:.4g}"


def _pictures(run: Run) -> Iterator[tuple[str, str, Figure, str]]:
    """(name, title, figure, note) of what there is."""
    if run.has_loss:
        yield "loss", "Loss", plots.loss({run.code: run.steps}), ""
    if len(run.rounds) > 1:
        yield "times", "Step times", plots.completion_times([run.rounds]), ""
    if run.trace is not None:
        yield "lateness", "Who was late, and when", plots.lateness(run.trace), ""
        place = _typical(run)
        note = "A round of median length." if len(run.trace) > 1 else ""
        yield "timeline", f"Round {run.trace.numbers[place]}", plots.timeline(run.trace, place), note
    split = [step for step in run.steps if step.get("split")]
    if split:
        yield "split", "Where the time of a step goes", plots.time_split({run.code: split}), ""


def _typical(run: Run) -> int:
    """Place of the round of median length in the trace."""
    assert run.trace is not None
    times = run.trace.finish
    ends = np.where(np.isfinite(times), times, 0.0).max(axis=1)
    return int(np.argsort(ends, kind="stable")[len(ends) // 2])


def _tables(run: Run, found: Diagnosis | None) -> Iterator[str]:
    rows = workers.rows(run)
    if rows:
        shown = [
            (row.worker, f"{100 * row.late:.1f} %", f"{100 * row.lost:.1f} %", f"{row.factor:.2f}" if row.factor else "-")
            for row in rows[:MOST_ROWS]
        ]
        note = f"The {MOST_ROWS} least punctual of {len(rows)} workers." if len(rows) > MOST_ROWS else ""
        head = ("worker", "late: not waited for", "lost", "time / median, median")
        yield html.section("workers", "Late and lost workers", html.table(head, shown), note)
    if found and (options := found.options()):
        cells = [(what, f"{100 * saved:.1f} %", percent(interval)) for what, saved, interval in options]
        note = "Share of the time of waiting for all that would be saved, on rounds that nothing was chosen on."
        yield html.section("options", "What would help", html.table(("what", "saved", "95 % interval"), cells), note)


def _repeat(run: Run) -> str:
    command = run.command
    line = f"<pre>{html.escape(command)}</pre>" if command else '<p class="note">The command was not recorded.</p>'
    about = run.config.get("environment")
    details = f"<pre>{html.escape(json.dumps(about, indent=1))}</pre>" if about else ""
    return html.section("repeat", "How to repeat", line + details)
