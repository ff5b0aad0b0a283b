"""A small residual network, with a block code: layers that the backward pass reaches late tolerate more stragglers.

python examples/resnet.py
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import unstraggle as us


class Residual(nn.Module):
    """x + f(x), with group normalisation: its statistics are those of a sample, so partitions do not matter."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = (nn.GroupNorm(4, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.f = nn.Sequential(*half, nn.GroupNorm(4, channels), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--scheme", default="blocks([2, 1], uncoded(4), cyclic_repetition(4, s=1))")
    args = options.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    data = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 16, 3, padding=1), Residual(16), Residual(16), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    with us.torch.Coded(model, nn.CrossEntropyLoss(), data, scheme=args.scheme, batch_size=128) as run:
        for step in range(args.steps):
            optimizer.zero_grad()
            info = run.backward()
            optimizer.step()
            if step % 20 == 0 or step == args.steps - 1:
                print(f"step {step}: loss {info.loss:.4f}, exact {info.exact}")


if __name__ == "__main__":
    main()
