"""A LightningModule and a Trainer, as Lightning's first page has them: an autoencoder of digits."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class AutoEncoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 64))
        self.losses = []

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.losses.append(float(self.trainer.callback_metrics["train_loss"]))


def main(epochs=2):
    torch.manual_seed(0)
    images = torch.tensor(load_digits().data[:96] / 16, dtype=torch.float32)
    loader = DataLoader(TensorDataset(images), batch_size=32)
    model = AutoEncoder()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, **quiet)
    trainer.fit(model, loader)
    return model.losses, model


if __name__ == "__main__":
    main()
