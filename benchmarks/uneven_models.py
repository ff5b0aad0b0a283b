"""What `uneven` trains: a residual network of 18 layers on digits, and a transformer on text; importable by workers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .full_size.models import group_norm
from .way_models import Transformer, text


class Residual(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        first = nn.Conv2d(channels, out, 3, stride, 1, bias=False), group_norm(out), nn.ReLU()
        self.branch = nn.Sequential(*first, nn.Conv2d(out, out, 3, 1, 1, bias=False), group_norm(out))
        same = channels == out and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.branch(x) + self.around(x))


def resnet18(width: int = 64) -> nn.Module:
    """As deep and wide as ResNet-18, 11.2 million parameters, for small pictures of one channel; group norms."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, 2, 1, bias=False), group_norm(width), nn.ReLU()]
    for stage in range(4):
        before, out = width * 2 ** max(stage - 1, 0), width * 2**stage
        layers += [Residual(before, out, 1 if stage == 0 else 2), Residual(out, out, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


def digits(pixels: int = 32) -> tuple[Tensor, Tensor]:
    """scikit-learn's digits, made larger."""
    from sklearn.datasets import load_digits

    found: Any = load_digits(return_X_y=True)
    small = torch.tensor(found[0].reshape(-1, 1, 8, 8) / 8.0 - 1.0, dtype=torch.float32)
    return nn.functional.interpolate(small, size=pixels, mode="bilinear"), torch.tensor(found[1])


@dataclass(frozen=True)
class Training:
    """A model, its data, samples of a step, and the step size of Adam."""

    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]]
    batch: int
    lr: float

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.model()


def transformer() -> nn.Module:
    """10.9 million parameters."""
    return Transformer(384, 6, 6, 16)


def letters() -> tuple[Tensor, Tensor]:
    """Rows of 16 bytes and those that follow."""
    return text(16)


def tiny() -> nn.Module:
    """For a trial: it shows that all of it runs, and nothing else."""
    return resnet18(width=8)


TRAININGS = {
    "ResNet-18": Training(resnet18, digits, batch=48, lr=3e-4),
    "transformer": Training(transformer, letters, batch=16, lr=3e-4),
    "tiny": Training(tiny, digits, batch=64, lr=1e-3),
}
