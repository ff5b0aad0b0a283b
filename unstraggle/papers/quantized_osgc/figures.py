"""Figures 2 and 3 of [C]: training loss of every scheme, at one rate for all and at each scheme's own best rate."""

from __future__ import annotations

import multiprocessing
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...statistics import mean_and_half
from ..files import save
from . import full_size
from . import plots as plots

if TYPE_CHECKING:
    from .training import Panel, Run

Progress = Callable[[str, int, int], None]
Line = tuple[str, "Panel", str]
"""Name in the figure, setting, scheme."""

RUNS = {"quick": (2, 1), "usual": (4, 1), "full": (8, 2)}
"""Runs per scheme and rate, and seeds on which rates are chosen. The usual ones take five minutes on two cores."""
REFERENCE = "proposed"
CLOSE = ("a", "a2", "b", "c")
"""Panels of figure 3 whose losses are on a logarithmic axis."""

PAPER = ("SGD", "IS-SGD", "BGC", "EHD", "OD", "SGC", "1-bit SGC", "OSGC", "proposed")


@dataclass(frozen=True)
class Comparison:
    """A panel of a figure: its lines are compared with the line named `reference`."""

    name: str
    title: str
    lines: tuple[Line, ...]
    reference: str = REFERENCE
    x: str = "step"


def figure2() -> list[Comparison]:
    """Panels with the paper's letters: a, b, d, e two numbers of workers and two budgets with SGD, c and f Adam."""
    from .training import Panel

    panels = {
        "a": ("n = 50, B = 150, SGD", Panel(n=50, each=3)),
        "b": ("n = 50, B = 250, SGD", Panel(n=50, each=5)),
        "c": ("n = 50, B = 150, Adam", Panel(n=50, each=3, optimizer="adam", rate=1e-3)),
        "d": ("n = 100, B = 300, SGD", Panel(n=100, each=3)),
        "e": ("n = 100, B = 500, SGD", Panel(n=100, each=5)),
        "f": ("n = 100, B = 300, Adam", Panel(n=100, each=3, optimizer="adam", rate=1e-3)),
    }
    found = []
    for name, (title, panel) in panels.items():
        labels = (*PAPER, "proposed, two tracks") if panel.optimizer == "adam" else PAPER
        found.append(Comparison(name, title, tuple((label, panel, label) for label in labels)))
    return found


def figure3() -> list[Comparison]:
    """Panels with the paper's letters: a ablation, d faster workers, e error feedback, f bits sent; b and c come from a GPU.

    Added are a2, the parts of the design; e2, memories as live rounds have them; t, a small transformer; s, partitions that
    differ; p, the authors' program.
    """
    from .training import Panel

    base = Panel(n=50, each=3)
    few = ("SGD", "IS-SGD", "EHD", "SGC", "OSGC", "proposed")
    parts = (
        "OSGC",
        "OSGC, allocated bits",
        "proposed, equal bits",
        "proposed",
        "proposed, gamma 1",
        "proposed, measured omega",
    )
    rivals = ("SGC", "OSGC", "IS-SGD", "EHD", "OD", "BGC")
    memory = ("SGD", *(f"{label} + {how}" for label in rivals for how in ("EF", "scaled EF")), "proposed")
    live = ("SGD", *(f"{label} + {how}" for label in rivals[:3] for how in ("live EF", "scaled live EF")), "proposed")
    program = ("SGD", "IS-SGD", "SGC", "OSGC, authors' program", "proposed, authors' program", "proposed")
    budgets = tuple(
        (f"{label}, B = {each * 50}", replace(base, each=each), label) for label in ("OSGC", "proposed") for each in (3, 4, 7)
    )
    return [
        Comparison("a", "bits, n = 50", (("unquantised", base, "unquantised OSGC"), *budgets), "proposed, B = 150"),
        Comparison("a2", "parts of the design, B = 150", tuple((label, base, label) for label in parts)),
        Comparison("t", "small transformer on text, B = 200", _lines(replace(base, problem="text", each=4, rate=0.5), few)),
        Comparison("d", "faster workers, psi up to 5, B = 150", _lines(replace(base, fastest=5.0), few)),
        Comparison("e", "error feedback, B = 150", _lines(base, memory)),
        Comparison("e2", "live error feedback, B = 150", _lines(base, live)),
        Comparison("f", "bits sent, B = 150", _lines(base, (*few, "1-bit SGC")), x="bits sent"),
        Comparison("s", "partitions sorted by label, B = 250", _lines(replace(base, problem="skewed", each=5), few)),
        Comparison("p", "10 mini-batches, summed, B = 150", _lines(replace(base, passes=10, tuned=False), program)),
    ]


