"""A small GPT, as nanoGPT trains it: windows drawn anywhere in a text, gradient accumulation, clipping, warm-up and decay."""

import math
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn import functional

BLOCK, WIDTH, BATCH = 16, 16, 8


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(128, WIDTH), nn.Embedding(BLOCK, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.lm_head = nn.Linear(WIDTH, 128, bias=False)

    def forward(self, idx, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.shape[1])
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.blocks(x, mask=mask))
        return logits, functional.cross_entropy(logits.view(-1, 128), targets.reshape(-1))


def get_batch(data):
    ix = torch.randint(len(data) - BLOCK, (BATCH,))
    x = torch.stack([data[i : i + BLOCK] for i in ix])
    return x, torch.stack([data[i + 1 : i + 1 + BLOCK] for i in ix])


def get_lr(it, warmup=2, last=8):
    if it < warmup:
        return 1e-2 * (it + 1) / (warmup + 1)
    return 1e-3 + 0.5 * (1 + math.cos(math.pi * min(1.0, (it - warmup) / (last - warmup)))) * 9e-3


def main(iters=6, gradient_accumulation_steps=4):
    torch.manual_seed(1337)
    data = torch.tensor(list(topics["assert"].encode("ascii", "ignore")))
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    losses = []
    for it in range(iters):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        lossf = 0.0
        for _ in range(gradient_accumulation_steps):
            X, Y = get_batch(data)
            _, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
            lossf += loss.item()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(lossf)
        print(f"iter {it}: loss {lossf:.4f}")
    return losses, model


if __name__ == "__main__":
    main()
