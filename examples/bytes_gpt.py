"""A small byte-level GPT on the text of Python's own manual, with gradients quantised to 8 bits.

python examples/bytes_gpt.py
"""

import argparse
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

import unstraggle as us

LENGTH, WIDTH = 64, 64


class Gpt(nn.Module):
    """Two blocks of causal attention: (samples, LENGTH) bytes to (samples, 256, LENGTH) scores of the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(256, WIDTH), nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        block = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.say = nn.Linear(WIDTH, 256)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.say(self.blocks(self.letter(text) + self.place, mask=mask)).transpose(1, 2)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--scheme", default="quantize(fractional_repetition(4, s=1), bits=8, bucket=512)")
    args = options.parse_args()

    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    rows = torch.tensor(list(text[: len(text) // (LENGTH + 1) * (LENGTH + 1)])).view(-1, LENGTH + 1)
    torch.manual_seed(0)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    with us.torch.Coded(model, nn.CrossEntropyLoss(), data, scheme=args.scheme, batch_size=128) as run:
        for step in range(args.steps):
            optimizer.zero_grad()
            info = run.backward()
            optimizer.step()
            if step % 20 == 0 or step == args.steps - 1:
                with torch.no_grad():
                    loss = nn.functional.cross_entropy(model(data[0][:256]), data[1][:256])
                print(f"step {step}: loss {loss:.3f} nats per byte, {info.bytes / 1e6:.2f} MB per step")


if __name__ == "__main__":
    main()
