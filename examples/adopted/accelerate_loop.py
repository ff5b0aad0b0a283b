"""A loop with an Accelerator, as the first pages of Hugging Face Accelerate have it: prepare, backward, a schedule."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(epochs=2):
    torch.manual_seed(0)
    inputs = torch.randn(96, 10)
    dataset = TensorDataset(inputs, (inputs[:, 0] * inputs[:, 1] > 0).long())
    loader = DataLoader(dataset, batch_size=32)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=6)
    loss_function = nn.CrossEntropyLoss()

    accelerator = Accelerator(cpu=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    losses = []
    for epoch in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = loss_function(outputs, targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {losses[-1]:.4f}")
    return losses, model


if __name__ == "__main__":
    main()
