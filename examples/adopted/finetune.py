"""Fine-tuning, as the tutorial on transfer learning does it: a backbone that stays as it is, a new head, phases of training and
validation, the best weights. The backbone is random here, where the tutorial has a pretrained ResNet."""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def datasets():
    images, labels = load_digits(n_class=2, return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    return {"train": TensorDataset(images[:80], labels[:80]), "val": TensorDataset(images[80:160], labels[80:160])}


def train_model(model, criterion, optimizer, scheduler, dataloaders, num_epochs):
    best_acc, best, losses = 0.0, {}, []
    for epoch in range(num_epochs):
        for phase in ("train", "val"):
            model.train(phase == "train")
            running_corrects = 0
            for inputs, labels in dataloaders[phase]:
                optimizer.zero_grad()
                with torch.set_grad_enabled(phase == "train"):
                    outputs = model(inputs)
                    loss = criterion(outputs, labels)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                running_corrects += int((outputs.argmax(dim=1) == labels).sum())
            if phase == "train":
                scheduler.step()
            elif running_corrects > best_acc:
                best_acc, best = running_corrects, copy.deepcopy(model.state_dict())
        print(f"epoch {epoch}: {best_acc} right at best")
    model.load_state_dict(best)
    return losses


def main(epochs=2):
    torch.manual_seed(0)
    dataloaders = {name: DataLoader(data, batch_size=40, shuffle=name == "train") for name, data in datasets().items()}
    backbone = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
    for param in backbone.parameters():
        param.requires_grad = False
    model = nn.Sequential(backbone, nn.Linear(72, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    losses = train_model(model, nn.CrossEntropyLoss(), optimizer, scheduler, dataloaders, epochs)
    return losses, model


if __name__ == "__main__":
    main()
