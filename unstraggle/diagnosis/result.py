"""What a diagnosis says: a verdict, its reasons, the culprits, and what would help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..plan.advice import Advice
from ..plan.cause import Cause
from .remedies import Remedy, named

Kind = Literal["healthy", "transient", "persistent", "data", "mixed", "unknown"]
Answer = Literal["scheme", "instead", "nothing", "cannot tell"]

WORDS = {
    "healthy": "Healthy",
    "transient": "Transient stragglers",
    "persistent": "Persistent stragglers",
    "data": "Data-caused stragglers",
    "mixed": "Stragglers of several kinds",
    "unknown": "Cannot tell",
}


@dataclass(frozen=True)
class Worker:
    """A worker's time over the median one's (geometric mean), how often it was slowest, and how often it finished nothing."""

    worker: int
    factor: float
    slowest: float
    unfinished: float


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What a trace says. Prints as a verdict, its reasons and a table of what would help.

    kind: of straggling. idle_share: of the workers' time, what goes into waiting for the slowest, with its 95 % interval.
    where: whether workers are late because they compute slowly or because their messages travel slowly. workers: the
    culprits. answer and action: what to do. remedies: what helps without a code; advice: how the schemes do, None for traces
    that are too short or incomplete. Savings are shares of the time of waiting for all, on rounds that nothing was chosen on.
    """

    kind: Kind
    answer: Answer
    action: str
    idle_share: float
    idle_share_ci95: tuple[float, float]
    where: Literal["compute", "link"]
    workers: tuple[int, ...]
    table: tuple[Worker, ...]
    reasons: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    cause: Cause
    advice: Advice | None

    @property
    def verdict(self) -> str:
        """One or two sentences: what it is, what it costs, what to do."""
        if self.kind == "unknown":
            what = "how late workers are" if np.isnan(self.idle_share) else "what kind of stragglers there are, if any"
            return f"Cannot tell {what}. {_sentence(self.action)}"
        who = f" ({named(self.workers)})" if self.workers and self.kind != "healthy" else ""
        waiting = f"{100 * self.idle_share:.1f} % of the workers' time is spent waiting"
        return f"{WORDS[self.kind]}{who}: {waiting}. {_sentence(self.action)}"

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON, which has no NaN: null stands for it."""
        plain = ("kind", "verdict", "answer", "action", "where")
        return {
            **{name: getattr(self, name) for name in plain},
            "idle_share": _number(self.idle_share),
            "idle_share_ci95": [_number(end) for end in self.idle_share_ci95],
            "workers": list(self.workers),
            "table": [{name: _number(value) for name, value in vars(row).items()} for row in self.table],
            "reasons": list(self.reasons),
            "remedies": [remedy.to_dict() for remedy in self.remedies],
            "schemes": self.advice.to_dict() if self.advice else None,
        }

    def __str__(self) -> str:
        lines = [self.verdict, *(f"  - {reason}" for reason in self.reasons)]
        options = self.options()
        if options:
            lines += ["", f"  {'saved':>8}{'95 % interval':>19}  what"]
        lines += [f"  {100 * saved:>6.1f} %{percent(interval):>19}  {what}" for what, saved, interval in options]
        return "\n".join(lines)

    def options(self, most: int = 6) -> list[tuple[str, float, tuple[float, float]]]:
        """(what, saving, interval) of the remedies and of the schemes that do best, best first."""
        rows = [(f"{r.action}{' (at most)' * r.bound}", r.saving, r.saving_ci95) for r in self.remedies]
        schemes = [c for c in self.advice.candidates if c.name != "wait for all"] if self.advice else []
        chosen = self.advice.chosen if self.advice else None
        exact = sorted((c for c in schemes if c.exact), key=lambda c: c is not chosen)[: max(most - len(rows), 1)]
        rows += [(c.name, c.saving, c.saving_ci95) for c in exact]
        rows += [(f"{c.name} (not exact)", c.saving, c.saving_ci95) for c in schemes if not c.exact][:1]
        return sorted(rows, key=lambda row: -row[1])


def percent(interval: tuple[float, float]) -> str:
    """An interval of shares: '+3.1 to +4.6 %'."""
    return f"{100 * interval[0]:+.1f} to {100 * interval[1]:+.1f} %"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
