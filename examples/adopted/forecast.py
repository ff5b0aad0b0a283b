"""Sine waves continued by an LSTM, as pytorch/examples/time_sequence_prediction does it: double precision, all samples in every
step, and L-BFGS, which asks for the gradient several times a step through a closure."""

import torch
from torch import nn


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(1, 8, 2, batch_first=True), nn.Linear(8, 1)

    def forward(self, wave):
        output, _ = self.lstm(wave.unsqueeze(2))
        return self.linear(output).squeeze(2)


def main(steps=3):
    torch.manual_seed(0)
    waves = torch.sin((torch.arange(12) + torch.randint(-8, 8, (16, 1))) / 2.0).double()
    inputs, target = waves[:, :-1], waves[:, 1:]
    seq = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(seq.parameters(), lr=0.5, max_iter=4)
    losses = []

    def closure():
        optimizer.zero_grad()
        out = seq(inputs)
        loss = criterion(out, target)
        loss.backward()
        losses.append(loss.item())
        return loss

    for step in range(steps):
        optimizer.step(closure)
        print(f"step {step}: loss {losses[-1]:.6f}")
    return losses, seq


if __name__ == "__main__":
    main()
