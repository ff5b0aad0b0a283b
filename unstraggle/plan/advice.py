"""What `auto` answers: candidates with their held-out times, and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..runtime.terms import Transfer
from .base import Plan
from .cause import Cause


@dataclass(frozen=True, eq=False)
class Candidate:
    """A scheme and what it does on rounds that it was not chosen on.

    time: mean seconds per round, with its interval. saving: share of the time that waiting for all takes, with the interval of
    the paired difference. exact: whether every round gives the exact gradient. seen: mean time on the rounds used for choosing.
    transfer: whether workers send every message, "push", or the master fetches what it will use, "pull": the faster of the two.
    messages: sent per round, or fetched; volume: the same in whole gradients of 32 bits per coordinate, as messages of blocks
    are smaller.
    """

    name: str
    plan: Plan
    exact: bool
    seen: float
    time: float
    time_ci95: tuple[float, float]
    saving: float
    saving_ci95: tuple[float, float]
    messages: float
    volume: float
    transfer: Transfer = "push"

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        keys = ("name", "exact", "seen", "time", "time_ci95", "saving", "saving_ci95", "messages", "volume", "transfer")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True, eq=False)
class Advice:
    """The answer: a verdict, its reasons, the chosen scheme (None where none is worth it) and all candidates, fastest first.

    There are no candidates where it cannot predict. line: a command that tries what was chosen.
    """

    verdict: str
    reasons: tuple[str, ...]
    chosen: Candidate | None
    candidates: tuple[Candidate, ...]
    cause: Cause | None
    held_out: bool

    def to_dict(self) -> dict[str, Any]:
        """Numbers for JSON."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "chosen": self.chosen.name if self.chosen else None,
            "code": self.chosen.plan.code.name if self.chosen else None,
            "held_out": self.held_out,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
        }

    @property
    def line(self) -> str | None:
        """To paste: the chosen code as an expression, which `Coded(scheme=...)` and every command take; None where none is."""
        if self.chosen is None:
            return None
        fetched = " --transfer pull" if self.chosen.transfer == "pull" else ""
        return f'unstraggle run "{self.chosen.plan.code.name}"{fetched} -o out/run'

    def __str__(self) -> str:
        lines = [self.verdict, *(f"  - {reason}" for reason in self.reasons)]
        if not self.candidates:
            return "\n".join(lines)
        lines += ["", f"  {'time':>9}{'saved':>9}{'95 % interval':>19}{'messages':>10}{'volume':>8}  scheme"]
        for c in self.candidates:
            low, high = c.saving_ci95
            interval = f"{100 * low:+.1f} to {100 * high:+.1f} %"
            note = ("" if c.exact else "  (not exact)") + ("  (pull)" if c.transfer == "pull" else "")
            lines.append(
                f"  {c.time:>9.4g}{100 * c.saving:>8.1f}%{interval:>19}{c.messages:>10.1f}{c.volume:>8.1f}  {c.name}{note}"
            )
        return "\n".join(lines)
