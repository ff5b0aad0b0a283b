"""How: how the loss of a partition is computed, and where that happens, for messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import Invalid
from .stopping import OFTEN

Forward = Callable[..., Any]


def split_batch(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    """What a batch is unless said otherwise: inputs of the model, and last the targets of the loss."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise Invalid(
            f"A batch is (inputs, ..., targets), but got {type(batch).__name__}. "
            "Give forward=, a function (model, batch) -> (outputs, targets)."
        )
    return model(*batch[:-1]), batch[-1]


@dataclass(frozen=True)
class How:
    """How a partition's loss is computed. mean: whether loss_fn averages over the samples (else it adds them up).

    ratio: it gives (sum, denominator). split: it is one of torch's, and is taken apart into these.
    micro: samples of a forward pass at most, where a partition should be computed in pieces that are added up.
    told: whether forward takes what goes with a step, as a third argument. strict: refuse what was not seen before the start.
    still: refuse a forward pass that moves a buffer which does not travel. home: the device of the master's model. joins:
    partitions of a message are computed in one pass. ahead: samples of the next step are read while this one is computed.
    looks: how often a worker looks in a pass on a device whether the round is over. readers: processes of a worker that read
    ahead; 0: a thread does.
    """

    seed: int
    mean: bool = True
    forward: Forward = split_batch
    devices: tuple[str, ...] = ("cpu",)
    autocast: torch.dtype | None = None
    told: bool = False
    strict: bool = False
    still: bool = False
    ratio: bool = False
    split: bool = False
    micro: int | None = None
    home: str = "cpu"
    joins: bool = False
    ahead: bool = False
    looks: int = OFTEN
    readers: int = 0

    @property
    def depth(self) -> int:
        """How many steps after the one that is computed are read: one more than there are processes, so that none waits."""
        return 1 + self.readers if self.ahead else 0

    def seed_of(self, step: int, part: int, begin: int = 0) -> tuple[int, ...]:
        """What random numbers begin with, where a partition or a micro-batch of it is read and computed."""
        number = begin // self.micro if self.micro else 0
        return (self.seed, step, part, number) if number else (self.seed, step, part)


def where(worker: int | None, part: int, step: int) -> str:
    """For messages."""
    return f"Step {step}, partition {part}, {'before the start' if worker is None else f'worker {worker}'}"


def one_line(error: Exception) -> str:
    """What an error says, in one line that is not too long."""
    return " ".join(str(error).split())[:300]
