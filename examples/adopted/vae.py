"""A variational autoencoder of digits, as pytorch/examples/vae trains it: a loss that is a sum, with random draws."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


def draw(std):
    return torch.randn_like(std)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 64)

    def forward(self, x):
        h1 = functional.relu(self.fc1(x))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        std = torch.exp(0.5 * logvar)
        z = mu + draw(std) * std
        return torch.sigmoid(self.fc4(functional.relu(self.fc3(z)))), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = functional.binary_cross_entropy(recon_x, x, reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


def main(epochs=2):
    torch.manual_seed(1)
    images = torch.tensor(load_digits().data[:96] / 16, dtype=torch.float32)
    loader = DataLoader(TensorDataset(images), batch_size=32, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for epoch in range(epochs):
        model.train()
        train_loss = 0.0
        for (data,) in loader:
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: average loss {train_loss / len(images):.4f}")
    return losses, model


if __name__ == "__main__":
    main()
