"""Info: what happened in a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.estimate import Estimate, Split
from ..scheme.code import Code


@dataclass(frozen=True)
class Info:
    """One step of coded training.

    loss: of the whole batch, a mean or a sum as loss_fn is; decoded like the gradient, so as exact as that; None where messages
    are quantised. waited: seconds from the order to the last message needed. used: workers of which a message was used; late:
    those alive of which none was; dead: those lost. dropped: messages of earlier steps that came meanwhile. residual: relative
    error of the decoded coefficients. skipped: no gradient could be had, and `p.grad` was left alone.
    """

    step: int
    epoch: int
    loss: float | None
    exact: bool
    waited: float
    used: tuple[int, ...]
    late: tuple[int, ...]
    dead: tuple[int, ...]
    bytes: int
    residual: float
    samples: int
    dropped: int = 0
    damaged: int = 0
    skipped: bool = False
    split: Split = field(default=Split(0.0, 0.0, 0.0, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "split": dict(vars(self.split))}


def info_of(estimate: Estimate, code: Code, epoch: int, samples: int, loss: float | None) -> Info:
    """The record of a step from the estimate of its round."""
    used = set(np.unique(code.messages.worker[estimate.got]).tolist())
    late = set(range(code.n)) - used - set(estimate.lost)
    return Info(
        step=estimate.step,
        epoch=epoch,
        loss=loss,
        exact=estimate.exact,
        waited=estimate.time,
        used=tuple(sorted(used)),
        late=tuple(sorted(late)),
        dead=estimate.lost,
        bytes=estimate.bytes,
        residual=estimate.residual,
        samples=samples,
        dropped=estimate.late,
        damaged=estimate.damaged,
        skipped=estimate.skipped,
        split=estimate.split,
    )
