"""Head: what stands before the gradient in the vector that is decoded: sums of the loss, of its denominators, of metrics."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..errors import Invalid
from ..runtime.estimate import Estimate
from ..runtime.gather import Scaling
from .layout import Layout


class Head:
    """That of one step after another. mean: whether the loss is one over the samples.

    A gradient is multiplied by one over the samples of a mean, or over the denominators that are decoded with it.
    """

    def __init__(self, layout: Layout, mean: bool) -> None:
        self._layout, self._mean = layout, mean
        self._factor, self._sums = 1.0, np.zeros(0)

    def scaling(self, samples: int, step: int) -> Scaling:
        """What the gradient of a step is multiplied by while it is added up; then the head is known."""
        known = (1.0, 1) if self._layout.ratio else (self._share(samples), -1)
        return Scaling(self._layout.head, partial(self._take, samples, step), self._layout.sums, known)

    def loss_and_metrics(self, estimate: Estimate) -> tuple[float | None, dict[str, float]]:
        """The loss of the batch, and sums over it by name; None and nothing where they did not come."""
        if estimate.skipped:
            return None, {}
        wanted, sums = self._layout.metrics, self._sums
        loss = self._factor * float(sums[0]) if self._layout.loss else None
        return loss, dict(zip(wanted, sums[len(sums) - len(wanted) :].tolist(), strict=True))

    def _take(self, samples: int, step: int, numbers: Any) -> float:
        """The factor, once the numbers of the head are decoded."""
        self._sums = np.array(numbers[: self._layout.sums])
        self._factor = self._over_denominator(step) if self._layout.ratio else self._share(samples)
        return self._factor

    def _over_denominator(self, step: int) -> float:
        total = float(self._sums[1])
        if not total > 0:
            raise Invalid(
                f"Step {step}: the denominators of the loss add up to {total:g}, but must to more than 0. Is everything "
                "ignored in this batch?"
            )
        return 1 / total

    def _share(self, samples: int) -> float:
        """The factor where there is no denominator."""
        return 1 / samples if self._mean else 1.0
