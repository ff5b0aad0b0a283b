"""Where samples come from: tensors that are cut for each worker, or any dataset with a length and items."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset, default_collate

from ..errors import Invalid

log = logging.getLogger("unstraggle")

LARGE = 1 << 30
"""Bytes of tensors from which people are told what it means that every worker gets them all."""
LARGE_DATA = (
    "The dataset has %.1f GB of tensors, and every worker gets all of them, as with DistributedDataParallel. "
    'parts="random" gives a worker the samples of its own partitions only; batches then depend on the code.'
)
Rows = NDArray[np.int64]
Collate = Callable[[list[Any]], Any]
Reader = Callable[[slice], Any]


@dataclass(frozen=True, eq=False)
class Columns:
    """A dataset of tensors with a row per sample. rows: of each partition, where a worker gets only those of its own."""

    tensors: tuple[Tensor, ...]
    rows: Mapping[int, Rows] | None

    def read(self, part: int, places: Rows) -> tuple[Tensor, ...]:
        """The samples at these places of a partition, or of the dataset, as a batch."""
        which = torch.from_numpy(numbers(self.rows, part, places))
        return tuple(tensor[which] for tensor in self.tensors)

    def reader(self, part: int, places: Rows) -> Reader:
        """Read samples once; gives what makes a batch of some of them."""
        columns = self.read(part, places)
        return lambda chosen: tuple(tensor[chosen] for tensor in columns)

    def only(self, parts: Iterable[int]) -> Columns:
        """A copy with the rows of some partitions."""
        if self.rows is None:
            return self
        wanted = sorted(parts)
        every = np.concatenate([self.rows[part] for part in wanted])
        ends = np.cumsum([len(self.rows[part]) for part in wanted])
        places = dict(zip(wanted, np.split(np.arange(len(every)), ends[:-1]), strict=True))
        which = torch.from_numpy(every)
        return Columns(tuple(tensor[which] for tensor in self.tensors), places)


@dataclass(frozen=True, eq=False)
class Items:
    """Any dataset: each worker gets all of it, so it should hold paths rather than data."""

    dataset: Any
    collate: Collate
    rows: Mapping[int, Rows] | None

    def read(self, part: int, places: Rows) -> Any:
        """The samples at these places of a partition, or of the dataset, as a batch."""
        return self.collate([self.dataset[row] for row in numbers(self.rows, part, places).tolist()])

    def reader(self, part: int, places: Rows) -> Reader:
        """Read samples once, for they may be augmented at random; gives what makes a batch of some of them."""
        items = [self.dataset[row] for row in numbers(self.rows, part, places).tolist()]
        return lambda chosen: self.collate(items[chosen])

    def only(self, parts: Iterable[int]) -> Items:
        """The same dataset with the rows of some partitions."""
        rows = None if self.rows is None else {part: self.rows[part] for part in parts}
        return Items(self.dataset, self.collate, rows)


def numbers(rows: Mapping[int, Rows] | None, part: int, places: Rows) -> Rows:
    """The numbers of samples in the dataset, from their places in a partition where partitions are fixed."""
    return places if rows is None else rows[part][places]


def length(dataset: Any) -> int:
    """Samples of a dataset."""
    tensors = columns(dataset)
    if tensors is not None:
        if not tensors or len({len(tensor) for tensor in tensors}) != 1:
            raise Invalid(f"A tuple of tensors needs a row per sample in each, but got lengths {[len(t) for t in tensors]}.")
        return len(tensors[0])
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise Invalid(
            f"A dataset needs a length and items (dataset[i]), so that every worker finds the same samples, but "
            f"{type(dataset).__name__} has not. Turn a stream into a list of files or records first, or give a stream for each "
            "shard of the data, as Shards."
        )
    return len(dataset)


def source(dataset: Any, rows: Sequence[Rows] | None, collate: Collate | None) -> Columns | Items:
    """Access to the samples of each partition, or where rows is None, to all."""
    tensors, numbered = columns(dataset), None if rows is None else dict(enumerate(rows))
    if tensors is not None and collate is None:
        size = sum(tensor.nbytes for tensor in tensors)
        if rows is None and size > LARGE:
            log.warning(LARGE_DATA, size / 2**30)
        return Columns(tensors, numbered)
    return Items(dataset, collate or default_collate, numbered)


def columns(dataset: Any) -> tuple[Tensor, ...] | None:
    """The tensors of a `TensorDataset` or of a tuple of tensors or arrays; None for other datasets."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if isinstance(dataset, tuple) and all(isinstance(column, Tensor | np.ndarray) for column in dataset):
        return tuple(torch.as_tensor(column) for column in dataset)
    return None


def moved(batch: Any, device: torch.device) -> Any:
    """A batch on another device, whatever it is made of."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        items = [moved(value, device) for value in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


def put_together(batches: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Batches as one, where all that they are made of has a row per sample; None where it has not. sizes: samples of each.

    >>> put_together([(torch.zeros(2), [torch.ones(2, 3)]), (torch.zeros(1), [torch.ones(1, 3)])], [2, 1])[0].shape
    torch.Size([3])
    >>> put_together([torch.zeros(2, 5), torch.zeros(1, 4)], [2, 1]) is None
    True
    """
    first = batches[0]
    if isinstance(first, Tensor):
        rows = all(one.ndim and len(one) == size for one, size in zip(batches, sizes, strict=True))
        return torch.cat(tuple(batches)) if rows and len({one.shape[1:] for one in batches}) == 1 else None
    if isinstance(first, Mapping):
        keys = list(first)
        items = [put_together([one[key] for one in batches], sizes) for key in keys] if _alike(batches) else [None]
        return None if any(item is None for item in items) else dict(zip(keys, items, strict=True))
    if isinstance(first, list | tuple) and len({len(one) for one in batches}) == 1:
        items = [put_together([one[place] for one in batches], sizes) for place in range(len(first))]
        if any(item is None for item in items):
            return None
        kind: Any = type(first)
        return kind(*items) if hasattr(first, "_fields") else kind(items)
    return None


def _alike(batches: Sequence[Any]) -> bool:
    return all(one.keys() == batches[0].keys() for one in batches)
