"""Gradient coding with dynamic clustering (Buyukates et al. 2020), as a proof that codes may change from round to round.

Eight workers in two clusters; worker q and worker q + 4 hold partitions q and q + 1 of both, and change places.
"""

from dataclasses import replace

import numpy as np

from unstraggle import Messages, Tasks, codes
from unstraggle.scheme.decoders import Part, Parts

SIZE = 4
N = 2 * SIZE


def placement():
    """What workers hold: two neighbouring partitions of each cluster. A code by itself, which asks for all of it."""
    worker = np.repeat(np.arange(N), 4)
    place = worker % SIZE
    part = np.where(np.arange(4 * N) % 4 < 2, 0, SIZE) + (place + np.arange(4 * N) % 2) % SIZE
    whole = clustered(np.repeat([0, 1], SIZE))
    return replace(whole, tasks=Tasks(worker, part), messages=whole.messages.changed(after=4), name="placement of two clusters")


def clustered(cluster):
    """cluster: (8,) 0 or 1 for each worker; worker q and worker q + 4 are in different ones. Each tolerates one straggler."""
    one = codes.cyclic_repetition(SIZE, s=1)
    worker = np.repeat(np.arange(N), 2)
    part = cluster[worker] * SIZE + (worker % SIZE + np.arange(2 * N) % 2) % SIZE
    coef, rows = np.zeros((N, N)), one.messages.coef.toarray()
    for i in range(N):
        coef[i, cluster[i] * SIZE : (cluster[i] + 1) * SIZE] = rows[i % SIZE]
    members = [np.flatnonzero(cluster == c)[np.argsort(np.flatnonzero(cluster == c) % SIZE)] for c in (0, 1)]
    decoder = Parts(tuple(Part(mine, one.decoder) for mine in members))
    name = f"clusters {''.join(map(str, cluster))}"
    return replace(
        one, name=name, n=N, tasks=Tasks(worker, part), messages=Messages(np.arange(N), [2] * N, coef), decoder=decoder
    )


class Spread:
    """Puts workers that were late in the last round into different clusters, as far as places allow."""

    def __init__(self):
        self.cluster = np.repeat([0, 1], SIZE)

    def __call__(self, number, seen):
        if seen is not None:
            late = seen.arrivals > 2 * np.median(seen.arrivals)
            self.cluster = min(self.choices(), key=lambda choice: self.crowd(choice, late))
        return clustered(self.cluster)

    def choices(self):
        """All ways to put worker q or q + 4 into cluster 0, the present one first."""
        yield self.cluster
        for bits in range(2**SIZE):
            first = np.array([bits >> q & 1 for q in range(SIZE)])
            yield np.concatenate([first, 1 - first])

    @staticmethod
    def crowd(choice, late):
        return max((late & (choice == c)).sum() for c in (0, 1))
