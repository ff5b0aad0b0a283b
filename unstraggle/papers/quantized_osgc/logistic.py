"""The schemes of [C] on logistic regression, through the real master on a sampled clock: where its order of schemes holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.virtual import Virtual
from ...latency import Exponential
from ...problems.logistic import Logistic
from ...runtime.master import Master
from ...scheme.code import Code
from ...scheme.stop import Deadline
from ...statistics import mean_and_half
from ..files import save
from . import plots as plots
from .schemes import Cluster, scheme, straggle_probabilities

Progress = Callable[[str, int, int], None]
Floats = NDArray[np.float64]

WORKERS, DIM, SAMPLES, RIDGE = 50, 1000, 60, 1e-3
SCHEMES = ("SGD", "proposed, qsgd omega", "OSGC", "SGC", "IS-SGD")
EACH = (4, 7)
RATES = (3.0, 10.0, 30.0, 100.0, 300.0)
STEPS, SEEDS = 150, 8


def problem(seed: int) -> Logistic:
    """50 partitions of 60 samples; features of length about 1, labels from a logistic model."""
    rng = np.random.default_rng((1, seed))
    x = rng.standard_normal((WORKERS * SAMPLES, DIM)) / np.sqrt(DIM)
    chance = 1 / (1 + np.exp(-x @ rng.standard_normal(DIM)))
    return Logistic.split(x, rng.random(len(x)) < chance, WORKERS, RIDGE)


def train(data: Logistic, code: Code | None, rate: float, seed: int, steps: int = STEPS) -> float:
    """The loss after gradient descent with the estimates of a master; without a code, with exact gradients."""
    p, params = straggle_probabilities(WORKERS), np.zeros(DIM)
    arrived = np.random.default_rng((2, seed)).random((steps, WORKERS)) >= p
    scale = rate / (WORKERS * SAMPLES)
    if code is None:
        for _ in range(steps):
            params = params - scale * data.gradient(params)
        return data.loss(params)
    with Master(code, Virtual(data, Exponential(1.0)), Deadline(1.0)) as master:
        for step in range(steps):
            delays = np.where(arrived[step][code.messages.worker], 0.5, np.inf)
            params = params - scale * master.gradient(params, step, delays=delays).gradient
    return data.loss(params)


def final_losses(
    each: Sequence[int], rates: Sequence[float], seeds: int, steps: int, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """A row for each budget, scheme and rate: mean final loss, and how much it is above plain SGD's least on the same data."""
    p, data = tuple(straggle_probabilities(WORKERS).tolist()), [problem(seed) for seed in range(seeds)]
    least = np.min([[train(one, None, rate, 0, steps) for one in data] for rate in rates], axis=0)
    settings, rows = [(bits, label) for bits in each for label in SCHEMES], []
    for done, (bits, label) in enumerate(settings):
        codes = [scheme(label, Cluster(p, bits * WORKERS, DIM, (), seed)).code for seed in range(seeds)]
        for rate in rates:
            losses = np.array([train(data[seed], codes[seed], rate, seed, steps) for seed in range(seeds)])
            above, half = mean_and_half(losses - least)
            row = {"loss": float(losses.mean()), "above": float(above), "half": float(half)}
            rows.append({"B": bits * WORKERS, "scheme": label, "rate": rate, **row})
        if progress:
            progress("training", done + 1, len(settings))
    return rows


def reproduce_logistic(
    out: Path, rounds: int = 0, seed: int = 0, progress: Progress | None = None, quick: bool = False
) -> list[dict[str, Any]]:
    """Write cagc-logistic.png, .pdf, .csv and .json."""
    seeds, rates, each = (2, RATES[1::2], EACH[:1]) if quick else (SEEDS, RATES, EACH)
    rows = final_losses(each, rates, seeds, STEPS, progress)
    about = {
        "repeat": f"unstraggle reproduce cagc-logistic{' --quick' if quick else ''}",
        "setting": f"n=k={WORKERS}, d={DIM}, {SAMPLES} samples per partition, ridge {RIDGE:g}, {STEPS} steps, {seeds} seeds",
    }
    save(out, "cagc-logistic", rows, plots.against_rate(rows), about)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Final losses above plain SGD's least, in 1e-4: a row per budget and scheme, a column per rate."""
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    cells = [["in 1e-4", *(f"rate {rate:g}" for rate in rates)]]
    for budget, label in dict.fromkeys((row["B"], row["scheme"]) for row in rows):
        mine = [row for row in rows if (row["B"], row["scheme"]) == (budget, label)]
        values = (f"{1e4 * row['above']:.0f} ±{1e4 * row['half']:.0f}" for row in mine)
        cells.append([f"{budget} {label.split(',')[0]}", *values])
    return cells
