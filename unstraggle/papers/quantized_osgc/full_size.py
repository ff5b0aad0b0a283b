"""Figures 3b and 3c of [C] at full size: curves and losses of runs on a GPU, from the file beside this one.

`python -m benchmarks.training_gpu` made the runs, and writes the file with --curves; nothing is trained here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...statistics import mean_and_half

FILE = Path(__file__).with_name("full_size.json")
PANELS = {"b": "ResNet-50", "c": "GPT-2, 124 M"}
NAMES = {"proposed, qsgd omega": "proposed, gamma 1, QSGD omega"}
TITLE = "{task}, on a GPU, B = 350"


@cache
def known() -> dict[str, Any]:
    """Panels and rows of figures 3b and 3c."""
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def condensed(result: Mapping[str, Any], reference: str = "proposed") -> dict[str, Any]:
    """Panels with curves and rows with losses, from a result of the benchmark: runs at the rate chosen for each scheme."""
    about = {key: result[key] for key in ("repeat", "date", "hardware", "setting")}
    about["setting"] = about["setting"].replace(
        "gap: to OSGC", f"gap: to {reference}"
    )  # the benchmark's own lines have another
    panels, rows = {}, []
    for name, task in PANELS.items():
        mine = {line["scheme"]: _runs(result, line) for line in result["summary"] if line["task"] == task and line["chosen"]}
        if not mine:
            continue
        rival = {run["seed"]: run["final"] for run in mine[reference]}
        lines = [{"scheme": NAMES.get(label, label), "tuned": _curve(runs)} for label, runs in mine.items()]
        panels[name] = {"name": name, "title": TITLE.format(task=task), "x": "step", "log": False, "lines": lines}
        rows += [_row(name, NAMES.get(label, label), runs, rival) for label, runs in mine.items()]
    return about | {"curves": panels, "rows": rows}


def _runs(result: Mapping[str, Any], line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs of a line that did not choose its rate."""
    keys = ("task", "scheme", "rate")
    seeds = range(line["seeds"])
    return [run for run in result["runs"] if all(run[key] == line[key] for key in keys) and run["seed"] in seeds]


def _curve(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Mean over the runs that did not diverge, with its interval, at the steps that were looked at."""
    whole = [run for run in runs if run["final"] is not None]
    if not whole:
        return {"x": [0.0], "mean": [float("inf")], "half": [0.0]}
    mean, half = mean_and_half(np.array([[loss for _, loss in run["losses"]] for run in whole]))
    half = half if len(whole) > 2 else np.zeros_like(mean)
    return {"x": [step for step, _ in whole[0]["losses"]], "mean": mean.round(4).tolist(), "half": half.round(4).tolist()}


def _row(panel: str, name: str, runs: Sequence[Mapping[str, Any]], rival: Mapping[int, float | None]) -> dict[str, Any]:
    """As in the rows of the figures that are trained here; means over the runs that did not diverge."""
    final = np.array([run["final"] for run in runs if run["final"] is not None])
    pairs = [(run["final"], rival.get(run["seed"])) for run in runs]
    gaps = np.array([one - other for one, other in pairs if one is not None and other is not None])
    (loss, loss_half), (gap, gap_half) = _interval(final), _interval(gaps)
    return {
        "panel": panel,
        "scheme": name,
        "rates": "tuned",
        "rate": runs[0]["rate"],
        "loss": loss,
        "loss_half": loss_half,
        "gap": gap,
        "gap_half": gap_half,
        "diverged": len(runs) - len(final),
        "runs": len(runs),
        "accuracy": None,
        "bits_a_step": float(f"{1e9 * np.mean([run['gigabits_a_step'] for run in runs]):.4g}"),
        "tried": "",
    }


def _interval(values: Any) -> tuple[float | None, float | None]:
    """Mean and half width, where there are three values or more; of fewer there is nothing to say."""
    if len(values) < 3:
        return None, None
    mean, half = mean_and_half(values)
    return round(float(mean), 4), round(float(half), 4)