def _lines(panel: Panel, labels: Sequence[str]) -> tuple[Line, ...]:
    return tuple((label, panel, label) for label in labels)


def reproduce_figure2(
    out: Path,
    rounds: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    quick: bool = False,
    full: bool = False,
) -> list[dict[str, Any]]:
    """Write cagc-fig2.png, .pdf, .csv and .json."""
    return _reproduce("cagc-fig2", figure2(), out, seed, progress, _effort(quick, full))


def reproduce_figure3(
    out: Path,
    rounds: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
    quick: bool = False,
    full: bool = False,
) -> list[dict[str, Any]]:
    """Write cagc-fig3.png, .pdf, .csv and .json; panels b and c are drawn from runs on a GPU that were made before."""
    return _reproduce("cagc-fig3", figure3(), out, seed, progress, _effort(quick, full), full_size.known())


def _effort(quick: bool, full: bool) -> str:
    return "quick" if quick else "full" if full else "usual"


def _reproduce(
    name: str,
    comparisons: list[Comparison],
    out: Path,
    seed: int,
    progress: Progress | None,
    effort: str,
    before: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Train, draw and write. before: panels and rows of runs that were made elsewhere."""
    seeds, tuning = RUNS[effort]
    shown = [_quick(comparison) for comparison in comparisons] if effort == "quick" else comparisons
    found = studies([line for comparison in shown for line in comparison.lines], seeds, tuning, seed, progress)
    rows = [row for comparison in shown for row in _rows(comparison, found)] + list((before or {}).get("rows", []))
    panels = dict(sorted({**{one.name: _panel(one, found) for one in shown}, **(before or {}).get("curves", {})}.items()))
    if before:  # figure 3, whose lines of a row lie close together in the end
        panels = {name: panel | {"log_loss": name in CLOSE} for name, panel in panels.items()}
    options = ("" if effort == "usual" else f" --{effort}") + (f" --seed {seed}" if seed else "")
    about = {
        "repeat": f"unstraggle reproduce {name}{options}",
        "setting": f"{seeds} runs per scheme and rate, on the same stragglers, batches and first parameters; rates chosen on "
        f"{tuning} other seed{'s' * (tuning > 1)}; loss: mean over the last fifth of a run; 95 % intervals by Student's t",
        "processor_minutes": round(sum(study["seconds"] for study in found.values()) / 60, 1),
        "python": platform.python_version(),  # its manual is the text of panel t
        **({"elsewhere": {key: before[key] for key in ("repeat", "date", "hardware", "setting")}} if before else {}),
        "curves": panels,
    }
    save(out, name, rows, plots.curves(list(panels.values()), rows if before else ()), about)
    return rows


def _quick(comparison: Comparison) -> Comparison:
    """Fewer steps and workers, for a look in a minute."""
    lines = tuple((name, replace(panel, n=min(panel.n, 20), steps=20), label) for name, panel, label in comparison.lines)
    return replace(comparison, title=comparison.title.split(",")[0] + ", quick", lines=lines)


def studies(
    lines: Sequence[Line], seeds: int, tuning: int, seed: int, progress: Progress | None
) -> dict[tuple[Panel, str], Any]:
    """All runs of all lines, in as many processes as there are cores; the same setting and scheme is trained once.

    seed: which set of seeds: 0 has the first `seeds` of them, 1 the next ones, and so on; rates are chosen on others.
    """
    from .training import study

    runs, others = range(seed * seeds, (seed + 1) * seeds), range(1000 + 10**6 * seed, 1000 + 10**6 * seed + tuning)
    jobs = list(dict.fromkeys((panel, label) for _, panel, label in lines))
    jobs.sort(
        key=lambda job: (
            -job[0].n * job[0].passes * (8 if job[0].problem == "text" or job[1].endswith(("+ EF", "+ scaled EF")) else 1)
        )
    )
    found: dict[tuple[Panel, str], Any] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(jobs)), context, initializer=_one_thread) as pool:
        waiting = {pool.submit(study, panel, label, runs, others): (panel, label) for panel, label in jobs}
        for done, future in enumerate(as_completed(waiting)):
            found[waiting[future]] = future.result()
            if progress:
                progress("training", done + 1, len(jobs))
    return found


def _one_thread() -> None:
    """Runs are small: a core each is quicker than all cores for one."""
    import torch

    torch.set_num_threads(1)


def _rows(comparison: Comparison, found: dict[tuple[Panel, str], Any]) -> list[dict[str, Any]]:
    """A row for each line and kind of rate: final loss, its gap to the reference run by run, accuracy, bits."""
    rows = []
    best = _of(comparison, found)
    for kind in (kind for kind in ("shared", "tuned") if kind in best):
        for name, panel, label in comparison.lines:
            study = found[panel, label]
            rows.append(_row(comparison, name, panel, study, study[kind], best[kind], kind))
    return rows


def _of(comparison: Comparison, found: dict[tuple[Panel, str], Any]) -> Any:
    return next(found[panel, label] for name, panel, label in comparison.lines if name == comparison.reference)


def _row(
    comparison: Comparison, name: str, panel: Panel, study: Any, runs: list[Run], best: list[Run], kind: str
) -> dict[str, Any]:
    from .training import CAP

    final, rival = np.array([run.final for run in runs]), np.array([run.final for run in best])
    (loss, half), (gap, gap_half) = _mean(final), _mean(final - rival)
    return {
        "panel": comparison.name,
        "scheme": name,
        "rates": kind,
        "rate": panel.rate if kind == "shared" else study["rate"],
        "loss": loss,
        "loss_half": half,
        "gap": gap,
        "gap_half": gap_half,
        "diverged": int((final >= CAP).sum()),
        "runs": len(runs),
        "accuracy": _accuracy(runs),
        "bits_a_step": _mean(np.array([run.bits[-1] for run in runs]))[0] / panel.steps,
        "tried": " ".join(f"{rate:g}:{tried:.3g}" for rate, tried in sorted(study["tried"].items())),
    }


def _accuracy(runs: list[Run]) -> float | None:
    """Mean over the runs that have one: not those that diverged, and none on text."""
    known = np.array([run.accuracy for run in runs if run.accuracy == run.accuracy])
    return _mean(known)[0] if len(known) else None


def _mean(values: Any) -> tuple[float, float]:
    """Mean and half width of its interval, to four digits."""
    mean, half = mean_and_half(values)
    return float(f"{mean:.4g}"), float(f"{half:.2g}")


def _panel(comparison: Comparison, found: dict[tuple[Panel, str], Any]) -> dict[str, Any]:
    """What a picture needs of a panel."""
    lines = []
    for name, panel, label in comparison.lines:
        line: dict[str, Any] = {"scheme": name}
        for kind in (kind for kind in ("shared", "tuned") if kind in found[panel, label]):
            runs = found[panel, label][kind]
            mean, half = mean_and_half(np.array([run.loss for run in runs]))
            half = half * (len(runs) > 2)  # of two runs it would fill the picture
            steps = np.arange(len(mean)) * panel.every
            bits = np.mean([run.bits for run in runs], axis=0)
            x = np.maximum(bits, 0.5 * bits[1]) if comparison.x != "step" else steps
            line[kind] = {"x": _short(x), "mean": _short(mean), "half": _short(half)}
        lines.append(line)
    rate, log = comparison.lines[0][1].rate, comparison.x != "step"
    return {"name": comparison.name, "title": comparison.title, "x": comparison.x, "rate": rate, "log": log, "lines": lines}


def _short(values: Any) -> list[float]:
    return [float(f"{value:.4g}") for value in values]


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Final losses for people: a line per panel and scheme, at the shared rate and at its own, and the gap to the reference."""
    cells = [["", "one rate", "own rate", "gap", "accuracy", "at rate"]]
    kinds = {kind: {(row["panel"], row["scheme"]): row for row in rows if row["rates"] == kind} for kind in ("shared", "tuned")}
    for name in dict.fromkeys((row["panel"], row["scheme"]) for row in rows):
        left, right = (kinds[kind].get(name) for kind in ("shared", "tuned"))
        row: Any = right or left
        accuracy = "" if row["accuracy"] is None else f"{row['accuracy']:.3f}"
        losses = [_cell(left, "loss") if left else "GPU", _cell(right, "loss") if right else ""]
        cells.append([" ".join(name), *losses, _cell(row, "gap"), accuracy, f"{row['rate']:.2g}"])
    return cells


def _cell(row: dict[str, Any], key: str) -> str:
    """Mean and half width of the interval; how many runs diverged, where some did."""
    if row[key] is None or (key == "loss" and row["diverged"]):
        return f"{row['diverged']}/{row['runs']} diverged"
    return f"{row[key]:{'+' if key == 'gap' else ''}.3f} ±{row[f'{key}_half']:.2f}"
