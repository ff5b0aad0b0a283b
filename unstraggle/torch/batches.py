"""Batches: which samples of each partition belong to a step. The same on every worker, whoever computes the partition."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid

Rows = NDArray[np.int64]

KEPT = 64
"""Batches of partitions that are kept: a worker asks for each several times, and for that of the next step before."""
REMEMBERED = 1 << 17
"""Draws that are kept: several runs on the same seed then draw them once."""


class Epochs:
    """Steps of equal size through `samples`, epoch after epoch; the last step of an epoch takes what is left.

    Steps count from 0 and never end: step t belongs to epoch t // steps. batch=None: every step takes all samples. drop_last:
    leave out the incomplete step of an epoch.
    """

    def __init__(self, samples: int, batch: int | None, seed: int, shuffle: bool = True, drop_last: bool = False) -> None:
        self.samples, self.batch = samples, samples if batch is None else batch
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        if not isinstance(self.batch, int | np.integer) or not 1 <= self.batch <= self.samples:
            raise Invalid(
                f"batch_size is the samples of a step over all partitions, 1 to {self.samples}, but got {batch!r}. "
                "Leave it out to use all samples in every step."
            )

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.samples // self.batch if self.drop_last else -(-self.samples // self.batch)

    def epoch_of(self, step: int) -> int:
        return step // self.steps

    def scale(self, part: int) -> float:
        """By what the sum over a partition's samples of a step is multiplied: they count for themselves."""
        return 1.0

    def size(self, step: int) -> int:
        """Samples of a step, over all partitions."""
        begin, end = self._span(step)
        return end - begin

    def _span(self, step: int) -> tuple[int, int]:
        begin = step % self.steps * self.batch
        return begin, min(begin + self.batch, self.samples)

    def describe(self) -> dict[str, Any]:
        """What must be the same for batches to be the same."""
        return {"samples": self.samples, "batch": self.batch, "shuffle": self.shuffle, "drop_last": self.drop_last}


