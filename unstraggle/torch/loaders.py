"""Counted: stands for a DataLoader in a process that does not read the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, default_collate

from ..errors import Invalid
from .coded import Coded


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
    """What `Coded` must know of a DataLoader.

    >>> loader_options(DataLoader(range(50), batch_size=16, shuffle=True))
    {'batch_size': 16, 'shuffle': True, 'drop_last': False, 'collate': None}
    """
    sampler = getattr(loader, "sampler", None)
    usual = isinstance(loader, DataLoader) and type(loader.batch_sampler) is BatchSampler
    if not usual or not draws_each_once(sampler, loader.dataset):
        raise Invalid(
            "CodedStrategy draws the batches itself, so the train DataLoader needs a batch_size and shuffle=True or False, but "
            f"got {type(loader).__name__} with sampler {type(sampler).__name__}. Leave out sampler and batch_sampler."
        )
    batch = min(loader.batch_size, len(loader.dataset))
    collate = None if loader.collate_fn is default_collate else loader.collate_fn
    return {"batch_size": batch, "shuffle": type(sampler) is RandomSampler, "drop_last": loader.drop_last, "collate": collate}


def draws_each_once(sampler: Any, dataset: Any) -> bool:
    """Whether a sampler is one that a DataLoader makes by itself."""
    if type(sampler) is RandomSampler:
        return not sampler.replacement and len(sampler) == len(dataset)
    return type(sampler) is SequentialSampler
