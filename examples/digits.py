"""Handwritten digits with three lines of coded training in an ordinary loop. Any one of four workers may be late.

python examples/digits.py
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import unstraggle as us


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--scheme", default="cyclic_repetition(4, s=1)", help="'none' with --workers: wait for all")
    options.add_argument("--engine", default="local", help="local, ray or mpi")
    args = options.parse_args()

    pixels, labels = load_digits(return_X_y=True)
    data = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

    with us.torch.Coded(model, nn.CrossEntropyLoss(), data, scheme=args.scheme, engine=args.engine, batch_size=256) as run:
        for step in range(args.steps):
            optimizer.zero_grad()
            info = run.backward()
            optimizer.step()
            if step % 20 == 0 or step == args.steps - 1:
                print(f"step {step}: loss {info.loss:.4f}, exact {info.exact}, without workers {info.late}")
    model.eval()
    print(f"accuracy {(model(data[0]).argmax(dim=1) == data[1]).float().mean():.3f}")


if __name__ == "__main__":
    main()