class Dealt(Epochs):
    """The batch of a step does not depend on the code: it is drawn from all samples, and then dealt to the partitions.

    An epoch goes through every sample once, in an order that is shuffled by (seed, epoch). A partition gets every k-th sample
    of the batch, or in proportion to `shares`: so what is sorted in the dataset, or in a batch, is spread over all partitions.
    Every worker needs all samples.

    >>> batches = Dealt(10, np.full(3, 1 / 3), batch=4, seed=0, shuffle=False)
    >>> [[batches.rows(step, part).tolist() for part in range(3)] for step in range(3)]
    [[[0, 3], [1], [2]], [[4, 7], [5], [6]], [[8], [9], []]]
    """

    def __init__(
        self,
        samples: int,
        shares: NDArray[np.float64],
        batch: int | None,
        seed: int,
        shuffle: bool = True,
        drop_last: bool = False,
    ) -> None:
        super().__init__(samples, batch, seed, shuffle, drop_last)
        self.shares = tuple(np.asarray(shares).tolist())
        self._order: tuple[int, Rows] | None = None
        self._dealt: dict[tuple[int, int], Rows] = {}

    @property
    def k(self) -> int:
        return len(self.shares)

    def deal_to(self, shares: NDArray[np.float64]) -> None:
        """Deal the same batches to other partitions from now on."""
        self.shares, self._dealt = tuple(np.asarray(shares).tolist()), {}

    def batch_of(self, step: int) -> Rows:
        """The samples of a step."""
        begin, end = self._span(step)
        return self._epoch(step // self.steps)[begin:end]

    def rows(self, step: int, part: int) -> Rows:
        """The samples of a step that belong to a partition; there may be none. Those of the last few are kept."""
        if (step, part) not in self._dealt:
            if len(self._dealt) >= KEPT:
                self._dealt = {}
            self._dealt[step, part] = self.batch_of(step)[deal(self.size(step), self.shares)[part]]
        return self._dealt[step, part]

    def fullest(self, step: int) -> int:
        """The partition that gets most samples of a step."""
        return int(np.argmax([len(places) for places in deal(self.size(step), self.shares)]))

    def some(self, count: int) -> tuple[int, Rows]:
        """A few samples that differ, as far as the dataset is sorted, and a partition that they may be of."""
        return 0, spread(self.samples, count)

    def _epoch(self, epoch: int) -> Rows:
        """The order in which an epoch goes through the samples; that of the last epoch used is kept."""
        if not self.shuffle:
            return np.arange(self.samples)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self.seed, epoch)).permutation(self.samples)
        return self._order[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_order": None, "_dealt": {}}


def spread(samples: int, count: int) -> Rows:
    """A few places from first to last."""
    return np.unique(np.linspace(0, samples - 1, min(samples, count)).astype(np.int64))


@lru_cache(maxsize=64)
def deal(samples: int, shares: tuple[float, ...]) -> tuple[Rows, ...]:
    """Which places of a batch each partition gets: in turn, as often as its share is.

    >>> [places.tolist() for places in deal(7, (0.25, 0.25, 0.5))]
    [[1, 4], [2, 5], [0, 3, 6]]
    """
    exact = samples * np.asarray(shares) / sum(shares)
    counts = np.floor(exact + 1e-9).astype(np.int64)
    for part in np.argsort(counts - exact, kind="stable")[: samples - int(counts.sum())]:
        counts[part] += 1
    turns = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    owner = np.repeat(np.arange(len(counts)), counts)[np.argsort(turns, kind="stable")]
    return tuple(np.flatnonzero(owner == part) for part in range(len(counts)))


class Placed(Epochs):
    """Every step takes from each partition in proportion to its size, to within one sample, so that each worker needs its own
    partitions only.

    sizes: (k,) samples of each partition. An epoch goes through every sample once, in an order that is shuffled by (seed,
    epoch, partition); so batches depend on the partitions, and with them on the code.

    >>> batches = Placed((5, 2), batch=3, seed=0)
    >>> batches.steps, [batches.size(step) for step in range(4)]
    (3, [3, 3, 1, 3])
    >>> [[len(batches.rows(step, part)) for part in range(2)] for step in range(3)]
    [[2, 1], [2, 1], [1, 0]]
    """

    def __init__(
        self, sizes: tuple[int, ...], batch: int | None, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        super().__init__(sum(sizes), batch, seed, shuffle, drop_last)
        self.sizes = sizes
        self._orders: dict[int, tuple[int, Rows]] = {}

    @property
    def k(self) -> int:
        return len(self.sizes)

    def rows(self, step: int, part: int) -> Rows:
        """The samples of a step in one partition, as places in that partition; there may be none."""
        begin, end = (int(self._until(place)[part]) for place in self._span(step))
        return self._order(step // self.steps, part)[begin:end]

    def fullest(self, step: int) -> int:
        """The partition that gives most samples to a step."""
        return int(np.argmax([len(self.rows(step, part)) for part in range(len(self.sizes))]))

    def _until(self, place: int) -> Rows:
        """(k,) samples that each partition has given when `place` samples of an epoch are used, rounded as Webster did."""
        sizes = np.asarray(self.sizes)
        given = (2 * place * sizes + self.samples) // (2 * self.samples)
        while (rest := place - int(given.sum())) > 0:
            given[np.argmin((2 * given + 1) / sizes)] += 1
        for _ in range(-rest):
            given[len(sizes) - 1 - np.argmax(((2 * given - 1) / sizes)[::-1])] -= 1
        return given

    def _order(self, epoch: int, part: int) -> Rows:
        """The order in which an epoch goes through a partition; that of the last epoch used is kept."""
        if not self.shuffle:
            return np.arange(self.sizes[part])
        known = self._orders.get(part)
        if known is None or known[0] != epoch:
            rng = np.random.default_rng((self.seed, epoch, part))
            known = self._orders[part] = (epoch, rng.permutation(self.sizes[part]))
        return known[1]

    def some(self, count: int) -> tuple[int, Rows]:
        """A few samples of the largest partition, that differ as far as it is sorted; the first where it is read in order."""
        part = int(np.argmax(self.sizes))
        return part, spread(self.sizes[part], count) if self.shuffle else np.arange(min(count, self.sizes[part]))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "sizes": list(self.sizes)}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_orders": {}}


class Draws:
    """As many samples of each partition in every step, drawn anew by (seed, step, partition), without replacement.

    sizes: (k,) samples of each partition. batch: samples per partition and step, which stand for all of it; None takes all.

    >>> draws = Draws((4, 6), batch=2, seed=0)
    >>> len(draws.rows(7, part=1)), draws.scale(1)
    (2, 3.0)
    """

    def __init__(self, sizes: tuple[int, ...], batch: int | None, seed: int) -> None:
        self.sizes, self.batch, self.seed = sizes, batch, seed
        if batch is not None and not 1 <= batch <= min(sizes):
            raise Invalid(
                f"A batch needs 1 <= batch <= {min(sizes)}, the smallest partition, but got batch={batch}. "
                "Use batch=None for whole partitions, or fewer of them."
            )
        self._drawn: dict[tuple[int, int], Rows] = {}

    @property
    def k(self) -> int:
        return len(self.sizes)

    def rows(self, step: int, part: int) -> Rows:
        """The samples of a step in one partition, as places in that partition."""
        if self.batch is None:
            return np.arange(self.sizes[part])
        if (step, part) not in self._drawn:
            if len(self._drawn) >= REMEMBERED:
                self._drawn.clear()
            rng = np.random.default_rng((self.seed, step, part))
            self._drawn[step, part] = rng.choice(self.sizes[part], self.batch, replace=False)
        return self._drawn[step, part]

    def scale(self, part: int) -> float:
        """By what the sum over a partition's samples of a step is multiplied: samples over those drawn."""
        return 1.0 if self.batch is None else self.sizes[part] / self.batch

    def some(self, count: int) -> tuple[int, Rows]:
        """A few samples of the largest partition."""
        part = int(np.argmax(self.sizes))
        return part, spread(self.sizes[part], count)

    def fullest(self, step: int) -> int:
        """The partition that gives most samples to a step: the first, since all give as many, or the largest."""
        return int(np.argmax(self.sizes)) if self.batch is None else 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": {}}
