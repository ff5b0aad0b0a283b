"""Switch: the record of a change of code, as it stands in traces, steps, reports, the live page and the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Invalid


@dataclass(frozen=True)
class Switch:
    """A change of code, or what became of one.

    kind: "switch" at the change, "measured" when rounds have shown what it gained. predicted, measured: share of the wait for a
    round that is saved by `code` over `was`. seconds: of a round, predicted or measured; before: with `was`. planning: seconds
    that the decision took; switching: seconds until workers were there again. step: the first of the new code, or the one
    before which it was measured.
    """

    kind: str
    code: str
    was: str
    why: str
    predicted: float
    seconds: float
    before: float
    measured: float | None = None
    step: int = 0
    planning: float = 0.0
    switching: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: _number(value) if isinstance(value, float) else value for name, value in vars(self).items()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Switch:
        """From what stands in a trace or in the record of a step."""
        if not isinstance(record, Mapping):
            raise Invalid(f"The record of a change is an object with its code, why and so on, but got {record!r}.")
        numbers: dict[str, Any] = {
            name: _float(record.get(name)) for name in ("predicted", "seconds", "before", "planning", "switching")
        }
        words: dict[str, Any] = {name: str(record.get(name, "")) for name in ("kind", "code", "was", "why")}
        measured, step = _float(record.get("measured")), record.get("step")
        return cls(
            **words, **numbers, measured=None if np.isnan(measured) else measured, step=step if isinstance(step, int) else 0
        )

    def __str__(self) -> str:
        each = f"{self.before:.3g} -> {self.seconds:.3g} s a round"
        if self.kind == "measured":
            return f"{self.code} saves {_percent(self.measured)} ({each}); predicted: {_percent(self.predicted)}. {self.why}"
        return f"{self.was} -> {self.code}: {self.why}; it should save {_percent(self.predicted)} ({each})"


def _float(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan


def _number(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None or np.isnan(share) else f"{100 * share:.0f} %"
