"""ResNet-50 and GPT-2 small, by size: 25.6 and 124.4 million parameters."""

from typing import Any

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """A layer of GPT-2: attention and a perceptron, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.ask(self.first(x)).chunk(3, dim=-1))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.answer(seen.transpose(1, 2).flatten(-2))
        return x + self.think(self.second(x))


class GPT2(nn.Module):
    """The 124 M parameters of GPT-2 small: 12 layers of width 768, 50,257 tokens, tied embeddings."""

    def __init__(self, tokens: int = 50257, width: int = 768, layers: int = 12, length: int = 1024, heads: int = 12) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.layers(self.token(text) + self.place.weight[: text.shape[1]])
        return self.last(x) @ self.token.weight.T


def group_norm(channels: int) -> nn.Module:
    """In place of batch normalisation, whose statistics would depend on who computes what."""
    return nn.GroupNorm(8, channels)


def resnet50() -> nn.Module:
    """torchvision's, with group norms and residual branches that start at zero; without the latter, 100 steps learn nothing."""
    from torchvision.models import resnet50

    model: Any = resnet50(weights=None, norm_layer=group_norm, zero_init_residual=True)
    return model


class Detector(nn.Module):
    """MobileNetV3-Large, as in the paper's SSDLite, and a head that says for every 32 pixels what is there, and where."""

    def __init__(self, labels: int) -> None:
        from torchvision.models import mobilenet_v3_large

        super().__init__()
        self.features = mobilenet_v3_large(weights=None, norm_layer=group_norm).features
        self.head = nn.Conv2d(960, labels + 5, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.head(self.features(pictures))
        return found


def small_convolutions(channels: int = 8) -> nn.Module:
    """A network of a few thousand parameters that learns the same pictures, for tests on a CPU."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 5, stride=4, padding=2),
        group_norm(channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * channels, 10),
    )


def values(model: nn.Module) -> Tensor:
    """(dim,) all parameters, one after another."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
