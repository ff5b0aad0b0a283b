"""Info: what happened in a step of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..runtime.estimate import Estimate
from ..runtime.step import Step, record

SAME = tuple(each.name for each in fields(Step))


@dataclass(frozen=True, kw_only=True)
class Info(Step):
    """One step of coded training: the record of its round, and what the training adds to it.

    loss: of the whole batch, a mean or a sum as loss_fn is; decoded like the gradient, so as exact as that; None where messages
    are quantised. samples: of the batch. epoch: the step's. metrics: sums over the batch that loss_fn gave by name. Where the
    step was skipped, `p.grad` was left alone.
    """

    loss: float | None = None
    samples: int = 0
    epoch: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return record(self, Info)


def info_of(estimate: Estimate, epoch: int, samples: int, loss: float | None, metrics: Mapping[str, float]) -> Info:
    """The record of a step from the estimate of its round."""
    same = {name: getattr(estimate, name) for name in SAME}
    return Info(**same, epoch=epoch, samples=samples, loss=loss, metrics=metrics)
