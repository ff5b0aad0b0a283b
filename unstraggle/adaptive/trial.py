"""Trial: a planned code beside waiting for all, on the first steps of a run, before it is believed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..codes import uncoded
from ..errors import Invalid
from ..scheme.code import Code
from .decider import STAY, Decision
from .seen import Seen
from .switch import Switch

STEPS = 20
"""Of a trial: half of them with the planned code, and half waiting for all."""


class Trial:
    """A decider that tries the code for half of the steps, then waits for all for the other half, and goes on with what was
    faster: with the code where it saved more than `worth` of the mean wait. The first round of each half is left out.

    predicted: the share of a round that it should save.

    >>> from unstraggle.codes import fractional_repetition
    >>> trial = Trial(fractional_repetition(4, s=1), predicted=0.5, steps=8)
    >>> rounds = [Seen("", 1.0, wait, np.ones(4), np.zeros(4)) for wait in (9.0, 2.0, 2.0, 2.0, 9.0, 3.0, 3.0, 3.0)]
    >>> said = [trial.feed(round) for round in rounds]
    >>> said[3].code.name, said[7].code.name, str(said[7].measured)[:47]
    ('uncoded(4)', 'fractional_repetition(4, s=1)', 'fractional_repetition(4, s=1) saves 33 % (3 -> ')
    """

    def __init__(self, code: Code, predicted: float, *, worth: float = 0.05, steps: int = STEPS) -> None:
        if not isinstance(steps, int) or steps < 4:
            raise Invalid(f"A trial has at least 4 steps, but got trial={steps!r}. Use 20, or 0 for none.")
        self.code, self._planned, self._predicted, self._worth = code, code, predicted, worth
        self._half, self.cost = steps // 2, 0.0
        self._waits: list[float] = []

    def feed(self, round: Seen) -> Decision:
        """Take a round that is over."""
        self._waits.append(round.wait)
        if len(self._waits) == self._half:
            everybody = uncoded(self._planned.n)
            return Decision(None, self.expect(everybody, "a trial, to compare with"), everybody)
        return self._judge() if len(self._waits) == 2 * self._half else STAY

    def expect(self, code: Code, why: str) -> Switch:
        """A change, of which only the trial tells what it gains."""
        return Switch("switch", code.name, self.code.name, why, np.nan, np.nan, np.nan)

    def use(self, code: Code, switch: Switch) -> None:
        """The code has been changed."""
        self.code = code

    def _judge(self) -> Decision:
        with_code, with_all = np.array(self._waits).reshape(2, -1)[:, 1:].mean(axis=1).tolist()
        saved = 1 - with_code / with_all
        kept = saved > self._worth
        what = "confirmed" if kept else f"less than {100 * self._worth:g} %: the run waits for all"
        why = f"tried on {self._half} steps each, {what}"
        names, seconds = (self._planned.name, uncoded(self._planned.n).name), (with_code, with_all)
        told = Switch("measured", *names, why, self._predicted, *seconds, measured=saved)
        if not kept:
            return Decision(told)
        back = replace(told, kind="switch", measured=None, predicted=saved, why="the trial confirms it")
        return Decision(told, back, self._planned)
