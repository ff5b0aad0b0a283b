"""Shards: streams of samples as a dataset, each read from its beginning to its end by the workers that have its partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_flatten

from ..doors import door
from ..errors import Invalid
from .seeds import seeded

LOOKED_AT = 4
"""Samples of a stream that are read twice, to see that it is the same again."""


@door
class Shards:
    """Streams that begin anew whenever they are gone through, and then give the same samples in the same order.

    streams: an `IterableDataset`, a webdataset or a list for each shard; a code with k partitions needs at least k, which are
    dealt to the partitions in turn. lengths: samples of each, where a stream has no `len()`: what a step takes from which
    partition must be known by all, before anybody reads. Samples come in the order of their stream, so shuffle the shards
    beforehand; a stream that shuffles as it goes is refused, for each worker would see another order. A worker that was late
    reads over what it has missed.

    >>> shards = Shards([range(10, 14), range(20, 22)])
    >>> len(shards), shards[0], shards[3], shards[5], [part.tolist() for part in shards.parts(2)]
    (6, 10, 13, 21, [[0, 1, 2, 3], [4, 5]])
    """

    def __init__(self, streams: Sequence[Iterable[Any]], lengths: Sequence[int] | None = None) -> None:
        self.streams = list(streams)
        self.lengths = [_length(stream) for stream in self.streams] if lengths is None else [int(one) for one in lengths]
        if not self.streams or len(self.lengths) != len(self.streams) or min(self.lengths) < 1:
            raise Invalid(
                f"Shards needs a length >= 1 for each of its streams, but got {len(self.streams)} streams and "
                f"lengths={self.lengths}."
            )
        _require_same_again(self.streams[0])
        self._ends = np.cumsum(self.lengths)
        self._open: dict[int, tuple[int, Iterator[Any]]] = {}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, row: int) -> Any:
        shard = int(np.searchsorted(self._ends, row, side="right"))
        return self._read(shard, row - int(self._ends[shard]) + self.lengths[shard])

    def parts(self, k: int) -> list[NDArray[np.int64]]:
        """The samples of each partition: of shards j, j + k, and so on."""
        if len(self.streams) < k:
            raise Invalid(
                f"The code has {k} partitions, but there are {len(self.streams)} streams. A stream cannot be cut: write the "
                f"data into at least {k} shards, or use a code with fewer partitions."
            )
        rows = np.split(np.arange(len(self)), self._ends[:-1])
        return [np.concatenate(rows[part::k]) for part in range(k)]

    def _read(self, shard: int, place: int) -> Any:
        """The sample at a place: on from where the stream is, or from its beginning where it is further already."""
        at, stream = self._open.pop(shard, (0, None))
        if stream is None or at > place:
            at, stream = 0, iter(self.streams[shard])
        for number in range(at, place + 1):
            try:
                sample = next(stream)
            except StopIteration:
                raise Invalid(f"Stream {shard} has {number} samples, but its length is {self.lengths[shard]}.") from None
        if place + 1 < self.lengths[shard]:
            self._open[shard] = place + 1, stream
        return sample

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}


def _length(stream: Any) -> int:
    try:
        return len(stream)
    except TypeError:
        raise Invalid(
            f"A {type(stream).__name__} has no len(), so it is not known what a step takes from it. Give lengths=, the samples "
            "of each stream, for instance as they were written."
        ) from None


def _require_same_again(stream: Iterable[Any]) -> None:
    """Refuse a stream that goes on where it was left, or shuffles."""
    if iter(stream) is stream:
        raise Invalid("A generator is gone through once. Give a stream that begins anew: an object with __iter__, or a list.")
    seen = []
    for seed in (0, 1):
        with seeded((seed,), torch.device("cpu")):
            seen.append([sample for _, sample in zip(range(LOOKED_AT), stream, strict=False)])
    if not _same(*seen):
        raise Invalid(
            "A stream gives other samples the second time: it shuffles, or draws random numbers, and workers would each see "
            "something else. Shuffle when the shards are written, and augment in forward."
        )


def _same(one: Any, other: Any) -> bool:
    (mine, about), (theirs, other_about) = tree_flatten(one), tree_flatten(other)
    return about == other_about and all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(mine, theirs, strict=True))
