"""Digits, as pytorch/examples/mnist trains on them: a small convolutional network, Adadelta, a schedule, a test every epoch."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

DROPOUT = 0.0  # the original has 0.25: workers draw other numbers than one process does


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3)
        self.dropout = nn.Dropout(DROPOUT)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = functional.relu(self.conv1(x))
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return functional.log_softmax(self.fc(self.dropout(torch.flatten(x, 1))), dim=1)


def train(model, loader, optimizer, epoch, losses):
    model.train()
    for number, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        output = model(data)
        loss = functional.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"epoch {epoch} [{number}/{len(loader)}] loss {loss.item():.4f}")


def test(model, data, target):
    model.eval()
    with torch.no_grad():
        right = (model(data).argmax(dim=1) == target).float().mean()
    print(f"accuracy {right:.3f}")


def main(epochs=2):
    torch.manual_seed(1)
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    labels = torch.tensor(labels)
    loader = DataLoader(TensorDataset(images[:384], labels[:384]), batch_size=96, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses = []
    for epoch in range(epochs):
        train(model, loader, optimizer, epoch, losses)
        test(model, images[1500:], labels[1500:])
        scheduler.step()
    return losses, model


if __name__ == "__main__":
    main()
