"""Gradients that are not finite, in a training loop."""

import torch
from torch import nn

from ..torch_models import coded


class Root(nn.Module):
    """Finite losses whose gradient is infinite where the outputs are zero."""

    def forward(self, outputs, targets):
        return outputs.square().sum(dim=1).sqrt().mean()


def test_a_scaler_leaves_out_the_step_and_statistics_stay():
    """NaN was called exact, and went into the running statistics of batch normalisation with the rest."""
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].bias)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.zeros(()))
    with coded(model, Root()) as run:
        info = run.backward()
        assert not info.exact and not info.finite and not info.skipped and info.loss == 0
        assert not torch.isfinite(model[1].weight.grad).all() and int(model[0].num_batches_tracked) == 0
        scaler.step(optimizer)
        scaler.update()
        assert not model[1].weight.any() and scaler.get_scale() == 4
        with torch.no_grad():
            model[1].bias.fill_(1.0)
        optimizer.zero_grad()
        info = run.backward()
    assert info.exact and info.finite and int(model[0].num_batches_tracked) == 1
