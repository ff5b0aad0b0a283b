"""Sampled: batches of a sampler of one's own. The master draws them, and the workers are told."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, default_collate

from ..errors import Invalid
from .batches import Rows, deal, spread

CHECKED = 4
"""Samples of each partition that stand for a batch until one is drawn."""


class Sampled:
    """A batch is what the sampler gives next, dealt to the partitions in turn; so it does not depend on the code.

    source: a sampler, with batch samples a step; or a batch sampler or a list of lists, each a step. It is gone through again
    for every epoch. Of a `DistributedSampler` for R ranks, a step has what all ranks together would have, batch samples each.
    Steps are drawn one after the other. loader: whose own draw comes before those of the sampler, as in an epoch of a
    DataLoader. accumulate: so many batches make a step; the last of an epoch takes those that are left.

    >>> batches = Sampled([[4, 1, 3], [2]], samples=5, shares=(0.5, 0.5))
    >>> [batches.draw(step).tolist() for step in range(3)], batches.steps, batches.epoch_of(2)
    ([[4, 1, 3], [2], [4, 1, 3]], 2, 1)
    """

    def __init__(
        self,
        source: Iterable[Any],
        samples: int,
        shares: Any,
        batch: int | None = None,
        drop_last: bool = False,
        loader: DataLoader[Any] | None = None,
        accumulate: int = 1,
    ) -> None:
        self.samples, self.shares = samples, tuple(np.asarray(shares).tolist())
        self._source, self._batch, self._drop_last, self._loader = source, batch, drop_last, loader
        self._accumulate = accumulate
        self._told = spread(samples, CHECKED * len(self.shares))
        self._after: list[Rows] = []  # the batches after that, as far as they are drawn or told; an empty one ends an epoch
        self._epoch = self._first = -1
        self._next = 0  # the step that the iterator gives next
        self._iterator: Iterator[Rows] = iter(())
        self._rng: dict[str, Any] = {}

    @property
    def k(self) -> int:
        return len(self.shares)

    def deal_to(self, shares: Any) -> None:
        """Deal the same batches to other partitions from now on."""
        self.shares = tuple(np.asarray(shares).tolist())

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        try:
            count = len(self._source)  # type: ignore[arg-type]
        except TypeError as error:
            raise Invalid("The sampler has no length, so it is not known how many steps an epoch has.") from error
        if self._batch is not None and not isinstance(self._source, BatchSampler):
            count = count // self._batch if self._drop_last else -(-count // self._batch)
        return -(-count // self._accumulate)

    def epoch_of(self, step: int) -> int:
        """That of the batch that was drawn last."""
        return max(self._epoch, 0)

    # On the master

    def draw(self, step: int) -> Rows:
        """The batch of a step: of the last one again, or of one that comes."""
        if step < self._next - 1:
            raise Invalid(f"Step {step} was drawn before, and a sampler does not go back. Load the state of a run instead.")
        while self._next <= step:
            self._told = self._following()
            self._next += 1
        return self._told

    def ahead(self, count: int) -> list[Rows]:
        """The batches after the last one, where the epoch has them: what comes after an epoch is drawn when that begins."""
        while len(self._after) < count and (not self._after or len(self._after[-1])):
            self._after.append(self._batches())
        return [rows for rows in self._after[:count] if len(rows)]

    def _following(self) -> Rows:
        found = self._after.pop(0) if self._after else self._batches()
        if not len(found):
            self._begin()
            found = self._batches()
        if not len(found):
            raise Invalid("The sampler gives no batch. A generator is gone through once: give a sampler, or a list of batches.")
        return found

    def _batches(self) -> Rows:
        """The next batches of the epoch, as many as make a step; none at its end."""
        found = list(islice(self._iterator, self._accumulate))
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _begin(self) -> None:
        """Begin an epoch, as a DataLoader does."""
        self._epoch, self._first = self._epoch + 1, self._next
        self._rng = self._random_states()
        if self._loader is not None:
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
        ranks = [self._grouped(iter(one)) for one in of_all_ranks(self._source)]
        self._iterator = (self._checked(np.concatenate(parts)) for parts in zip(*ranks, strict=False))

    def _grouped(self, given: Iterator[Any]) -> Iterator[NDArray[Any]]:
        """Batches as they are, or single samples put together."""
        waiting: list[int] = []
        for one in given:
            if np.ndim(one):
                yield np.asarray(one)
                continue
            if self._batch is None:
                raise Invalid("The sampler gives single samples, so batch_size= must say how many make a step.")
            waiting.append(int(one))
            if len(waiting) == self._batch:
                yield np.array(waiting)
                waiting = []
        if waiting and not self._drop_last:
            yield np.array(waiting)

    def _checked(self, rows: NDArray[Any]) -> Rows:
        if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= self.samples:
            raise Invalid(f"A batch is a list of samples in 0..{self.samples - 1}, but the sampler gave {rows!r}.")
        return rows.astype(np.int64)

    # The state of a run

    def describe(self) -> dict[str, Any]:
        """What must be the same for batches to be the same."""
        return {
            "samples": self.samples,
            "sampler": type(self._source).__name__,
            "batch": self._batch,
            "accumulate": self._accumulate,
        }

    def state(self) -> dict[str, Any]:
        """What is needed to draw the rest of the epoch again."""
        return {"epoch": self._epoch, "first": self._first, "next": self._next, **self._rng}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on after the step at which a state was saved. The sampler must draw from torch, or from a generator of its own."""
        if not state or state["epoch"] < 0:
            return
        self._epoch, self._next = state["epoch"] - 1, state["first"]
        before = torch.get_rng_state()
        torch.set_rng_state(state["torch"])
        for generator, saved in zip(self._generators(), state["generators"], strict=False):
            generator.set_state(saved)
        self._iterator, self._after = iter(()), []
        try:
            self.draw(state["next"] - 1)
        finally:
            torch.set_rng_state(before)

    def _random_states(self) -> dict[str, Any]:
        return {"torch": torch.get_rng_state(), "generators": [one.get_state() for one in self._generators()]}

    def _generators(self) -> list[torch.Generator]:
        having = (self._loader, self._source, getattr(self._source, "sampler", None))
        found = [getattr(one, "generator", None) for one in having]
        return list({id(one): one for one in found if one is not None}.values())

    # On a worker

    def tell(self, rows: Rows, after: Iterable[Rows] = ()) -> None:
        """What the master has drawn, and for the steps after that."""
        self._told, self._after = rows, list(after)

    def rows(self, step: int, part: int) -> Rows:
        """The samples of the step that belong to a partition; there may be none."""
        return self._told[deal(len(self._told), self.shares)[part]]

    def following(self, part: int, later: int = 1) -> Rows:
        """Those of a step so many after it, if that is known."""
        after = self._after[later - 1] if later <= len(self._after) else self._told[:0]
        return after[deal(len(after), self.shares)[part]] if len(after) else after

    def size(self, step: int) -> int:
        return len(self._told)

    def scale(self, part: int) -> float:
        """Samples count for themselves."""
        return 1.0

    def fullest(self, step: int) -> int:
        return int(np.argmax([len(places) for places in deal(len(self._told), self.shares)]))

    def some(self, count: int) -> tuple[int, Rows]:
        """A few samples that differ, as far as the dataset is sorted."""
        return 0, spread(self.samples, count)

    def __getstate__(self) -> dict[str, Any]:
        """For workers, who need no sampler."""
        return {**self.__dict__, "_source": (), "_loader": None, "_iterator": None, "_rng": {}}


