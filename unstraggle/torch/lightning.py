"""CodedStrategy: the training step of a LightningModule on coded workers. Needs `pip install 'unstraggle[lightning]'`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.plugins import Precision
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.data import extract_batch_size
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn

from ..doors import door
from ..errors import Invalid
from .coded import Coded
from .info import Info
from .loaders import Counted

GIVEN = ("batch_size", "batches", "shuffle", "drop_last", "collate", "forward", "model", "loss_fn", "dataset")
"""What `Coded` is told by the module and its DataLoader."""

LOGGED: dict[str, dict[str, Any]] = {}
"""How training steps log, by name, as it was seen before the start: on the progress bar, at the end of an epoch."""
WEIGHT = "/samples"
"""Behind the name of something logged: over how many samples it is a mean."""

TRANSFER = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
"""Hooks that a batch passes before the training step."""


@door
class CodedStrategy(SingleDeviceStrategy):
    """`Trainer(strategy=CodedStrategy("cyclic_repetition(8, s=1)"))`: workers run `training_step`, the trainer does the rest.

    Dataset, batch size, shuffling and collation are those of the train DataLoader, which this process does not read. options:
    those of `Coded`, such as engine, device, autocast, seed. `run` is that `Coded`, `info` what its last step tells.
    """

    parallel_devices: list[torch.device] | None = None  # the trainer sets these two where a strategy has them
    num_nodes: int = 1

    def __init__(self, scheme: Any = "auto", **options: Any) -> None:
        super().__init__()
        wrong = options.keys() - (inspect.signature(Coded).parameters.keys() - set(GIVEN))
        if wrong:
            raise Invalid(
                "CodedStrategy takes the options of Coded, except those that the module and its train DataLoader give "
                f"({', '.join(GIVEN)}), but got {', '.join(sorted(wrong))}. Set these there, or correct their spelling."
            )
        self.options = {"scheme": scheme, **options}
        self.run: Coded | None = None
        self.info: Info | None = None
        self._loaders: list[Counted] = []
        self._grads: dict[nn.Parameter, Tensor | None] = {}

    @property
    def root_device(self) -> torch.device:
        return self.parallel_devices[0] if self.parallel_devices else torch.device("cpu")

    @property
    def _module(self) -> LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module

    def setup(self, trainer: Trainer) -> None:
        self._loaders = []
        super().setup(trainer)
        if trainer.training:
            require_plain(trainer, self)

    def process_dataloader(self, dataloader: object) -> object:
        if not self._module.trainer.training:
            return dataloader
        self._loaders.append(Counted(dataloader))
        return self._loaders[-1]

    def batch_to_device(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        return batch if self._module.trainer.training else super().batch_to_device(batch, device, dataloader_idx)

    def on_train_start(self) -> None:
        """Start the workers, at the step of the checkpoint or of the trainer."""
        if len(self._loaders) != 1:
            raise Invalid(f"CodedStrategy needs one train DataLoader, but got {len(self._loaders)}. Join their datasets.")
        data = self._loaders[0]
        self.run = data.run = Coded(self._module, same_loss, data.dataset, forward=worker_step, **data.options, **self.options)
        self.run.load_state_dict({**self.run.state_dict(), "step": self._module.trainer.global_step, **data.saved})

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor | None:
        """The coded gradient, kept until `backward` since the loop zeroes gradients in between; None where it was skipped."""
        assert self.run is not None
        require_plain(self._module.trainer, self)  # callbacks may change what it asks for
        self._module.zero_grad()
        self.info = info = self.run.backward()
        self._grads = {p: p.grad for p in self._module.parameters()}
        self._module.zero_grad()
        told = {"exact": info.exact, "wall": info.wall, "wait": info.wait, "late": len(info.late), "lost": len(info.lost)}
        logged = {f"coded/{name}": float(value) for name, value in (told | {"loss": info.loss}).items() if value is not None}
        self._module.log_dict(logged, batch_size=info.samples)
        for name, total in info.metrics.items():
            if name in LOGGED and info.metrics[name + WEIGHT]:
                self._module.log(name, total / info.metrics[name + WEIGHT], batch_size=info.samples, **LOGGED[name])
        loss = torch.tensor(math.nan if info.loss is None else info.loss, device=self.root_device)
        return None if info.skipped else loss

    def backward(self, closure_loss: Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> Tensor:
        closure_loss = self.precision_plugin.pre_backward(closure_loss, self._module)
        for p, grad in self._grads.items():
            p.grad = grad
        return self.precision_plugin.post_backward(closure_loss, self._module)

    def teardown(self) -> None:
        """End the workers; the trainer calls this also after an error or Ctrl+C."""
        if self.run is not None:
            self.run.close()
        super().teardown()


# What is refused


def require_plain(trainer: Any, strategy: CodedStrategy) -> None:
    """Refuse what would count gradients twice, or differently than it says."""
    devices, every, module = len(strategy.parallel_devices or [0]), trainer.accumulate_grad_batches, trainer.lightning_module
    moved = [hook for hook in TRANSFER if is_overridden(hook, trainer.datamodule)]
    for bad, words in (
        (devices > 1, f"devices=1, but got {devices}: this process is the master. Workers are those of scheme= or workers="),
        (strategy.num_nodes > 1, f'num_nodes=1, but got {strategy.num_nodes}. Use engine="ray" or "mpi" for several machines'),
        (every != 1, f"accumulate_grad_batches=1, but got {every}. Use a batch_size {every} times as large in the DataLoader"),
        (
            type(strategy.precision_plugin) is not Precision,
            f'precision="32-true", but got {trainer.precision!r}. Use CodedStrategy(autocast=torch.bfloat16) for the workers',
        ),
        (trainer.overfit_batches, "overfit_batches=0. Give a smaller dataset to the DataLoader"),
        (trainer.reload_dataloaders_every_n_epochs, "reload_dataloaders_every_n_epochs=0: workers get the data once"),
        (not module.automatic_optimization, "automatic_optimization=True. Use Coded in the training loop that you wrote"),
        (
            any(isinstance(o, torch.optim.LBFGS) for o in strategy.optimizers),
            "one gradient per step, but got LBFGS. Use Adam or SGD",
        ),
        (moved, f"{' and '.join(moved)} in the LightningModule, not in the DataModule, which workers do not have"),
    ):
        if bad:
            raise Invalid(f"CodedStrategy needs {words}.")


# On a worker


class NoTrainer:
    """Stands for the trainer on a worker. Lightning would silently give epoch 0 and step 0 there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Invalid(
            f"training_step asks for trainer.{name}, but workers have no trainer. What changes from step to step must be a "
            "trainable parameter or come with the samples; other things belong into hooks that the master runs."
        )


