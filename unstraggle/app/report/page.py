"""One run as a page: verdict first, pictures, who was late, and how to repeat it. What is not there is left out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import __version__
from ...adaptive.switch import Switch
from ...diagnosis import diagnose, percent
from ...diagnosis.remedies import named
from .. import plots
from ..runs import Run, read_run
from . import html, workers
from .picture import inline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...diagnosis import Diagnosis

TIMES = {"wall": "Step times", "wait": "Waits for rounds"}
OF = {"wall": "wall-clock time of a step", "wait": "wait for a round"}
SPLIT = (
    "Along the message that ended the round: its worker computes, it travels, and slack is the rest of the wait; then the "
    "master decodes. Outside: the optimiser and all else between two rounds."
)
SWITCHES = ("step", "scheme", "before", "why", "predicted to save", "measured", "s a round", "s to plan, to change")
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
    """What the run did, and what its trace says of the cluster, as far as it does."""
    told = found is not None and found.kind != "unknown"
    strong = [_did(run), *([found.verdict] if found and told else [])]
    notes = [] if found and told else [_untold(run, found)]
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in (found.reasons if found else ()))
    said = "".join(f"<p><strong>{html.escape(line)}</strong></p>" for line in strong)
    said += "".join(f"<p>{html.escape(line)}</p>" for line in notes)
    said += f"<ul>{reasons}</ul>" if reasons else ""
    kind = f"{found.kind} {found.answer.replace(' ', '-')}" if found else "unknown"
    return f'<section id="verdict" class="verdict {kind}">{said}</section>'


def _untold(run: Run, found: Diagnosis | None) -> str:
    if found is None or run.trace is None:
        return "No trace was recorded, so nothing can be said of how late workers were."
    if not np.isnan(found.idle_share):
        return found.verdict
    return f"What that saved is told by a comparison with a run that waits for all, such as one of uncoded({run.trace.n})."


def _did(run: Run) -> str:
    """What happened, in the run's own words: steps, their time, what was waited for, and what was not."""
    rounds, rows = run.rounds, workers.rows(run)
    known = np.isfinite(rounds.exact.mean)
    exact = f", {100 * rounds.exact.mean:.4g} % of them with the exact gradient" if known else ""
    said = f"{len(rounds)} {'step' if run.steps else 'round'}{'s' * (len(rounds) != 1)}{exact}: {_seconds(run)}."
    late = sum(row.late + (row.lost or 0.0) for row in rows)
    if late > 0:
        said += f" On average {late:.1f} of {len(rows)} workers were not waited for."
    gone = tuple(sorted(row.worker for row in rows if row.lost))
    return said + (f" Lost at times: {named(gone)}." if gone else "")


def _seconds(run: Run) -> str:
    mean = run.rounds.time.mean
    if run.clock == "wait":
        return f"a wait of {mean:.4g} s each"
    return f"{mean:.4g} s each, of which {run.timed_by('wait').time.mean:.4g} s were spent waiting for the round"


def key_numbers(run: Run) -> Iterator[tuple[str, str]]:
    """Names and values, as far as they are known."""
    rounds, unit = run.rounds, "step" if run.clock == "wall" else "wait"
    yield f"mean {unit}", f"{rounds.time.mean:.4g} s"
    if len(rounds) > 1:
        yield "95 % interval", "{:.4g} to {:.4g} s".format(*rounds.time.ci95)
    yield f"p99 {unit}", f"{rounds.time.quantile(0.99):.4g} s"
    if run.clock == "wall":
        yield "mean wait", f"{run.timed_by('wait').time.mean:.4g} s"
    idle = [step["idle"] / step["wall"] for step in run.steps if step.get("idle") is not None and step.get("wall")]
    if idle:
        yield "mean worker idle", f"{100 * np.mean(idle):.3g} %"
    if any("messages" in step for step in run.steps):
        yield "messages per step", f"{rounds.messages.mean:.2f}"
    sizes = [step["bytes"] for step in run.steps if step.get("bytes") is not None]
    if sizes:
        yield "kB received per step", f"{np.mean(sizes) / 1000:.4g}"
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
        yield "times", TIMES[run.clock], plots.completion_times([run.rounds], of=OF[run.clock]), ""
    if run.switches and run.steps and all(step.get("code") for step in run.steps):
        yield "schemes", "Which scheme ran when", plots.schemes(run.steps, run.clock), ""
    if run.trace is not None:
        yield "lateness", "Who was late, and when", plots.lateness(run.trace), ""
        place = _typical(run)
        note = "A round of median length." if len(run.trace) > 1 else ""
        yield "timeline", f"Round {run.trace.numbers[place]}", plots.timeline(run.trace, place), note
    if split := splits(run):
        yield "split", "Where the time of a step goes", plots.time_split({run.code: split}), SPLIT


def splits(run: Run) -> list[dict[str, Any]]:
    """Steps that say where their wall-clock time went."""
    return [step for step in run.steps if step.get("split") and "wall" in step]


def _typical(run: Run) -> int:
    """Place of the round of median length in the trace."""
    assert run.trace is not None
    times = run.trace.finish
    ends = np.where(np.isfinite(times), times, 0.0).max(axis=1)
    return int(np.argsort(ends, kind="stable")[len(ends) // 2])


def _tables(run: Run, found: Diagnosis | None) -> Iterator[str]:
    if run.switches:
        note = "Each change of code during the run, and below it what it then saved of the wait for a round."
        yield html.section("switches", "Changes of scheme", html.table(SWITCHES, map(_switch, run.switches)), note)
    rows = workers.rows(run)
    if rows:
        shown = [
            (row.worker, f"{100 * row.late:.1f} %", _percent(row.lost), f"{row.factor:.2f}" if row.factor else "-")
            for row in rows[:MOST_ROWS]
        ]
        note = f"The {MOST_ROWS} least punctual of {len(rows)} workers." if len(rows) > MOST_ROWS else ""
        head = ("worker", "late: not waited for", "lost", "time / median, median")
        title = "Late workers" if rows[0].lost is None else "Late and lost workers"
        yield html.section("workers", title, html.table(head, shown), note)
    if found and (options := found.options()):
        cells = [(what, f"{100 * saved:.1f} %", percent(interval)) for what, saved, interval in options]
        note = "Share of the time of waiting for all that would be saved, on rounds that nothing was chosen on."
        yield html.section("options", "What would help", html.table(("what", "saved", "95 % interval"), cells), note)


def _switch(one: Switch) -> tuple[str, ...]:
    seconds, took = f"{one.before:.3g} -> {one.seconds:.3g}", f"{one.planning:.2g}, {one.switching:.2g}"
    return str(one.step), one.code, one.was, one.why, _percent(one.predicted), _percent(one.measured), seconds, took


def _percent(share: float | None) -> str:
    return "-" if share is None or np.isnan(share) else f"{100 * share:.1f} %"


def _repeat(run: Run) -> str:
    command = run.command
    line = f"<pre>{html.escape(command)}</pre>" if command else '<p class="note">The command was not recorded.</p>'
    about = run.config.get("environment")
    details = f"<pre>{html.escape(json.dumps(about, indent=1))}</pre>" if about else ""
    return html.section("repeat", "How to repeat", line + details)
