"""Work-conserving rounds on recorded ones: micro-batches are the pieces, chosen on one half of a trace, scored on the other.

Needs compute_seconds.npz of the published traces (see docs/traces.md), in the folder that UNSTRAGGLE_TRACES names. A slow
micro-batch may be slow by its machine, or by its data, which are then as slow elsewhere: both are scored. Simulated, with
carry-over; no clock is read.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstraggle import Code, simulate
from unstraggle.codes import fractional_repetition, uncoded, uncoded_mmc, work_conserving
from unstraggle.latency import Replay
from unstraggle.plan import block_sizes
from unstraggle.trace import read

from .common import save

JOBS, HOLDS = ("SE", "AR"), (2, 3, 4)


@dataclass(frozen=True, eq=False)
class Recorded:
    """Rounds of micro-batches (rounds, n, q), which take as long on any worker (data), or as the round's mean of a worker."""

    batches: NDArray[np.float64]
    data: bool

    def durations(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        (_, n, q), tasks = self.batches.shape, code.tasks
        if not self.data:
            return np.asarray(self.batches.sum(axis=2)[:rounds, tasks.worker] * tasks.work)
        pieces = self.batches[:rounds].reshape(rounds, code.k, n * q // code.k).sum(axis=2)
        return np.asarray(pieces[:, tasks.part] * (tasks.work * code.k / n))

    def sample(self, code: Code, rounds: int, rng: np.random.Generator) -> NDArray[np.float64]:
        from unstraggle.latency import arrivals

        return arrivals(code, self.durations(code, rounds, rng))


def main() -> None:
    folder = Path(os.environ.get("UNSTRAGGLE_TRACES", ""))
    if not (folder / "compute_seconds.npz").exists():
        print("Skipped: set UNSTRAGGLE_TRACES to the folder with compute_seconds.npz (docs/traces.md says whose it is).")
        return
    rows = [row for job in JOBS for row in measured(job, read(folder / "compute_seconds.npz", key=f"{job}_mb").durations)]
    for row in rows:
        print("{job} by {cause:8}{scheme:52}{seconds:8.2f} s{saved:8.1%}".format(**row))
    save("traces_handed", {"held_out": "the second half of the rounds", "rows": rows})


def measured(job: str, batches: NDArray[np.float64]) -> Iterator[dict[str, Any]]:
    """Waiting, the best code with a fixed assignment, and work-conserving rounds for workers that hold 2, 3 and 4 shares."""
    half, (_, n, q) = len(batches) // 2, batches.shape
    for cause in ("machine", "data"):
        seen, held = (Recorded(part, cause == "data") for part in (batches[:half], batches[half:]))
        wait = mean(uncoded(n), held)
        static = min(statics(n, batches[:half].sum(axis=2)), key=lambda code: mean(code, seen))
        handed = [work_conserving(n, load, q, helpers=helps) for load in HOLDS if load <= n for helps in (False, True)]
        for code in (uncoded(n), static, *handed):
            took = mean(code, held)
            name = code.name if len(code.name) < 60 else f"blocks of {len(code.blocks)} sizes"
            yield {"job": job, "cause": cause, "scheme": name, "seconds": round(took, 3), "saved": round(1 - took / wait, 4)}


def mean(code: Code, model: Recorded) -> float:
    return float(simulate(code, model, rounds=len(model.batches), rng=0, carry=True).time.mean)


def statics(n: int, shares: NDArray[np.float64]) -> Iterator[Code]:
    """Exact codes that say before the round who computes what."""
    yield from (fractional_repetition(n, s) for s in (1, 3) if n % (s + 1) == 0)
    yield from (uncoded_mmc(n, load) for load in HOLDS if load <= n)
    yield from (block_sizes(Replay(shares), n, 10_000, method).code for method in ("optimal", "tandon_tuned"))


if __name__ == "__main__":
    main()
