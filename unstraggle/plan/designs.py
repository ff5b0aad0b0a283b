"""The multi-message designs of [A] as points of a search: how long they take, without their coefficients.

A design is the same code in every cluster. Its rule is a nested order statistic of the arrival times, so comparing designs
needs no encoding matrix. By span an uncorrelated design whose threshold exceeds the cluster's partitions behaves as any matrix
with its support does, so random coefficients tell its time; finalists are evaluated with their real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from ..codes import (
    cluster,
    correlated_mmc,
    cyclic_repetition,
    fractional_repetition,
    hybrid,
    uncoded,
    uncoded_mmc,
    uncorrelated_mmc,
)
from ..scheme.code import Code
from ..scheme.decoders import Linear, Span, parts_of
from ..scheme.recovery import By
from .draws import Clock, Times, smallest
from .recipe import Recipe

Kind = Literal["correlated", "uncorrelated", "hybrid"]


@dataclass(frozen=True)
class Design:
    """`clusters` clusters of `size` workers that send after each of `steps` tasks; recovered by rule or by span.

    correlated: the steps are order, ..., load without gaps. One step that is the size of the cluster is fractional repetition.
    """

    clusters: int
    size: int
    steps: tuple[int, ...]
    kind: Kind
    by: By = "rule"

    @property
    def threshold(self) -> int:
        """Distinct messages of a cluster that always suffice (of a hybrid: without a finished worker)."""
        if self.kind == "correlated":
            return self.size - self.steps[0] + 1
        return self.size * len(self.steps) - sum(self.steps) + 1

    @property
    def name(self) -> str:
        """The expression that makes the code."""
        return self.recipe.name

    @property
    def recipe(self) -> Recipe:
        """How the code of all clusters is made."""
        if self.size == self.steps[0]:
            n = self.clusters * self.size
            return Recipe(uncoded, n) if self.size == 1 else Recipe(fractional_repetition, n, s=self.size - 1)
        whole = self._plain if self.clusters == 1 else Recipe(cluster, self._plain, times=self.clusters)
        return Recipe(hybrid, whole) if self.kind == "hybrid" else whole

    @property
    def cluster_recipe(self) -> Recipe:
        """How the code of one cluster is made."""
        return Recipe(hybrid, self._plain) if self.kind == "hybrid" else self._plain

    @property
    def _plain(self) -> Recipe:
        """One cluster, without what a hybrid changes."""
        size, first, last = self.size, self.steps[0], self.steps[-1]
        if self.kind != "correlated":
            return Recipe(uncorrelated_mmc, size, load=last, orders=list(self.steps))
        if first == last:
            made = fractional_repetition if first == size else cyclic_repetition
            return Recipe(made, size, s=first - 1)
        return Recipe(uncoded_mmc, size, load=last) if first == 1 else Recipe(correlated_mmc, size, load=last, order=first)

    def build(self) -> Code:
        """The code with its coefficients."""
        return self.recipe.code()

    @property
    def gains_by_span(self) -> bool:
        """Whether linear algebra may recover earlier than the rule: never below the rank of a random code."""
        if self.kind == "correlated":
            return 1 < self.steps[0] < self.size
        return self.threshold > self.size


def rule_clock(design: Design) -> Clock:
    """When all clusters are recovered by rule: the times of `Recovered("rule")` on the code, round by round."""
    recovered = {"correlated": _shared, "uncorrelated": _different, "hybrid": _or_finished}[design.kind]
    return lambda arrivals: np.asarray(recovered(design, _by_cluster(design, arrivals)).max(axis=1))


def floor_clock(design: Design) -> Clock:
    """No later than by span: as many messages as the rank needs, and every partition in one of them."""
    if design.kind == "correlated" or not design.gains_by_span:
        return rule_clock(design)
    return lambda arrivals: np.asarray(_least(design, _by_cluster(design, arrivals)).max(axis=1))


def span_clock(design: Design, real: bool = True) -> Clock:
    """When all clusters are recovered by span, with the real coefficients, or with random ones where that does not matter."""
    from ..scheme.recovery_times import span_times

    if not design.gains_by_span:
        return rule_clock(design)
    decoder = real_decoder(design) if real or design.kind == "correlated" else _random_decoder(design)

    def ends(arrivals: Times) -> Times:
        rounds = len(arrivals)
        return np.asarray(span_times(decoder, arrivals.reshape(rounds * design.clusters, -1)).reshape(rounds, -1).max(axis=1))

    return ends


def real_decoder(design: Design) -> Linear:
    """The decoder of one cluster."""
    return parts_of(design.cluster_recipe.code().decoder)[0].decoder  # type: ignore[no-any-return]


def _random_decoder(design: Design) -> Linear:
    """Random coefficients on the support of the messages of one cluster; a finished worker of a hybrid sends the plain sum."""
    size, steps = design.size, np.tile(design.steps, design.size)
    worker = np.repeat(np.arange(size), len(design.steps))
    mask = (np.arange(size)[None, :] - worker[:, None]) % size < steps[:, None]
    rows = np.where(mask, np.random.default_rng(0).standard_normal(mask.shape), 0.0)
    if design.kind == "hybrid":
        rows[steps == size] = 1.0
    return Span(csr_array(rows))


def _by_cluster(design: Design, arrivals: Times) -> Times:
    """(r, n, steps) to (r, clusters, size, steps)."""
    return arrivals.reshape(len(arrivals), design.clusters, design.size, -1)


def _shared(design: Design, table: Times) -> Times:
    """Worker i sends numbers i, i + 1, ...: the first copy of each number counts."""
    first = table[..., 0].copy()
    for step in range(1, table.shape[-1]):
        np.minimum(first, np.roll(table[..., step], step, axis=2), out=first)
    return smallest(first, design.threshold)


def _different(design: Design, table: Times) -> Times:
    return smallest(table.reshape(*table.shape[:2], -1), design.threshold)


def _or_finished(design: Design, table: Times) -> Times:
    """The first worker that is done, or enough of the other messages."""
    done, others = table[..., -1].min(axis=2), table[..., :-1].reshape(*table.shape[:2], -1)
    if others.shape[-1] < design.threshold:
        return np.asarray(done)
    return np.asarray(np.minimum(done, smallest(others, design.threshold)))


def _least(design: Design, table: Times) -> Times:
    """A lower bound by span of an uncorrelated design or its hybrid."""
    coded, steps = (table[..., :-1], design.steps[:-1]) if design.kind == "hybrid" else (table, design.steps)
    enough = smallest(coded.reshape(*coded.shape[:2], -1), min(design.size, coded.shape[2] * coded.shape[3]))
    covered = np.full(table.shape[:3], np.inf)
    for ahead in range(steps[-1]):  # partition j is in the messages of worker j - ahead from this step on
        step = int(np.searchsorted(steps, ahead + 1))
        np.minimum(covered, np.roll(coded[..., step], ahead, axis=2), out=covered)
    ends = np.maximum(enough, covered.max(axis=2))
    return np.asarray(np.minimum(ends, table[..., -1].min(axis=2)) if design.kind == "hybrid" else ends)


def work_limit(n: int, arrivals: Times) -> Times:
    """(r, n, load) times of all tasks to the time (r,) of the n-th: nothing exact on raw data can end before."""
    return smallest(arrivals.reshape(len(arrivals), -1), n)


def cluster_counts(n: int, load: int) -> list[int]:
    """Numbers of equal clusters that hold at least `load` workers each.

    >>> cluster_counts(40, load=10)
    [1, 2, 4]
    """
    return [count for count in range(1, n // load + 1) if n % count == 0]


def shared_designs(n: int, load: int) -> Iterator[Design]:
    """Waiting for all, and all correlated designs, one-message codes and fractional repetition among them."""
    yield Design(n, 1, (1,), "correlated")
    for count in cluster_counts(n, load):
        for last in range(1, load + 1):
            for first in range(2 if last == 1 else 1, last + 1):
                yield Design(count, n // count, tuple(range(first, last + 1)), "correlated")


def different_designs(n: int, load: int, vectors: Sequence[tuple[int, ...]]) -> Iterator[Design]:
    """Uncorrelated designs with these order vectors, and their hybrids where a worker may hold all of its cluster's data."""
    for steps in vectors:
        for count in cluster_counts(n, load) if len(steps) > 1 else ():
            yield Design(count, n // count, steps, "uncorrelated")
            if steps[-1] == n // count:
                yield Design(count, n // count, steps, "hybrid")


def all_vectors(load: int) -> list[tuple[int, ...]]:
    """Every set of at least two orders."""
    return [steps for count in range(2, load + 1) for steps in combinations(range(1, load + 1), count)]


def progressions(load: int) -> list[tuple[int, ...]]:
    """Evenly spaced orders from anywhere to the last task that the spacing reaches, and the same with a last full message."""
    even = [tuple(range(first, load + 1, gap)) for first in range(1, load) for gap in range(1, load - first + 1)]
    return list(dict.fromkeys([*even, *((*steps, load) for steps in even if steps[-1] < load)]))


def neighbours(design: Design, load: int) -> Iterator[Design]:
    """Uncorrelated or hybrid designs that differ by one order: dropped, added or moved by one."""
    for steps in _changed(set(design.steps), load) if design.kind != "correlated" else ():
        if len(steps) > 1 and (design.kind != "hybrid" or max(steps) == design.size):
            yield replace(design, steps=tuple(sorted(steps)))


def _changed(steps: set[int], load: int) -> Iterator[set[int]]:
    for step in range(1, load + 1):
        yield steps ^ {step}
        if step in steps:
            yield from ((steps - {step}) | {moved} for moved in (step - 1, step + 1) if 1 <= moved <= load)
