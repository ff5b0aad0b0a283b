"""An adaptive run whose cluster changes twice, live: against every fixed scheme, and against an oracle.

Eight workers on `Local`; every task sleeps for as long as drawn and cannot be left. First nobody straggles, then workers have
bursts of slowness, then two are slow for good. The oracle takes in each phase the scheme that was fastest in it, and switches
in no time; the adaptive run pays for learning, planning and starting workers anew.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unstraggle as us
from unstraggle.adaptive.master import AdaptiveMaster
from unstraggle.scheme.code import Code

from .common import save
from .live import DIM, problem

Times = NDArray[np.float64]

N, STEPS, UNIT, SEED = 8, 150, 0.04, 3
"""Workers, steps of a phase, and seconds of a unit of work on a worker that is not slow."""
PHASES = ("none", "bursty", "persistent")
BEGIN, END, BURST = 0.04, 0.2, 4.0
"""Probabilities that a burst begins and ends in a step, and how many times as long tasks take meanwhile."""
SLOW = {3: 3.0, 6: 1.5}
"""Workers that are slow for good, and how many times as long they take."""
FIXED = (
    "uncoded(8)",
    "fractional_repetition(8, s=1)",
    "uncoded_mmc(8, load=2)",
    "work_conserving(8, load=4, pieces=2)",
    "work_conserving(8, load=4, pieces=4)",
    "work_conserving(8, load=4, pieces=8)",
    "heterogeneity_aware([1, 1, 1, 0.33, 1, 1, 0.67, 1], s=0, k=32)",
)
"""The last has loads for the last phase."""


def draws() -> Times:
    """(steps, n) seconds of a unit of work, phase after phase."""
    rng = np.random.default_rng(SEED)
    seconds = UNIT * rng.lognormal(0, 0.03, (len(PHASES), STEPS, N))
    slow = np.zeros(N, bool)
    for step in range(STEPS):
        slow = np.where(slow, rng.random(N) > END, rng.random(N) < BEGIN)
        seconds[1, step, slow] *= BURST
    for worker, factor in SLOW.items():
        seconds[2, :, worker] *= factor
    return seconds.reshape(-1, N)


def phases_of(master: Any, speeds: Times) -> list[float]:
    """Wall-clock seconds of each phase, with all that lies between two rounds. The first step is done once before it counts."""
    master.gradient(np.zeros(DIM), 0)
    found = []
    for first in range(0, len(speeds), STEPS):
        began = time.monotonic()
        for step in range(first, first + STEPS):
            assert master.gradient(np.zeros(DIM), step).exact
        found.append(time.monotonic() - began)
    return found


def fixed(text: str, speeds: Times) -> dict[str, Any]:
    code = us.parse_code(text)
    with us.Master(code, us.engines.Local(problem(code, speeds))) as master:
        return row(code.name, phases_of(master, speeds))


def adaptive(speeds: Times) -> dict[str, Any]:
    """With every change, its predicted and its measured gain, and what it took."""

    def engine(code: Code) -> Any:
        return us.engines.Local(problem(code, speeds))

    with AdaptiveMaster(N, engine) as master:
        found = row("adaptive", phases_of(master, speeds))
        return found | {"switches": [switch.to_dict() for switch in master.switches]}


def row(name: str, seconds: list[float]) -> dict[str, Any]:
    found = {"scheme": name, "phases_s": [round(one, 2) for one in seconds], "total_s": round(sum(seconds), 2)}
    print(found, flush=True)
    return found


def main() -> None:
    speeds = draws()
    rows = [fixed(text, speeds) for text in FIXED]
    changing = adaptive(speeds)
    best = [min(rows, key=lambda one, place=place: one["phases_s"][place]) for place in range(len(PHASES))]  # type: ignore[misc]
    oracle = sum(one["phases_s"][place] for place, one in enumerate(best))
    first = min(rows, key=lambda one: one["total_s"])
    result = {
        "workers": N,
        "steps_of_a_phase": STEPS,
        "phases": PHASES,
        "unit_s": UNIT,
        "work": "a task sleeps for all of its time and is never left",
        "fixed": rows,
        "adaptive": changing,
        "oracle": {"schemes": [one["scheme"] for one in best], "total_s": round(oracle, 2)},
        "adaptive_over_oracle": round(changing["total_s"] / oracle, 3),
        "best_fixed": first["scheme"],
        "adaptive_over_best_fixed": round(changing["total_s"] / first["total_s"], 3),
        "best_fixed_over_oracle": round(first["total_s"] / oracle, 3),
    }
    print({key: result[key] for key in ("oracle", "adaptive_over_oracle", "best_fixed", "adaptive_over_best_fixed")})
    save("adaptive", result)