def of_all_ranks(source: Any) -> list[Any]:
    """The sampler, or where it is one of R ranks, those of all of them."""
    inner = source.sampler if isinstance(source, BatchSampler) else source
    if not isinstance(inner, DistributedSampler) or inner.num_replicas == 1:
        return [source]
    found = []
    for rank in range(inner.num_replicas):
        mine = copy.copy(inner)
        mine.rank = rank
        found.append(BatchSampler(mine, source.batch_size, source.drop_last) if source is not inner else mine)
    return found


def taken_apart(loader: DataLoader[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What `Coded` must know of a DataLoader: dataset, batches, collate. given: what else it was told, which is refused."""
    twice = sorted(name for name, value in given.items() if value is not None)
    if twice:
        raise Invalid(
            f"A DataLoader says by itself what a batch is, but got {', '.join(twice)}, too. Leave that out, or give "
            "loader.dataset."
        )
    if isinstance(loader.dataset, IterableDataset):
        raise Invalid(
            "The DataLoader streams an IterableDataset, in which samples have no numbers: two workers could not find the same "
            "ones. Give a dataset with a length and items, for instance a list of files or records, or a stream for each shard "
            "of the data, as Shards."
        )
    if loader.batch_sampler is None:
        raise Invalid(
            "The DataLoader has batch_size=None: its items are whole batches, which cannot be cut. Give it a batch_size."
        )
    collate = None if loader.collate_fn is default_collate else loader.collate_fn
    return {"dataset": loader.dataset, "batches": loader.batch_sampler, "collate": collate}
