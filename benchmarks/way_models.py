"""What `way` trains: transformers of two sizes and ResNet-50 on a GPU, perceptrons on a CPU; importable by workers."""

from collections.abc import Callable
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

from .full_size.models import resnet50


class Transformer(nn.Module):
    """A byte-level transformer."""

    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(256, width), nn.Parameter(0.02 * torch.randn(length, width))
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.say = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        return self.say(self.blocks(self.letter(text) + self.place, mask=mask)).transpose(1, 2)


@dataclass(frozen=True)
class Setting:
    """A model, its data, and the samples of a step."""

    name: str
    model: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]]
    batch: int

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        return self.model()


def text(length: int) -> tuple[Tensor, Tensor]:
    """Python's manual, in rows of bytes and the bytes that follow."""
    book = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    rows = torch.tensor(list(book[: len(book) // (length + 1) * (length + 1)])).view(-1, length + 1)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def pictures(samples: int = 256, pixels: int = 128) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, 3, pixels, pixels, generator=generator)
    return images, torch.randint(0, 1000, (samples,), generator=generator)


SMALL = Setting("transformer, 10.9 M", lambda: Transformer(384, 6, 6, 128), lambda: text(128), 256)
LARGE = Setting("transformer, 133 M", lambda: Transformer(640, 27, 10, 256), lambda: text(256), 32)
PICTURES = Setting("ResNet-50, 25.6 M", resnet50, pictures, 64)
GPU = (SMALL, LARGE, PICTURES)


def perceptron(width: int) -> nn.Module:
    """width 1,000: about 1 million parameters."""
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def points(samples: int = 512) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 64, generator=generator), torch.randint(0, 10, (samples,), generator=generator)
