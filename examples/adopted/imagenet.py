"""Image classification, as pytorch/examples/imagenet does it: a residual network, meters of loss and accuracy, validation, the
best checkpoint. Pictures are random; normalisation is over groups, which does not depend on how a batch is cut."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 4


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        layers = nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(2, width), nn.ReLU()
        self.body = nn.Sequential(*layers, nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(2, width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum, self.count = self.sum + value * n, self.count + n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def accuracy(output, target):
    return (output.argmax(dim=1) == target).float().mean() * 100


def train(loader, model, criterion, optimizer, epoch, losses):
    loss_meter, top1 = AverageMeter(), AverageMeter()
    model.train()
    for images, target in loader:
        output = model(images)
        loss = criterion(output, target)
        loss_meter.update(loss.item(), images.size(0))
        top1.update(accuracy(output, target).item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {loss_meter.avg:.4f}, top 1 {top1.avg:.2f}")


def validate(loader, model, criterion):
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            top1.update(accuracy(model(images), target).item(), images.size(0))
    return top1.avg


def pictures(count):
    target = torch.randint(0, CLASSES, (count,))
    return TensorDataset(torch.randn(count, 3, 8, 8) + target.view(-1, 1, 1, 1), target)


def main(epochs=2):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Residual(8), Residual(8), nn.Flatten(), nn.Linear(288, CLASSES))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    train_loader = DataLoader(pictures(96), batch_size=32, shuffle=True, num_workers=0)
    val_loader = DataLoader(pictures(32), batch_size=32)
    losses, best, saved = [], 0.0, {}
    for epoch in range(epochs):
        train(train_loader, model, criterion, optimizer, epoch, losses)
        found = validate(val_loader, model, criterion)
        scheduler.step()
        if found > best:
            best, saved = found, {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    print(f"best top 1 {best:.2f}, of epoch {saved.get('epoch')}")
    return losses, model


if __name__ == "__main__":
    main()
