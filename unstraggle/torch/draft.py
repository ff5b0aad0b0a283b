"""Draft: what a run's problems are made of, and what is found out about it before the workers start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn
from torch.utils.data import DataLoader

from ..errors import Invalid
from ..scheme.code import Code
from .batches import Dealt, Placed
from .blocks import aligned
from .checks import (
    joins,
    reads_ahead,
    reduction_of,
    require_dense,
    require_forward,
    require_no_parameters,
    require_same_again,
    takes_context,
)
from .data import Columns, Items, columns, length, source
from .how import How, split_batch
from .layout import Layout, alignment, trainable
from .outcome import weighs
from .parts import batches_of, partitions
from .problem import TorchProblem
from .replica import own_copy
from .samplers import Sampled, taken_apart
from .shards import Shards
from .start import first_layout, in_backward_order, require_carried, with_moved_buffers, with_sums
from .stopping import looks_of
from .turns import names_of, of_all

log = logging.getLogger("unstraggle")

NOT_AHEAD = (
    "The DataLoader reads in %d processes. Workers read by themselves, and here not ahead of a step, for reading draws random "
    "numbers: give Coded(readers=...), the processes that read ahead for each worker."
)


@dataclass(frozen=True, eq=False)
class Given:
    """The samples as they were given. batches: a sampler of one's own. loader: that which all this was taken from, if any."""

    dataset: Any
    batches: Any
    collate: Any
    batch_size: int | None
    loader: Any = None

    @classmethod
    def of(cls, dataset: Any, batch_size: int | None, batches: Any, collate: Any) -> Given:
        """A `DataLoader` is taken apart."""
        if not isinstance(dataset, DataLoader):
            return cls(dataset, batches, collate, batch_size)
        found = taken_apart(dataset, {"batch_size": batch_size, "batches": batches, "collate": collate})
        return cls(**found, batch_size=batch_size, loader=dataset)

    @property
    def samples(self) -> int:
        return length(self.dataset)

    @property
    def streams(self) -> bool:
        """Whether samples come in the order of streams, and each partition has its own."""
        return isinstance(self.dataset, Shards)

    def parts(self, asked: Any, k: int) -> Any:
        """Which samples each partition has, if that is fixed."""
        if not self.streams:
            return asked
        if asked is not None:
            raise Invalid("Shards say by themselves which samples a partition has. Leave out parts=.")
        return self.dataset.parts(k)

    def warn(self, how: How) -> None:
        """Say where a DataLoader's processes are missed: workers wait for their samples."""
        if self.loader is not None and self.loader.num_workers and not how.ahead and columns(self.dataset) is None:
            log.warning(NOT_AHEAD, self.loader.num_workers)

    @property
    def of_a_step(self) -> int:
        """Samples of a step, as far as they are said."""
        return self.batch_size or getattr(self.loader, "batch_size", None) or self.samples

    def drawn(self, rows: Any, shares: Any, accumulate: int, seed: int, how: tuple[bool, bool]) -> Dealt | Placed | Sampled:
        """The batches of a run. how: shuffle, drop_last."""
        size, samples = self.batch_size, self.samples
        if self.batches is None:
            whole = size if size is None else min(accumulate * size, max(size, samples))
            return batches_of(samples, rows, shares, whole, seed, *how)
        if rows is not None:
            raise Invalid("batches= draws from all samples, so every worker needs them all. Leave out parts=.")
        return Sampled(self.batches, samples, shares, size, how[1], self.loader, accumulate)


