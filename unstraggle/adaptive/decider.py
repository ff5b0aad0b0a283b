"""Decider: rounds in, "stay" or "use this code, because" out. It touches nothing and reads no clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..scheme.code import Code
from ..statistics import saving_of
from .change import changed
from .predict import Overheads, candidates, simulated
from .seen import Seen, Times, cost_of_a_task, speeds
from .switch import Switch

WORTH = 0.03
"""A code that does not surely save this share of a round is not worth a change. `plan.auto` asks for more: there, a person has
to make it."""
LEAST, AGAIN = 8, 1.5
"""Rounds of a pattern from which on is planned; then again whenever there are so many times as many."""
TRIAL = 8
"""Rounds after which it is looked at what a change has gained."""
WINDOW, KEPT = 64, 128
"""The latest rounds, on which codes are tried, and those that are kept."""
SURELY = 2.0
"""Standard errors by which rounds must take longer than before for it to go back."""
SAME = 1.1
"""The middle worker is as fast as before if it takes less than so many times as long."""
CLOSE, UNSURE = 0.02, 0.1
"""The simplest code is taken that takes at most so much longer than the best; the latter while it is not known what a task
costs however small it is, so that small pieces are not taken at a venture."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What was found out about the last change, if anything, and the code to use from now on, if it is another one."""

    measured: Switch | None = None
    switch: Switch | None = None
    code: Code | None = None


STAY = Decision()


