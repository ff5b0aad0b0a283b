"""One step as the live page knows it, from what a master or a training says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import Invalid
from ...scheme.code import Code


@dataclass(frozen=True)
class Record:
    """A step: seconds, loss, whether exact; and the workers: used, late (alive, but not waited for) and lost."""

    step: int
    time: float
    loss: float | None
    exact: bool
    used: tuple[int, ...]
    late: tuple[int, ...]
    lost: tuple[int, ...]
    bytes: int
    damaged: int
    duplicates: int
    skipped: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def record_of(step: Any, code: Code | None, loss: float | None) -> Record:
    """From an `Estimate`, whose workers the code tells, or from the `Info` of a training step."""
    if hasattr(step, "waited"):
        used, late, lost, seconds = step.used, step.late, step.dead, step.waited
        loss = step.loss if loss is None else loss
    elif hasattr(step, "got"):
        used, late, lost, seconds = *_workers(step, code), step.lost, step.time
    else:
        raise Invalid(f"The live page takes an Estimate or an Info of a step, but got {type(step).__name__}.")
    return Record(
        step=int(step.step),
        time=float(seconds),
        loss=float(loss) if loss is not None and math.isfinite(loss) else None,
        exact=bool(step.exact),
        used=tuple(map(int, used)),
        late=tuple(map(int, late)),
        lost=tuple(map(int, lost)),
        bytes=int(step.bytes),
        damaged=int(step.damaged),
        duplicates=int(getattr(step, "duplicates", 0)),
        skipped=bool(step.skipped),
    )


def _workers(estimate: Any, code: Code | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(used, late); nothing where there is no code to tell."""
    if code is None:
        return (), ()
    used = set(np.unique(code.messages.worker[estimate.got]).tolist())
    return tuple(sorted(used)), tuple(sorted(set(range(code.n)) - used - set(estimate.lost)))
