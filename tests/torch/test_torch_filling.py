"""Gradients that are put in their place before they are decoded, and what launches the kernel that decodes them."""

import pytest
import torch
from torch import nn

from unstraggle.errors import Invalid
from unstraggle.torch.filling import Filling

from ..torch_models import coded, mlp, table


def pairs_of(params):
    """How a vector is cut into gradients of parameters."""

    def cut(flat):
        ends = torch.tensor([p.numel() for p in params]).cumsum(0).tolist()
        return [(p, flat[end - p.numel() : end].view(p.shape)) for p, end in zip(params, ends, strict=True)]

    return cut


def some_params():
    return [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(3))]


def test_gradients_that_are_none_are_there_early_and_others_are_added_to():
    first, second = params = some_params()
    second.grad, filling, coming = torch.full((3,), 10.0), Filling(), torch.zeros(7)
    filling.prepare(coming, pairs_of(params))
    early = first.grad
    assert early.data_ptr() == coming.data_ptr() and torch.equal(second.grad, torch.full((3,), 10.0))
    coming += torch.arange(7.0)  # it is decoded
    filling.fill(coming, pairs_of(params))
    assert first.grad is early and first.grad.flatten().tolist() == [0, 1, 2, 3] and second.grad.tolist() == [14, 15, 16]
    filling.fill(coming, pairs_of(params))  # of another step, for which nothing was prepared
    assert second.grad.tolist() == [18, 20, 22] and first.grad.flatten().tolist() == [0, 2, 4, 6]


def test_a_gradient_that_comes_elsewhere_takes_the_place_of_what_was_there_early():
    params, filling = some_params(), Filling()
    filling.prepare(torch.full((7,), torch.nan), pairs_of(params))
    filling.fill(torch.ones(7), pairs_of(params))
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in params)


def test_without_a_gradient_there_is_none_again():
    params, filling = some_params(), Filling()
    params[1].grad = torch.ones(3)
    filling.prepare(torch.zeros(7), pairs_of(params))
    filling.withdraw()
    assert params[0].grad is None and torch.equal(params[1].grad, torch.ones(3))


def test_what_lies_otherwise_in_memory_is_not_there_early():
    images = nn.Parameter(torch.zeros(1, 2, 2, 2).to(memory_format=torch.channels_last))
    filling, coming = Filling(), torch.arange(8.0)
    filling.prepare(coming, pairs_of([images]))
    assert images.grad is None
    filling.fill(coming, pairs_of([images]))
    assert images.grad.stride() == images.stride() and torch.equal(images.grad.flatten(), coming)


def test_a_step_that_fails_leaves_gradients_alone():
    model = mlp()
    with coded(model, data=table(), scheme="uncoded(2)") as run:
        prepare, seen = run._prepare, []

        def failing(*given):
            prepare(*given)
            seen.extend(p.grad for p in model.parameters())
            raise Invalid("this step fails")

        run._prepare = failing
        with pytest.raises(Invalid, match="this step fails"):
            run.backward()
        assert all(grad is not None for grad in seen) and all(p.grad is None for p in model.parameters())
        run._prepare = prepare
        assert run.backward().exact


class Kernels:
    """In place of Triton's kernel: says how it was launched. old: compiled ones want other arguments."""

    def __init__(self, old=False):
        self.found, self.launched, self.old = 0, [], old

    def __getitem__(self, grid):
        def look_up(*given):
            self.found += 1
            self.launched.append((grid, given))
            return Compiled(self)

        return look_up


class Compiled:
    def __init__(self, kernels):
        self.kernels = kernels

    def __getitem__(self, grid):
        def launch(*given):
            if self.kernels.old:
                raise TypeError("function takes exactly 22 arguments")
            self.kernels.launched.append((grid, given))

        return launch


@pytest.mark.parametrize("old", [False, True])
def test_a_kernel_is_looked_up_once_for_arguments_that_are_alike(monkeypatch, old):
    device_kernel = pytest.importorskip("unstraggle.torch.device_kernel")
    kernels = Kernels(old)
    monkeypatch.setattr(device_kernel, "blend", kernels)
    monkeypatch.setattr(device_kernel, "compiled", {})
    memory, weights, report = torch.zeros(64), torch.zeros(9, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)

    def launch(vectors, begin=0, below=-1, kind=torch.float32):
        out = memory[begin : begin + 16].to(kind)
        device_kernel.launch(out, report, weights, vectors, below=below)

    for _ in range(3):
        launch([memory[:16]])
    assert kernels.found == (3 if old else 1) and len(kernels.launched) == 3
    assert len({len(given) for _, given in kernels.launched}) == 1
    assert all(grid == (1, 1, 1) and given[2] is given[9] for grid, given in kernels.launched)
    before = kernels.found
    launch([memory[1:17]])  # does not begin where 16 bytes do
    launch([memory[:16], memory[:16]])
    launch([memory[:16]], below=1)
    launch([memory[:16]], kind=torch.float64)
    assert kernels.found == before + 4 and len(kernels.launched) == 7
