"""Models, losses and datasets for tests of training: they must be importable by worker processes."""

import math
import os

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

import unstraggle as us
from unstraggle.latency import ShiftedExponential
from unstraggle.runtime.sums import Pass


def mlp(dtype=torch.float32, dropout=0.0, seed=1):
    torch.manual_seed(seed)
    layers = [nn.Linear(6, 12), nn.Tanh(), nn.Dropout(dropout), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3)]
    return nn.Sequential(*layers).to(dtype)


def deep():
    """Four small layers, all of the same size."""
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(4, 4), nn.Tanh())])


class Twice(nn.Module):
    """A layer that is used by two checkpoints, which the backward pass computes one after the other."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.same = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, inputs):
        there = checkpoint(self.same, self.first(inputs), use_reentrant=True)
        return checkpoint(self.same, there.tanh(), use_reentrant=True)


def table(samples=50, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 6, generator=generator, dtype=dtype)
    return inputs, torch.randint(0, 3, (samples,), generator=generator)


class Noisy(Dataset):
    """Augmented samples: noise from torch, numpy and the standard library."""

    def __init__(self, samples=24, missing=None, file=None):
        self.inputs, self.targets = table(samples)
        self.missing, self.file = missing, file

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        import random

        if row == self.missing:
            raise FileNotFoundError(f"no such file: {row}.png")
        if self.file and not os.path.exists(self.file):
            raise FileNotFoundError(f"no such file: {self.file}")
        noise = torch.randn(6) + np.random.standard_normal() + random.gauss(0.0, 1.0)  # noqa: NPY002
        return self.inputs[row] + 0.1 * noise, self.targets[row]


class Unpicklable(Noisy):
    def __reduce__(self):
        raise TypeError("an open file handle cannot be sent")


class FailsAt(nn.Module):
    """Cross entropy that turns NaN where an input is marked."""

    def forward(self, outputs, targets):
        loss = nn.functional.cross_entropy(outputs, targets)
        return loss * math.nan if bool((targets == 2).all()) else loss


class Unseeded(nn.Module):
    """Noise that no seed controls."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        noise = np.frombuffer(os.urandom(8), np.uint64)[0] / 2**64
        return self.layer(x) * (1 + noise)


class Tied(nn.Module):
    """One weight at both ends, a frozen layer, a layer that nothing uses, and a skip connection."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(6, 6, bias=False)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.middle = nn.Linear(6, 6)
        self.unused = nn.Linear(6, 6)
        self.last = nn.Linear(6, 6, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        hidden = hidden + torch.tanh(self.middle(self.frozen(hidden)))
        return self.last(hidden)[:, :3]


class Residual(nn.Module):
    """Blocks with skip connections, normalisation and dropout, as in a transformer or a ResNet."""

    def __init__(self, norm=nn.LayerNorm, depth=3, width=8, dropout=0.2):
        super().__init__()
        torch.manual_seed(2)
        self.stem = nn.Linear(6, width)
        self.layers = nn.ModuleList(
            nn.ModuleList([norm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)]) for _ in range(depth)
        )
        self.dropout, self.last = nn.Dropout(dropout), nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        for norm, up, down in self.layers:
            x = x + self.dropout(down(torch.relu(up(norm(x)))))
        return self.last(x)


class Unet(nn.Module):
    """Skip connections that overlap: the backward pass can pause nowhere between them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.down1, self.down2 = nn.Linear(6, 6), nn.Linear(6, 6)
        self.up2, self.up1 = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        first = torch.tanh(self.down1(x))
        second = torch.tanh(self.down2(first))
        return self.up1(torch.tanh(self.up2(second)) + first)


def half_square(outputs, targets):
    """A sum over samples, without saying so."""
    return 0.5 * (outputs - nn.functional.one_hot(targets, 3)).square().sum()


def root_mean_square(outputs, targets):
    """Neither a sum nor a mean over samples."""
    return (outputs - nn.functional.one_hot(targets, 3)).square().mean().sqrt()


def weighted_mean(outputs, targets):
    """A mean over weights of the classes."""
    return nn.functional.cross_entropy(outputs, targets, torch.tensor([1.0, 5.0, 0.1]))


def tokens_mean(model, batch):
    """The loss itself, a mean over tokens of which some are padding, with its denominator and how many are right."""
    outputs, targets = model(batch[0]).reshape(-1, 2, 3), batch[1]
    counted = targets >= 0
    total = nn.functional.cross_entropy(outputs[counted], targets[counted], reduction="sum")
    return total, counted.sum(), {"right": (outputs[counted].argmax(-1) == targets[counted]).sum(), "tokens": counted.sum()}


def tokens_wrongly(model, batch):
    """The same without its denominator: a mean of means."""
    total, tokens, _ = tokens_mean(model, batch)
    return total / tokens


def contrast(outputs, targets):
    """InfoNCE: every sample is compared with the others."""
    return nn.functional.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)))


def noisy_square(outputs, targets):
    """A sum, with noise in every mode."""
    return (outputs + torch.randn_like(outputs)).square().sum()


def next_token(model, batch):
    """A batch that is one tensor: inputs and targets are its columns."""
    return model(batch[:, :6]), batch[:, 6].long()


class Distilled(nn.Module):
    """A student that follows a frozen teacher, with a temperature in a buffer and a strength in an attribute."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.student, self.teacher = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)
        self.register_buffer("temperature", torch.ones(1))
        self.strength = 1.0

    def forward(self, x):
        return self.strength * torch.tanh(self.student(x) / self.temperature) - torch.tanh(self.teacher(x))


class Counting(nn.Module):
    """Moves a buffer in every forward pass."""

    def __init__(self, calls):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("calls", calls)

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


def scaled(model, batch, context):
    """A forward function that takes what goes with a step."""
    inputs, targets = batch
    return model(inputs) / context["temperature"], targets


def mean_square(outputs, targets):
    """Of outputs that are differences already."""
    return outputs.square().mean()


def together(samples):
    """A collate function of one's own."""
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


def coded(model=None, loss_fn=None, data=None, **options):
    """A run on a sampled clock unless said otherwise."""
    options = {"scheme": "fractional_repetition(4, s=1)", "batch_size": 16, "seed": 3, "engine": "virtual", **options}
    if options["engine"] == "virtual":
        options.setdefault("latency", ShiftedExponential(rate=1.0))
    data = table() if data is None else data
    return us.torch.Coded(mlp() if model is None else model, loss_fn or nn.CrossEntropyLoss(), data, **options)


class Widest(nn.Module):
    """Knows the most samples that it saw in a forward pass."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.layer, self.most = nn.Linear(6, 3), 0

    def forward(self, x):
        self.most = max(self.most, len(x))
        return self.layer(x)


def params_of(run):
    """A copy of what workers would get now."""
    flat = run._params()
    if isinstance(run._finite, Pass):
        run._finite.fine()
    return np.array(flat)
