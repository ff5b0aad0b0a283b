"""Rounds: the results of many rounds, simulated or recorded, with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..statistics import NORMAL_975, batch_means


@dataclass(frozen=True, eq=False)
class Sample:
    """One number per round, and what it says of the mean. chained: the rounds follow one another and are not independent."""

    values: NDArray[Any]
    chained: bool = False

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return float(self.values.mean(dtype=np.float64))

    @property
    def se(self) -> float:
        """Standard error of the mean; infinite for a single round or where a round never ended."""
        if len(self) < 2 or not np.isfinite(self.mean):
            return float("inf")
        values = batch_means(self.values) if self.chained else self.values
        return float(values.std(dtype=np.float64, ddof=1) / np.sqrt(len(values)))

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % confidence interval of the mean."""
        if not np.isfinite(self.mean):
            return self.mean, self.mean
        return self.mean - NORMAL_975 * self.se, self.mean + NORMAL_975 * self.se

    def quantile(self, q: float) -> float:
        return float(np.quantile(self.values, q, method="higher"))

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON, which has no infinity: null stands for it."""
        quantiles = {f"p{100 * q:g}": _finite(self.quantile(q)) for q in (0.5, 0.95, 0.99)}
        ends = [_finite(end) for end in self.ci95]
        return {"mean": _finite(self.mean), "se": _finite(self.se), "ci95": ends, **quantiles}


@dataclass(frozen=True, eq=False)
class Rounds:
    """Time and messages of each round. Prints as a small table.

    messages: sent up to the end, copies included. exact: whether the decoder calls the gradient exact. residual: the relative
    error of its coefficients, NaN where a round never ended or where it was not recorded. notes: where messages are announced
    and fetched (`transfer="pull"`), how many were announced up to the end; `messages` are then those that were fetched.
    """

    code: str
    time: Sample
    messages: Sample
    exact: Sample
    residual: Sample
    notes: Sample | None = None

    def __len__(self) -> int:
        return len(self.time)

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "code": self.code,
            "rounds": len(self),
            "exact": self.exact.mean,
            "time": self.time.to_dict(),
            "messages": self.messages.to_dict(),
            "residual": self.residual.to_dict(),
            **({} if self.notes is None else {"notes": self.notes.to_dict()}),
        }

    def __str__(self) -> str:
        lines = [f"{self.code}: {len(self)} rounds, {100 * self.exact.mean:.4g} % exact"]
        lines.append(f"  {'':10}{'mean':>10}{'95 % ±':>10}{'median':>10}{'p95':>10}{'p99':>10}")
        rows = {"time": self.time, "messages": self.messages}
        if self.notes is not None:
            rows["notes"] = self.notes
        if self.exact.mean < 1 and np.isfinite(self.residual.mean):
            rows["residual"] = self.residual
        for name, sample in rows.items():
            cells = (sample.mean, NORMAL_975 * sample.se, *(sample.quantile(q) for q in (0.5, 0.95, 0.99)))
            lines.append(f"  {name:10}" + "".join(f"{cell:>10.4g}" for cell in cells))
        return "\n".join(lines)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
