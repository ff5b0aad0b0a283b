"""How many stragglers each group of layers should tolerate, counted with what a backward pass in stages really costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..scheme.arrivals import Speeds

if TYPE_CHECKING:
    from .profile import Profile

Floats = NDArray[np.float64]
Tolerances = tuple[int, ...]

PIECES, CHOICES = 24, 12
"""Most pieces that groups are put together to, and most numbers of stragglers that are tried for each, while searching."""


def runs(tolerances: Sequence[int]) -> list[tuple[int, slice]]:
    """Neighbouring groups that tolerate the same number of stragglers: that number, and the groups.

    >>> runs([0, 0, 2])
    [(0, slice(0, 2, None)), (2, slice(2, 3, None))]
    """
    changes = [place for place in range(1, len(tolerances)) if tolerances[place] != tolerances[place - 1]]
    return [(int(tolerances[a]), slice(a, b)) for a, b in pairwise([0, *changes, len(tolerances)])]


def leaving(profile: Profile, tolerances: Sequence[int], n: int) -> Floats:
    """(blocks,) work that a worker has done when the message of each block leaves, in units of a whole partial gradient.

    A worker does block after block; in each the partitions that its cyclic code gives it, the same ones for all blocks.
    """
    passed, whole = (np.concatenate([[0.0], np.cumsum(costs)]) for costs in (profile.passed, profile.whole))
    reached, begun = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    done, times = 0.0, []
    for s, groups in runs(tolerances):
        mine = slice(0, s + 1)
        done += profile.forward * float((~begun[mine]).sum())
        done += float((passed[groups.start] - passed[reached[mine]] + whole[groups.stop] - whole[groups.start]).sum())
        reached[mine], begun[mine] = groups.stop, True
        times.append(done)
    return np.array(times) / (profile.forward + float(whole[-1]))


def round_times(profile: Profile, tolerances: Sequence[int], speeds: Floats) -> Floats:
    """(rounds,) time of a round: each block waits for all but s of n workers. speeds: (rounds, n), sorted in each round."""
    n = speeds.shape[1]
    waits = speeds[:, [n - 1 - s for s, _ in runs(tolerances)]]
    return np.asarray((waits * leaving(profile, tolerances, n)).max(axis=1))


def sorted_speeds(latency: Any, n: int, rounds: int, rng: np.random.Generator) -> Floats:
    """(rounds, n) seconds per unit of work, sorted in each round."""
    speeds = latency.speeds(n, rounds, rng) if isinstance(latency, Speeds) else None
    if speeds is None:
        raise Invalid(f"Profile.plan needs a latency model in which a worker has one speed per round, but got {latency}.")
    return np.sort(np.asarray(speeds), axis=1)


def search(profile: Profile, speeds: Floats, starts: Sequence[Sequence[int]]) -> Tolerances:
    """Tolerances that no change of a piece, or of all pieces up to or from one, makes faster; the best of several starts."""
    n = speeds.shape[1]
    choices = np.unique(np.rint(np.linspace(0, n - 1, min(n, CHOICES)))).astype(int).tolist()
    pieces = _pieces(profile)

    def cost(tolerances: Sequence[int]) -> float:
        return float(round_times(profile, tolerances, speeds).mean())

    levels = [(s,) * len(profile.sizes) for s in range(n)]
    found = [_improved(tuple(map(int, start)), cost, choices, pieces) for start in (*starts, min(levels, key=cost))]
    return min([levels[0], *found], key=cost)


def _pieces(profile: Profile) -> list[slice]:
    """Groups put together to few pieces of about the same cost."""
    shares, count = np.cumsum(profile.whole) / sum(profile.whole), min(PIECES, len(profile.whole))
    ends = {int(np.searchsorted(shares, number / count - 1e-9)) + 1 for number in range(1, count)}
    return [slice(a, b) for a, b in pairwise(sorted({0, *ends, len(shares)}))]


def _improved(start: Tolerances, cost: Any, choices: Sequence[int], pieces: Sequence[slice]) -> Tolerances:
    best, least, going = start, cost(start), True
    while going:
        going = False
        for other in _neighbours(best, choices, pieces):
            if (value := cost(other)) < least - 1e-12:
                best, least, going = other, value, True
    return best


def _neighbours(tolerances: Tolerances, choices: Sequence[int], pieces: Sequence[slice]) -> Iterator[Tolerances]:
    end = len(tolerances)
    for piece in pieces:
        for begin, stop in ((piece.start, piece.stop), (0, piece.stop), (piece.start, end)):
            for s in choices:
                yield (*tolerances[:begin], *[s] * (stop - begin), *tolerances[stop:])