@dataclass(frozen=True, eq=False)
class Draft:
    """Everything but the parameters. values: what `forward` gets with a step, by the name of its loss. unused: parameters that
    no loss reaches, by its name."""

    model: nn.Module
    loss_fn: Any
    data: Columns | Items
    batches: Dealt | Placed | Sampled
    layout: Layout
    how: How
    code: Code
    values: Callable[[str | None], dict[str, Any]]
    unused: Mapping[str | None, set[str]] = field(default_factory=dict)

    @property
    def turns(self) -> tuple[str | None, ...]:
        return names_of(self.how.forward)

    def problem(self, turn: str | None = None) -> TorchProblem:
        """With a model as it is now: checks may have moved that of an earlier one."""
        problem = TorchProblem(own_copy(self.model), self.loss_fn, self.data, self.layout, self.batches, self.how)
        problem.context = self.values(self.turns[0] if turn is None else turn)
        return problem

    def checked(self, reduction: str | None, check: bool, statistics: str, carried: Sequence[str]) -> Draft:
        """With what a few samples tell of the loss, the buffers and the order of the backward pass."""
        draft = self._with_reduction(reduction, check)
        if check:
            draft = draft._with_buffers(statistics)
        if check or len(draft.code.blocks) > 1:
            draft = draft._in_order()
        if carried:
            require_carried(draft.problem(), carried)
        return draft

    def for_workers(self, read_ahead: bool | None, one_pass: bool | None, check: bool, statistics: str) -> Draft:
        """As workers compute: what is read ahead and joined, and what they refuse."""
        draft = self._how(ahead=reads_ahead(self.problem(), read_ahead, check))
        draft = draft._how(joins=all(joins(draft.problem(turn), one_pass, check) for turn in draft.turns))
        return draft._how(strict=True, still=statistics == "decode")

    def looking(self, code: Code, by_time: bool) -> Draft:
        """As workers of a code look whether the round is over."""
        return self._how(looks=looks_of(code, by_time))

    def _how(self, **changes: Any) -> Draft:
        return replace(self, how=replace(self.how, **changes))

    def _with_reduction(self, declared: str | None, check: bool) -> Draft:
        found = of_all([reduction_of(self.problem(turn), declared, check) for turn in self.turns], self.turns)
        layout = with_sums(self.layout, found, self.code)
        return replace(self, layout=layout)._how(mean=found.reduction == "mean", ratio=found.reduction == "ratio")

    def _with_buffers(self, statistics: str) -> Draft:
        draft = self
        for turn in self.turns:
            require_same_again(draft.problem(turn))
            if statistics == "decode":
                draft = replace(draft, layout=with_moved_buffers(draft.problem(turn), draft.code))
        return draft

    def _in_order(self) -> Draft:
        """Parameters in the order of the backward pass, and blocks that end where it can pause."""
        draft, code, unused = self, self.code, dict[str | None, set[str]]()
        for turn in reversed(self.turns):
            layout, unused[turn], ends = in_backward_order(draft.problem(turn), self.code)
            draft, code = replace(draft, layout=layout), aligned(self.code, layout, ends) if ends else self.code
        return replace(draft, code=code, unused=unused)


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a run was asked for, whatever its code. parts: which samples each partition has, if that is fixed. accumulate: so
    many batches make a step. dealing: shuffle, drop_last. how: more of how losses are computed, as `How` has it."""

    model: nn.Module
    loss_fn: Any
    given: Given
    parts: Any
    accumulate: int
    dealing: tuple[bool, bool]
    device: str | Sequence[str]
    statistics: str
    how: Mapping[str, Any]
    values: Callable[[str | None], dict[str, Any]]

    def draft(self, code: Code) -> Draft:
        """What is known for a code before anything is computed."""
        seed, given = self.how["seed"], self.given
        rows = partitions(given.samples, given.parts(self.parts, code.k), code.shares, seed)
        batches = given.drawn(rows, code.shares, self.accumulate, seed, self.dealing)
        data = source(given.dataset, rows, given.collate)
        devices = (self.device,) if isinstance(self.device, str) else tuple(self.device)
        layout = replace(first_layout(self.model, code, self.statistics), align=alignment(devices, code))
        return Draft(self.model, self.loss_fn, data, batches, layout, self._how(devices, layout), code, self.values)

    def _how(self, devices: tuple[str, ...], layout: Layout) -> How:
        home = str(next(iter(trainable(self.model).values())).device)
        told, split = takes_context(self.how["forward"]), weighs(self.loss_fn) and layout.loss
        return How(devices=devices, told=told, split=split, home=home, **self.how)


def usable(model: nn.Module, loss_fn: Any, forward: Any) -> None:
    """Refuse what nobody can train."""
    require_no_parameters(loss_fn, model)
    require_dense(model)
    require_forward(loss_fn, forward is split_batch)
