"""Holding: how long workers wait after their own message before they begin what nobody may need. Learned; no I/O."""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..scheme.code import Code
from ..scheme.decoders import is_exact

ROUNDS, LEARNED, RECENT = 20, 5, 3
"""Rounds from which is learned, how many must be known first, and the last ones: where workers have lost step, these tell."""
ALIKE = 1.25
"""Tasks are alike if the slowest takes at most so many times as long as the quickest: a calm round."""
USUALLY = 0.5
"""Of the rounds, so many must be calm: else workers that straggle are usual, and nobody waits."""
LEAST, MOST = 0.1, 0.75
"""The shortest and the longest wait, as fractions of the usual round. Who begins a moment too early pays with a whole task; in
a round that needs redundant work, it begins so much later. The longest brings workers together again that have lost step."""
SLACK = 1.25
"""How much longer is waited than the usual gap of calm rounds."""


class Hold(NamedTuple):
    """After `after` messages of its own a worker waits so many seconds before its next task, or until the round is over."""

    seconds: float
    after: int


class Holding:
    """The usual gap between a worker's own messages and the end of the round, from rounds that have been.

    Where nobody straggles, the first messages of all workers end the round a moment after they were sent. Who has begun a
    redundant task by then is in it when the next round begins, for a task cannot be left. So workers wait for that moment,
    where calm rounds are usual.

    >>> from unstraggle.codes import uncoded_mmc
    >>> holding = Holding(uncoded_mmc(2, load=2))
    >>> for _ in range(5):
    ...     holding.learn(np.array([0.9, np.inf, 1.0, np.inf]), np.zeros(4), end=1.0)
    >>> holding.hold
    Hold(seconds=0.125, after=1)
    """

    def __init__(self, code: Code) -> None:
        self.after = enough_messages(code)
        self._last = _message_of(code, self.after) if self.after else None
        self._gaps: deque[float] = deque(maxlen=ROUNDS)
        self._ends: deque[float] = deque(maxlen=ROUNDS)

    def learn(self, arrivals: NDArray[np.float64], starts: NDArray[np.float64], end: float) -> None:
        """A round is over. arrivals: (M,) when its messages came, infinite for those that did not. starts: of their tasks.

        Who starts late was in a task of the round before: that makes a gap, and no straggler.
        """
        if self._last is None:
            return
        first = arrivals[self._last]
        lasted = first - starts[self._last]
        calm = np.isfinite(first).all() and lasted.max() <= ALIKE * lasted.min()
        self._gaps.append(float(end - first.min()) if calm else np.inf)
        self._ends.append(end)

    @property
    def hold(self) -> Hold | None:
        """What the next order says; None: go on at once."""
        calm = [gap for gap in self._gaps if gap < np.inf]
        if len(self._gaps) < LEARNED or len(calm) < USUALLY * len(self._gaps):
            return None
        gap, usual = float(max(np.median(calm), np.median(calm[-RECENT:]))), float(np.median(self._ends))
        return Hold(round(float(np.clip(SLACK * gap, LEAST * usual, MOST * usual)), 6), self.after)


@lru_cache(maxsize=64)
def enough_messages(code: Code) -> int:
    """How many messages of every worker give the exact gradient, so that what it does behind them is redundant; 0: all of them.

    >>> from unstraggle.codes import cyclic_repetition, uncoded_mmc
    >>> enough_messages(uncoded_mmc(4, load=3)), enough_messages(cyclic_repetition(4, s=1))
    (1, 0)
    """
    if code.handing is not None:
        return 0
    numbers = _numbers(code)
    for count in range(1, int(numbers.max()) + 1):
        if is_exact(code.decoder, numbers < count):
            return count
    return 0


def _numbers(code: Code) -> NDArray[np.int64]:
    """(M,) the number of each message among those of its worker, in the order in which they are sent: 0, 1, ..."""
    senders, after = code.messages.worker, code.messages.after
    order = np.lexsort((np.arange(len(senders)), after, senders))
    begins = np.searchsorted(senders[order], senders[order])
    numbers = np.empty(len(senders), dtype=np.int64)
    numbers[order] = np.arange(len(senders)) - begins
    return numbers


def _message_of(code: Code, count: int) -> NDArray[np.int64]:
    """The message with that number of every worker that has one, counted from 1."""
    return np.flatnonzero(_numbers(code) == count - 1)
