"""What `run` and `measure` share: a problem, workers that compute it, and where their rounds are recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...checks import require_known
from ...errors import Invalid

ENGINES = {"local": "Local", "ray": "Ray", "mpi": "MPI", "virtual": "Virtual"}
PROBLEMS = ("logistic", "least_squares")
CHAOS = ("drop", "duplicate", "corrupt", "hold", "kill", "pause", "hold_seconds", "pause_seconds", "within")


def make_problem(name: str, code: Any, dim: int, samples: int, seed: int) -> Any:
    """Random data in the partitions that a code wants."""
    from ...problems import LeastSquares, Logistic

    require_known("problem", name, PROBLEMS)
    if dim < 1 or samples < code.k:
        raise Invalid(
            f"{code.name} needs --dim >= 1 and a sample for each of {code.k} partitions, but got {dim} and --samples {samples}."
        )
    if name == "logistic" and code.data is None:
        return Logistic.random(code, dim, samples, rng=seed)
    rng = np.random.default_rng(seed)
    shares = code.shares.tolist() if code.data is None else int(code.data.shape[1])
    return LeastSquares.split(rng.standard_normal((samples, dim)), rng.standard_normal(samples), shares)


def make_engine(name: str, problem: Any, latency: str | None, faults: dict[str, float], seed: int) -> Any:
    """Workers, made slow by a latency model and unreliable by faults where these are given."""
    from ... import engines
    from ...latency import ShiftedExponential
    from ...study.expression import parse_latency

    require_known("engine", name, ENGINES)
    model = parse_latency(latency) if latency else None
    kind = getattr(engines, ENGINES[name])
    inner = kind(problem, model or ShiftedExponential(rate=1.0), seed) if name == "virtual" else kind(problem)
    if name == "virtual" and not faults:
        return inner
    return engines.Chaos(inner, latency=model if name != "virtual" else None, rng=seed, **faults) if model or faults else inner


def read_faults(text: str | None) -> dict[str, float]:
    """'drop=0.1,kill=0.01' to a dictionary."""
    faults = {}
    for item in text.split(",") if text else ():
        name, _, value = item.strip().partition("=")
        require_known("fault", name, CHAOS)
        try:
            faults[name] = float(value)
        except ValueError:
            faults[name] = float("nan")
        if not faults[name] >= 0:
            raise Invalid(f"--chaos takes NAME=NUMBER with numbers >= 0, such as drop=0.01,kill=0.05, but got {item!r}.")
    return faults


def fresh(path: Path) -> Path:
    """A file that does not exist yet: an older run's is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path
