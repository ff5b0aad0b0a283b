"""What a comparison of schemes shows, beside what `diagnose` and `plan auto` say of its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..diagnosis import Diagnosis

Row = Mapping[str, Any]
Answer = Literal["code", "no code", "not resolved"]


@dataclass(frozen=True)
class Conclusion:
    """measured: what the times to the target loss say. said: what the diagnosis says. lines: both, to be printed."""

    measured: Answer
    said: Answer
    diagnosis: str
    plan: str | None
    lines: tuple[str, ...]

    @property
    def agree(self) -> bool:
        """Whether the measurement says what the diagnosis says."""
        return self.measured == self.said

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"agree": self.agree, "lines": list(self.lines)}


def conclude(rows: Sequence[Row], found: Diagnosis) -> Conclusion:
    """Compare the rows of a table, waiting for all first, with the diagnosis of that first run."""
    best = _best(rows)
    measured, words = _measured(rows[0], best)
    said: Answer = {"scheme": "code", "cannot tell": "not resolved"}.get(found.answer, "no code")  # type: ignore[assignment]
    plan = found.advice.verdict if found.advice else None
    lines = [f"diagnose:  {found.verdict}", *([f"plan auto: {plan}"] if plan else []), f"measured:  {words}"]
    lines += _as_predicted(rows, found)
    lines += [_agreement(measured, said)]
    return Conclusion(measured, said, found.verdict, plan, tuple(lines))


def _best(rows: Sequence[Row]) -> Row | None:
    """The code that reaches the target first with exact gradients."""
    exact = [row for row in rows[1:] if row["exact"] == 1.0 and row["to_target"]]
    return min(exact, key=lambda row: float(row["to_target"][0]), default=None)


def _measured(base: Row, best: Row | None) -> tuple[Answer, str]:
    if best is None:
        return "no code", "no code with exact gradients reached the target loss."
    (wait, wait_half), (coded, coded_half) = base["to_target"], best["to_target"]
    words = f"{best['scheme']} reaches the target in {coded:.1f} s, waiting for all in {wait:.1f} s"
    if coded + coded_half < wait - wait_half:
        return "code", f"{words}."
    if coded - coded_half > wait + wait_half:
        return "no code", f"{words}."
    return "not resolved", f"{words}: too close, or too few runs, to tell."


def _as_predicted(rows: Sequence[Row], found: Diagnosis) -> list[str]:
    """The prediction for the code that `plan auto` chose beside its time here."""
    chosen = found.advice.chosen if found.advice else None
    row = next((row for row in rows if chosen and row["code"] == chosen.name), None)
    if chosen is None or row is None:
        return []
    saved, (low, high) = 1 - row["wall"][0] / rows[0]["wall"][0], chosen.saving_ci95
    line = f"{row['scheme']}: {100 * saved:.0f} % of a step saved, {100 * low:.0f} to {100 * high:.0f} % predicted"
    late = "; a late worker is still in its old task when the next step begins" if saved < low else ""
    return [f"{line}{late}."]


def _agreement(measured: Answer, said: Answer) -> str:
    if measured == said == "code":
        return "They agree: coding is right here."
    if measured == said:
        return "They agree: no code." if said == "no code" else "Neither can tell."
    if measured == "not resolved":
        return f"The advice is: {said}. What was measured does not resolve it."
    return f"They do not agree: the advice is {said!r}, what was measured says {measured!r}."
