"""CodedTrainer: the Trainer of Hugging Face transformers on coded workers. Needs `pip install 'unstraggle[transformers]'`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer

from ..doors import door
from ..errors import Invalid
from .coded import Coded
from .info import Info

GIVEN = ("model", "loss_fn", "dataset", "batch_size", "batches", "shuffle", "drop_last", "collate", "forward", "accumulate")
"""What `Coded` is told by the trainer and its DataLoader."""
KEPT = ("args", "label_smoother", "compute_loss_func", "model_accepts_loss_kwargs")
PLAIN = (bool, int, float, str, type(None))
"""What `compute_loss` may ask a trainer for: these attributes, and all that are plain, also those of one's own subclass."""
IGNORED = -100
"""The label of what does not count."""


@door
class CodedTrainer(Trainer):
    """`CodedTrainer(scheme="cyclic_repetition(8, s=1)", model=..., args=...)`: workers run `compute_loss`, it the rest.

    scheme and other options of `Coded` (engine, workers, device, autocast, micro_batch) come beside the arguments of
    `Trainer`; what both have, such as callbacks, is the Trainer's. Dataset, batches and collation are those of its train
    DataLoader, which this process does not read. A mean over tokens is that over all tokens of the batch: workers send sums
    and counts (`num_items_in_batch`), which are divided once.
    `run` is the `Coded` while training, `info` what its last step tells.
    """

    def __init__(self, *args: Any, scheme: Any = "auto", **options: Any) -> None:
        model = options.get("model", args[0] if args else None)
        if not isinstance(model, nn.Module) and "model_init" not in options:
            raise Invalid(f"CodedTrainer takes the arguments of Trainer, first model=, a torch module, but got {model!r:.200}.")
        mine = inspect.signature(Coded).parameters.keys() - inspect.signature(Trainer).parameters.keys() - set(GIVEN)
        self.options = {"scheme": scheme, **{name: options.pop(name) for name in list(options) if name in mine}}
        self.run: Coded | None = None
        self.info: Info | None = None
        self._loader: Any = None
        super().__init__(*args, **options)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Start the workers, train, and end them, also after an error or Ctrl+C."""
        require_plain(self.args, resume_from_checkpoint)
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            if self.run is not None:
                self.run.close()
            self.run = None

    def get_train_dataloader(self) -> Any:
        """Stands for the DataLoader, whose batches workers read."""
        self._loader = super().get_train_dataloader()
        return Stand(self._loader)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """The coded gradient of the next batch, in place of forward and backward pass."""
        model.train()
        if self.run is None:
            bare = self.accelerator.unwrap_model(model)
            self.run = Coded(bare, None, self._loader, forward=WorkerLoss(self), **self.options)
        self.info = info = self.run.backward()
        return torch.tensor(math.nan if info.loss is None else info.loss, device=self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: this process has no batch."""
        return 0


class Stand:
    """As many empty batches as the DataLoader of the workers has."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.dataset = loader, loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({} for _ in range(len(self.loader)))

    def set_epoch(self, epoch: int) -> None:
        """Samplers of some DataLoaders shuffle by epoch."""
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(epoch)


class WorkerLoss:
    """The loss of a batch by the trainer's own `compute_loss`, on a worker, which has a trainer with little else.

    Where the loss is a mean over items that are counted, it is asked for a single item, which gives the sum.
    """

    def __init__(self, trainer: Any) -> None:
        plain = {name: value for name, value in vars(trainer).items() if isinstance(value, PLAIN)}
        self.kind, self.values = type(trainer), plain | {name: getattr(trainer, name, None) for name in KEPT}
        self.counts = bool(self.values["model_accepts_loss_kwargs"]) or self.values["compute_loss_func"] is not None

    def __call__(self, model: nn.Module, batch: Any) -> Any:
        trainer: Any = object.__new__(self.kind)
        vars(trainer).update(self.values, model=model, accelerator=Alone())
        labels = batch.get("labels")
        if not self.counts or labels is None:
            return trainer.compute_loss(model, dict(batch))
        total = trainer.compute_loss(
            model, dict(batch), num_items_in_batch=torch.ones((), dtype=torch.long, device=labels.device)
        )
        return total, labels.ne(IGNORED).sum()


class Alone:
    """Stands for the accelerator on a worker."""

    num_processes = 1

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        return model


def require_plain(args: Any, resume: Any) -> None:
    """Refuse what would count gradients twice, or differently than it says."""
    every, precision = args.gradient_accumulation_steps, [name for name in ("fp16", "bf16") if getattr(args, name, False)]
    for bad, words in (
        (
            every != 1,
            f"gradient_accumulation_steps=1, but got {every}. Use a per_device_train_batch_size {every} times as large, and "
            "micro_batch= where memory is short",
        ),
        (precision, f"{' and '.join(precision)}=False. Use autocast=torch.bfloat16 for the workers"),
        (
            args.world_size > 1 or args.n_gpu > 1,
            "one process with at most one device: it is the master, and starts the workers. Run the script with plain python",
        ),
        (
            resume,
            "resume_from_checkpoint=None: the Trainer would skip batches that workers have not seen. Load the weights into the "
            "model, or write the loop with Coded, whose state goes on from the middle of an epoch",
        ),
    ):
        if bad:
            raise Invalid(f"CodedTrainer needs {words}.")
