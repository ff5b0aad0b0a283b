"""Batches: which samples of each partition belong to a step. The same on every worker, whoever computes the partition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid

Rows = NDArray[np.int64]

REMEMBERED = 1 << 17
"""Draws that are kept: several runs on the same seed then draw them once."""


class Batches:
    """An epoch goes through every sample once, `batch` samples per step; the last step of an epoch takes what is left.

    sizes: (k,) samples of each partition. Every step takes from each partition in proportion to its size, to within one
    sample, in an order that is shuffled by (seed, epoch, partition). Steps count from 0 and never end: step t belongs to
    epoch t // steps. batch=None: every step takes all samples. drop_last: leave out the incomplete step of an epoch.

    >>> batches = Batches((5, 2), batch=3, seed=0)
    >>> batches.steps, [batches.size(step) for step in range(4)]
    (3, [3, 3, 1, 3])
    >>> [[len(batches.rows(step, part)) for part in range(2)] for step in range(3)]
    [[2, 1], [2, 1], [1, 0]]
    """

    def __init__(
        self, sizes: tuple[int, ...], batch: int | None, seed: int, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        self.sizes, self.samples = sizes, sum(sizes)
        self.batch = self.samples if batch is None else batch
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        if not isinstance(self.batch, int | np.integer) or not 1 <= self.batch <= self.samples:
            raise Invalid(
                f"batch_size is the samples of a step over all partitions, 1 to {self.samples}, but got {batch!r}. "
                "Leave it out to use all samples in every step."
            )
        self._orders: dict[int, tuple[int, Rows]] = {}

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self.samples // self.batch if self.drop_last else -(-self.samples // self.batch)

    def scale(self, part: int) -> float:
        """By what the sum over a partition's samples of a step is multiplied: they count for themselves."""
        return 1.0

    def size(self, step: int) -> int:
        """Samples of a step, over all partitions."""
        begin, end = self._span(step)
        return end - begin

    def rows(self, step: int, part: int) -> Rows:
        """The samples of a step in one partition, as places in that partition; there may be none."""
        begin, end = (int(self._until(place)[part]) for place in self._span(step))
        return self._order(step // self.steps, part)[begin:end]

    def fullest(self, step: int) -> int:
        """The partition that gives most samples to a step."""
        return int(np.argmax([len(self.rows(step, part)) for part in range(len(self.sizes))]))

    def _span(self, step: int) -> tuple[int, int]:
        begin = step % self.steps * self.batch
        return begin, min(begin + self.batch, self.samples)

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

    def fullest(self, step: int) -> int:
        """The partition that gives most samples to a step: the first, since all give as many, or the largest."""
        return int(np.argmax(self.sizes)) if self.batch is None else 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": {}}


def partitions(samples: int, parts: Any, shares: NDArray[np.float64]) -> tuple[Rows, ...]:
    """The samples of each of the code's k partitions. parts: None for contiguous ones of the code's shares, or lists."""
    k = len(shares)
    if samples < k:
        raise Invalid(
            f"The dataset has {samples} samples, fewer than the {k} partitions of the code. Use more data or fewer partitions."
        )
    if parts is None or isinstance(parts, int | np.integer):
        if parts is not None and parts != k:
            raise Invalid(f"The code has k={k} partitions, but got parts={parts}. Leave parts out, or use a code with {parts}.")
        ends = np.rint(np.cumsum(shares) * (samples - k)).astype(np.int64) + np.arange(1, k + 1)  # at least one sample each
        return tuple(np.split(np.arange(samples), ends[:-1]))
    rows = tuple(np.asarray(part, dtype=np.int64) for part in parts)
    if len(rows) != k or any(r.ndim != 1 or not len(r) or r.min() < 0 or r.max() >= samples for r in rows):
        raise Invalid(
            f"parts needs a list of samples for each of the code's k={k} partitions, none empty, each sample in "
            f"0..{samples - 1}, but got {len(rows)} lists of lengths {[np.size(r) for r in rows]}."
        )
    return rows