class NoIndex:
    """Stands for `batch_idx` on a worker, where a batch is a part of one: whatever asks for its number is told so."""

    def _refuse(self, *_: Any) -> Any:
        raise Invalid(
            "training_step asks for batch_idx, but workers compute parts of a batch, in any order, and know no number. Count "
            "in a hook that the master runs, such as on_train_batch_start, or let the number come with the samples."
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __index__ = __float__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __floordiv__ = __truediv__ = _refuse
    __str__ = __format__ = _refuse


class Logs:
    """In place of `LightningModule.log` on a worker: keeps what a training step logs, which goes to the master as sums."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Any, int | None]] = {}

    def log(self, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        number = value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, int | float)
        if not number:
            return  # metrics with a state of their own know one partition only
        how = inspect.signature(LightningModule.log).bind(None, name, value, *args, **kwargs).arguments
        self.kept[name] = value, how.get("batch_size")
        LOGGED[name] = {key: how[key] for key in ("prog_bar", "logger", "on_step", "on_epoch") if key in how}

    def log_dict(self, values: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        for name, value in values.items():
            self.log(name, value, *args, **kwargs)

    def sums(self, batch: Any) -> dict[str, Any]:
        """Means over a batch times its samples, and the samples: the master divides one by the other."""
        found: dict[str, Any] = {}
        for name, (value, size) in self.kept.items():
            size = extract_batch_size(batch) if size is None else size
            found |= {name: value * size, name + WEIGHT: size}
        return found


def worker_step(module: Any, batch: Any) -> tuple[Any, None]:
    """The loss of a batch by the user's own training step, and what it logs."""
    logs = Logs()
    for each in module.modules():
        if isinstance(each, LightningModule):
            vars(each).update(_trainer=NoTrainer(), log=logs.log, log_dict=logs.log_dict)
    device = next(module.parameters()).device
    batch = module.transfer_batch_to_device(module.on_before_batch_transfer(batch, 0), device, 0)
    batch = module.on_after_batch_transfer(batch, 0)
    arguments = (batch, NoIndex())[: len(inspect.signature(module.training_step).parameters)]
    found = module.training_step(*arguments)
    loss = found["loss"] if isinstance(found, Mapping) else found
    if not logs.kept:
        return loss, None
    return (*(loss if isinstance(loss, tuple) else (loss,)), logs.sums(batch)), None


def same_loss(loss: Any, _: None) -> Any:
    """The training step has computed it."""
    return loss