class Decider:
    """Learns the times of tasks from rounds, and says when another code would be faster for what is left of a pattern.

    A pattern is expected to last as long again as it has lasted: a change must have paid for itself by then. It must surely
    save `worth` of a round, by the interval of paired rounds. code: that which runs. samples: of a step. cost: seconds that a
    change of code takes; whoever makes it says what it took.

    >>> from unstraggle.codes import uncoded
    >>> decider, slow = Decider(uncoded(4)), np.array([1.0, 1.0, 1.0, 3.0])
    >>> said = [decider.feed(Seen("uncoded(4)", 1.0, 3.0, slow, np.zeros(4))) for _ in range(8)]
    >>> said[6].code, said[7].code.name
    (None, 'work_conserving(4, load=4, pieces=8)')
    """

    def __init__(self, code: Code, *, samples: float = np.inf, worth: float = WORTH, cost: float = 0.0) -> None:
        self.code, self._samples, self.worth, self.cost = code, samples, worth, cost
        self._overheads = Overheads()
        self._known: float | None = None
        self._rounds: list[Seen] = []
        self._age, self._due, self._own = 0, LEAST, 0
        self._why = "the first rounds"
        self._trial: tuple[Code, Switch] | None = None

    @property
    def task(self) -> float:
        """Seconds that a task costs however small it is, as far as that is known."""
        return self._known or 0.0

    def feed(self, round: Seen) -> Decision:
        """Take a round that is over."""
        self._rounds = [*self._rounds, round][-KEPT:]
        self._age, self._own = self._age + 1, min(self._own + 1, KEPT)
        self._look_for_changes()
        if self._trial is not None and self._own < TRIAL:
            return STAY
        judged = STAY if self._trial is None else self._judge()
        if judged.code is not None or self._age < self._due:
            return judged
        return replace(self._plan(), measured=judged.measured)

    def expect(self, code: Code, why: str) -> Switch:
        """What a change to a code should gain, by the rounds that were seen."""
        if not self._rounds:
            return Switch("switch", code.name, self.code.name, why, np.nan, np.nan, np.nan)
        window = speeds(self._rounds[-WINDOW:], self.task)
        return _switch(code, self.code, why, self._predicted(code, window), self._predicted(self.code, window))

    def use(self, code: Code, switch: Switch) -> None:
        """The code has been changed, for whatever reason."""
        self._trial, self.code, self._own = (self.code, switch), code, 0

    # Has the cluster changed?

    def _look_for_changes(self) -> None:
        if self._age < LEAST:
            return  # a new pattern, which is not planned for yet
        found = changed(_waits(self._rounds[-self._own :]), speeds(self._rounds, self.task), self.worth)
        if found is None:
            return
        self._rounds = self._rounds[-found.rounds :]
        self._age, self._own, self._due, self._why = found.rounds, min(self._own, found.rounds), LEAST, found.what

    # Which code?

    def _plan(self) -> Decision:
        self._due = int(AGAIN * self._age)
        window = speeds(self._rounds[-WINDOW:], self.task)
        self._learn()
        now = self._predicted(self.code, window)
        tried = {code: self._predicted(code, window) for code in candidates(window, self._samples)}
        fastest = min(times.mean() for times in tried.values())
        most = (1 + (UNSURE if self._known is None else CLOSE)) * fastest
        best, times = next((code, times) for code, times in tried.items() if times.mean() <= most)
        _, (low, _) = saving_of(times, now)
        if best.name == self.code.name or low <= self.worth or not self._pays(now, times):
            return STAY
        return Decision(None, _switch(best, self.code, self._why, times, now), best)

    def _pays(self, now: Times, then: Times) -> bool:
        """Whether what is saved pays for the change, if the pattern lasts as long again."""
        return self._age * float(now.mean() - then.mean()) > self.cost

    def _predicted(self, code: Code, window: Times) -> Times:
        return simulated(code, window, self.task) + self._overheads.of(code)

    def _learn(self, window: Times | None = None) -> None:
        """What the code that runs takes beyond its simulation on its own rounds, or on others of the same pattern."""
        own = self._rounds[-min(self._own, WINDOW) :]
        window = speeds(own, self.task) if window is None else window
        self._overheads.learn(self.code, float(_waits(own).mean() - simulated(self.code, window, self.task).mean()))

    # What has it gained?

    def _judge(self) -> Decision:
        """Compare the rounds of the new code with those before the change, and go back if they take longer."""
        assert self._trial is not None
        (was, switch), self._trial = self._trial, None
        own, before = self._rounds[-self._own :], [one for one in self._rounds[: -self._own] if one.code == was.name]
        cost = cost_of_a_task(self._rounds)
        self._known = self._known if cost is None else cost
        now, then = _waits(own), _waits(before)
        gained = 1 - float(now.mean()) / switch.before
        told = replace(
            switch, kind="measured", why=f"measured on {len(own)} rounds", seconds=float(now.mean()), measured=gained
        )
        worse = len(then) >= TRIAL and now.mean() - then.mean() > SURELY * _error(now, then) and self._pays(now, then)
        if not worse or self._by_chance(was, own, before):
            return Decision(told)
        self._learn(speeds(before[-WINDOW:], self.task))
        return Decision(told, _switch(was, self.code, "it takes longer than before", then, now), was)

    def _by_chance(self, was: Code, own: list[Seen], before: list[Seen]) -> bool:
        """Whether the code before would have taken as long in the rounds of the new one, for workers were slower in them.

        That is no explanation where the middle worker is: then tasks of another size have costs that are not known yet.
        """
        mine, theirs = speeds(own, self.task), speeds(before[-WINDOW:], self.task)
        alike = bool(np.median(mine) < SAME * np.median(theirs))
        return alike and bool(self._predicted(was, mine).mean() >= _waits(own).mean())


def _waits(rounds: list[Seen]) -> Times:
    return np.array([one.wait for one in rounds])


def _error(one: Times, other: Times) -> float:
    """The standard error of a difference of means."""
    return float(np.sqrt(one.var() / len(one) + other.var() / len(other)))


def _switch(code: Code, was: Code, why: str, then: Times, now: Times) -> Switch:
    """now, then: (R,) seconds of the same rounds with each of both codes."""
    after, before = float(then.mean()), float(now.mean())
    return Switch("switch", code.name, was.name, why, 1 - after / before, after, before)
