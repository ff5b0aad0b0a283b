"""One training script for any engine, run by test_torch_engines.py: it holds every step against one process.

Model and loss are defined here, as in a user's script, and dropout is on.
"""

import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, default_collate

import unstraggle as us
from unstraggle.torch.seeds import seeded

SCHEMES = ("correlated_mmc(4, load=3, order=2)", "fractional_repetition(4, s=1)")
STEPS = 4
AT_HOME = False
"""Whether this is the master."""
MORE = 0.05
"""Seconds of a pass elsewhere."""


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)


class Dear(Net):
    def forward(self, x):
        time.sleep(0.0 if AT_HOME else MORE)
        return super().forward(x)


def smooth(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def slow(code, step):
    """One worker is slow, another one in every step."""
    return np.where(code.messages.worker == step % code.n, 60.0, 0.0)


def alone(run, model, data, step):
    for part in range(run.code.k):
        which = run.batches.rows(step, part)
        with seeded((run.seed, step, part), torch.device("cpu")):
            inputs, targets = default_collate([data[row] for row in which])
            loss = smooth(model(inputs), targets)
        (loss * len(which) / run.batches.size(step)).backward()


def table():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(60, 6, generator=generator), torch.randint(0, 3, (60,), generator=generator)


class Augmented(Dataset):
    """Reading draws random numbers, and dropout draws those that come next."""

    def __init__(self):
        self.inputs, self.targets = table()

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        return self.inputs[row] + 0.1 * torch.randn(6) + 0.1 * np.random.standard_normal(), self.targets[row]  # noqa: NPY002


def pass_on_workers(workers, engine, **options):
    """Seconds of a pass, as it is measured before the code is planned from whole shares of which some are late."""
    late = np.where(np.random.default_rng(0).random((200, workers)) < 0.125, 3.0, 1.0)
    how = {"workers": workers, "latency": late, "batch_size": 24, "engine": engine, "engine_options": options, "trial": 0}
    with us.torch.Coded(Dear(), smooth, table(), scheme="auto", **how) as run:
        assert run.backward().exact
    return run.cost.whole


def train(scheme, engine, width=16, readers=0, **options):
    """Relative difference of the parameters after some steps. readers: processes that read for each worker."""
    data = Augmented() if readers else torch.utils.data.TensorDataset(*table())
    models = [Net(width), Net(width)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.5) for model in models]
    how = {"scheme": scheme, "batch_size": 24, "seed": 5, "engine": engine, "engine_options": options, "readers": readers}
    with us.torch.Coded(models[0], smooth, data, **how) as run:
        for step in range(STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            info = run.backward(delays=slow(run.code, step))
            assert info.exact and step % run.code.n in info.late, info
            alone(run, models[1], data, step)
            for optimizer in optimizers:
                optimizer.step()
    mine, other = (torch.cat([p.detach().reshape(-1) for p in model.parameters()]) for model in models)
    return float((mine - other).norm() / other.norm())


if __name__ == "__main__":
    for readers, scheme in ((1, SCHEMES[0]), (0, SCHEMES[1]))[: int(sys.argv[2])]:
        difference = train(scheme, sys.argv[1], readers=readers)
        print(scheme, difference)
        assert difference < 1e-5
    if sys.argv[1] != "local":  # as workers on devices do, with messages that stand in shared memory
        difference = train(SCHEMES[1], sys.argv[1], width=4000, way="pinned")
        print("pinned", difference)
        assert difference < 1e-5
    if sys.argv[1] == "mpi":  # on Ray in the test of a cluster, for it starts workers twice
        AT_HOME = True
        assert pass_on_workers(4, "mpi") >= MORE
    print("passed")
