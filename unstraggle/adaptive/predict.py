"""What rounds would take with other codes: simulated on the times that were seen, plus what simulations leave out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import fractional_repetition, heterogeneity_aware, uncoded, uncoded_mmc, work_conserving
from ..latency import FixedCost, Replay
from ..scheme.code import Code
from ..study.simulation import simulate

Times = NDArray[np.float64]

PIECES, LOADS = (1, 2, 4, 8), (2, 4)
"""Into how many a share is cut, and how many shares a worker holds, where tasks are handed out."""
PASSES = 2
"""How often the rounds that were seen are gone through, so that what one leaves behind is counted in all of them."""
UNEVEN, LASTING = 1.15, 24
"""Loads in proportion to speed are tried where one worker takes so many times as long as another, in both halves of at least
so many rounds: they are for slowness that lasts, and a burst looks like that while it does."""


@lru_cache(maxsize=16)
def fixed_candidates(n: int, samples: float) -> tuple[Code, ...]:
    """Codes that are tried whatever was seen, the simplest first. samples: of a step, which can be cut into so many."""
    found = [uncoded(n)]
    found += [fractional_repetition(n, copies - 1) for copies in (2, 4) if n % copies == 0 and copies <= n]
    found += [uncoded_mmc(n, 2)] if n > 1 else []
    loads = sorted({min(load, n) for load in LOADS})
    found += [work_conserving(n, load=load, pieces=pieces) for pieces in PIECES for load in loads if n > 1]
    return tuple(code for code in found if code.k <= samples)


def candidates(speeds: Times, samples: float) -> Iterator[Code]:
    """Codes that are tried for the times (R, n) that were seen."""
    n = speeds.shape[1]
    yield from fixed_candidates(n, samples)
    usual = np.median(speeds, axis=0)
    if 4 * n <= samples and _lasts(speeds, usual):
        yield heterogeneity_aware(np.maximum(np.round(usual.min() / usual, 2), 0.01), s=0, k=4 * n)


def _lasts(speeds: Times, usual: Times) -> bool:
    """Whether workers differ, and in both halves of the rounds alike."""
    if len(speeds) < LASTING or usual.max() < UNEVEN * usual.min():
        return False
    first, second = (np.median(half, axis=0) for half in np.array_split(speeds, 2))
    return bool((np.maximum(first / second, second / first) < UNEVEN).all())


def simulated(code: Code, speeds: Times, cost: float = 0.0) -> Times:
    """(R,) seconds of the rounds with a code, carry-over counted; the mean of each round over the later passes."""
    model: Any = Replay(speeds)
    rounds = len(speeds) * PASSES
    values = simulate(code, FixedCost(model, cost) if cost else model, rounds=rounds, rng=0, carry=True, threads=1).time.values
    return np.asarray(values.reshape(PASSES, -1)[1:].mean(axis=0))


class Overheads:
    """What live rounds take beyond simulated ones: known of codes that ran, and for others by what these teach.

    A round has a cost of its own; where tasks are handed out, every piece of a worker's share has one, too: the word.

    >>> overheads = Overheads()
    >>> overheads.learn(uncoded(4), 0.25)
    >>> overheads.learn(work_conserving(4, load=2, pieces=4), 0.75)
    >>> overheads.of(work_conserving(4, load=2, pieces=8)), overheads.of(uncoded_mmc(4, load=2))
    (1.25, 0.25)
    """

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._handed: dict[str, int] = {}

    def learn(self, code: Code, seconds: float) -> None:
        """What a code took beyond its simulation, in the mean; with what was learned before, for rounds are few and uneven."""
        self._known[code.name] = (seconds + self._known.get(code.name, seconds)) / 2
        if code.handing is not None:
            self._handed[code.name] = code.k // code.n
        self.__dict__.pop("_typical", None)

    def of(self, code: Code) -> float:
        """Seconds of a round that no simulation counts."""
        if code.name in self._known:
            return self._known[code.name]
        round, word = self._typical
        return round + (word * (code.k // code.n) if code.handing is not None else 0.0)

    @cached_property
    def _typical(self) -> tuple[float, float]:
        """Of a round, and of a word."""
        plain = [seconds for name, seconds in self._known.items() if name not in self._handed]
        round = max(float(np.median(plain)), 0.0) if plain else 0.0
        words = [(self._known[name] - round) / pieces for name, pieces in self._handed.items()]
        return round, max(float(np.median(words)), 0.0) if words else 0.0
