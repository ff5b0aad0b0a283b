"""LightningModules for tests: they must be importable by worker processes."""

import lightning.pytorch as pl
import torch
from torch import nn

from .torch_models import mlp


class Classifier(pl.LightningModule):
    """As users write them: a loss that is logged, momentum, and a schedule that goes by steps."""

    def __init__(self, seed=1):
        super().__init__()
        self.net = mlp(dropout=0.3, seed=seed)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.net(inputs), targets)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Validated(Classifier):
    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.log("accuracy", (self.net(inputs).argmax(dim=1) == targets).float().mean())


class Doubled(Classifier):
    """A training step without an index that gives a mapping, a hook that changes every batch, and one that zeroes in place."""

    def training_step(self, batch):
        return {"loss": super().training_step(batch, None), "more": 1}

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return 2 * batch[0], batch[1]

    def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
        optimizer.zero_grad(set_to_none=False)


class Annealed(Classifier):
    """What the trainer knows is not known on workers."""

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * (1 + self.global_step)


class Numbered(Classifier):
    """A batch on a worker is a part of one, without a number."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        return 2 * loss if batch_idx == 0 else loss


class Manual(Classifier):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Newton(Classifier):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.parameters())


class Moving(pl.LightningDataModule):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        return batch

    def train_dataloader(self):
        from torch.utils.data import DataLoader, TensorDataset

        from .torch_models import table

        return DataLoader(TensorDataset(*table()), batch_size=16)
