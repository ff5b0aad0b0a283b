"""Counted: stands for a DataLoader in a process that does not read the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from ..errors import Invalid
from .coded import Coded
from .samplers import taken_apart


class Counted:
    """Counts the batches that workers read. Its state is that of the run, which Lightning keeps in checkpoints."""

    def __init__(self, loader: Any) -> None:
        self.options = loader_options(loader)
        self.dataset, self.steps = loader.dataset, len(loader)
        self.run: Coded | None = None
        self.saved: Mapping[str, Any] = {}

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.steps))

    def state_dict(self) -> dict[str, Any]:
        return {} if self.run is None else self.run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.saved = state


def loader_options(loader: Any) -> dict[str, Any]:
    """What `Coded` must know of a DataLoader, besides its dataset.

    >>> loader_options(DataLoader(range(50), batch_size=16, shuffle=True))
    {'batch_size': 16, 'shuffle': True, 'drop_last': False, 'collate': None}
    """
    if not isinstance(loader, DataLoader):
        raise Invalid(f"CodedStrategy needs a torch.utils.data.DataLoader for training, but got {type(loader).__name__}.")
    found = taken_apart(loader, {})
    if type(loader.batch_sampler) is not BatchSampler or not draws_each_once(loader.sampler, loader.dataset):
        return {"batches": found["batches"], "collate": found["collate"]}
    batch = min(loader.batch_size or 1, len(loader.dataset))  # type: ignore[arg-type]
    shuffle = type(loader.sampler) is RandomSampler
    return {"batch_size": batch, "shuffle": shuffle, "drop_last": loader.drop_last, "collate": found["collate"]}


def draws_each_once(sampler: Any, dataset: Any) -> bool:
    """Whether a sampler is one that a DataLoader makes by itself."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and len(sampler) == len(dataset)
    return type(sampler) is SequentialSampler
