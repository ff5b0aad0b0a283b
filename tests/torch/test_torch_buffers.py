"""Buffers that a forward pass moves: every partition starts from those that the master has."""

import copy

import pytest
import torch
from torch import nn

from ..torch_models import coded, table


class Moving(nn.Module):
    """A layer whose outputs grow with a buffer that every forward pass moves: in place, or by another tensor in its place."""

    def __init__(self, in_place):
        super().__init__()
        self.layer, self.in_place = nn.Linear(6, 3), in_place
        self.register_buffer("scale", torch.ones(1))

    def forward(self, inputs):
        if self.in_place:
            self.scale.mul_(1.5)
        else:
            self.scale = 1.5 * self.scale
        return self.scale * self.layer(inputs)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("in_place", [True, False])
def test_buffers_are_those_of_the_model_before_every_forward_pass(in_place, check):
    """The checks before the start moved them: gradients were 2.4 times too large, and called exact."""
    model, data = Moving(in_place), table()
    other = copy.deepcopy(model)
    with coded(model, data=data, scheme="cyclic_repetition(4, s=1)", batch_size=50, check=check, statistics="discard") as run:
        infos = [run.backward(), run.backward()]
    nn.functional.cross_entropy(other(data[0]), data[1]).backward()
    assert all(info.exact for info in infos) and float(model.scale) == 1
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, 2 * q.grad, rtol=1e-4, atol=1e-6)
