"""Beyond figure 1 of [A]: expected time against messages per round for the best clusters, designs and orders.

The paper shows one point for each of its two designs and leaves the choice of orders open. Here `plan.orders` chooses them, and
the front stands beside the schemes of the figure and the limit that no exact code on whole partial gradients can pass.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...app import plots
from ...plan import Plan, orders
from ...plan.designs import work_limit
from ...plan.draws import Draws
from ...plan.front import pareto
from ...scheme.recovery import By
from ...study.rounds import Sample
from ..files import save
from .figure1 import Progress, Scheme, Setting, measure, schemes

SEARCH_ROUNDS = 40_000
"""Rounds for choosing designs; those chosen are then measured with as many as asked for."""

FRONTS: dict[str, tuple[By, ...]] = {"front, by rule or span": ("rule", "span"), "front, by rule only": ("rule",)}
COMPARED = ("GC", "LCC", "UC-MMC", "GC-MMC-1", "GC-MMC-2", "wait for all", "fractional repetition")


def front(
    rounds: int = 100_000, seed: int = 0, setting: Setting | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Time and load of the schemes to compare with, then of the front, fewest messages first; all on the same draws.

    The keys are those of `figure1`, and `front`: empty, or the name of the front on which the row is.
    """
    setting = setting or Setting()
    measured = partial(measure, setting=setting, rounds=rounds, seed=seed, progress=progress)
    rows = [measured(scheme) | {"front": ""} for scheme in schemes(setting) if scheme.label in COMPARED]
    for name, by in FRONTS.items():
        search = max(2, min(rounds, SEARCH_ROUNDS))
        options: dict[str, Any] = {"by": by, "rounds": search, "rng": seed, "progress": progress}
        plans = orders(setting.latency, setting.n, setting.load, carry=False, **options)
        found = [measured(_scheme(plan)) for plan in plans]
        best = pareto([row["time"] for row in found], [row["load"] for row in found])
        rows += [found[place] | {"front": name} for place in best]
    return rows


def work_conserving(rounds: int = 100_000, seed: int = 0, setting: Setting | None = None) -> Sample:
    """Times until n tasks are done anywhere: no exact code on whole partial gradients can end before."""
    setting = setting or Setting()
    draws = Draws(setting.latency, setting.n, setting.load, rounds, np.random.default_rng(seed))
    steps = range(1, setting.load + 1)
    return Sample(np.concatenate([work_limit(setting.n, arrivals) for arrivals in draws.arrivals(steps)]))


def _scheme(plan: Plan) -> Scheme:
    by: By = plan.params["by"]
    clusters, steps = plan.params["clusters"], plan.params["orders"]
    if plan.name.startswith("fractional"):
        label = f"repetition x{clusters}"
    elif plan.params["design"] == "correlated":
        label = f"correlated {steps[0]}-{steps[-1]} x{clusters}"
    else:
        label = f"{plan.params['design']} {','.join(map(str, steps))} x{clusters}"
    return Scheme(f"{label} by {by}", plan.code, by=by)


def reproduce_front(out: Path, rounds: int = 100_000, seed: int = 0, progress: Progress | None = None) -> list[dict[str, Any]]:
    """Write mmc-front.png, .pdf, .csv and .json into a folder and return the table."""
    rows, limit, setting = front(rounds, seed, progress=progress), work_conserving(rounds, seed), Setting()
    about = {
        "repeat": f"unstraggle reproduce mmc-front --rounds {rounds} --seed {seed}",
        "setting": f"n={setting.n}, load={setting.load}, {setting.latency}",
        "rounds": rounds,
        "work_conserving_limit": limit.mean,
        "work_conserving_limit_ci95": list(limit.ci95),
    }
    title = f"{setting.n} workers, load {setting.load}, {rounds:,} rounds"
    save(out, "mmc-front", rows, plots.time_against_load(rows, limit.mean, title), about)
    return rows
