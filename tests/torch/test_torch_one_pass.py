"""One pass per message: the same gradient, and refused where samples or draws belong to their partition."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from unstraggle import Invalid, codes
from unstraggle.torch.checks import joins, tied

from ..torch_models import Noisy, coded, mlp, params_of, table

SCHEMES = ["fractional_repetition(4, s=1)", "uncoded_mmc(4, load=2)", "cyclic_repetition(4, s=1)", "uncoded(4)"]


class Counting(nn.Module):
    """Counts its forward passes in a file."""

    def __init__(self, file):
        super().__init__()
        self.layers, self.file = mlp(), str(file)

    def forward(self, x):
        with open(self.file, "a") as out:
            out.write(f"{len(x)}\n")
        return self.layers(x)


class Rough(nn.Linear):
    """Random numbers of its own."""

    def forward(self, x):
        return super().forward(x) * (1 + 0.1 * torch.rand(()) if self.training else 1)


class Compares(nn.Linear):
    """Knows the mean of what is in a batch."""

    def forward(self, x):
        return super().forward(x - x.mean(dim=0)) if self.training else super().forward(x)


def shared_scale(items):
    inputs, targets = zip(*items, strict=True)
    return torch.stack(inputs), torch.tensor([2.0]), torch.stack(targets)


class Scaled(nn.Linear):
    def forward(self, x, scale):
        return super().forward(x) * scale


def grads(one_pass, scheme, data=None, model=None, loss_fn=None, **options):
    model = mlp() if model is None else model
    with coded(model, loss_fn, data, scheme=scheme, one_pass=one_pass, engine="local", **options) as run:
        infos = [run.backward() for _ in range(2)]
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()]), infos


@pytest.mark.parametrize("loss_fn", [None, nn.MultiMarginLoss()], ids=["ratio", "mean"])
def test_one_pass_gives_the_gradient_of_several(tmp_path, loss_fn):
    """Batches of 16 in two partitions: a worker of both makes one pass of 16 samples instead of two of eight."""
    found, seen = [], []
    for one_pass in (False, True):
        file = tmp_path / str(one_pass)
        model = Counting(file)
        gradient, infos = grads(one_pass, "fractional_repetition(2, s=1)", model=model, loss_fn=loss_fn)
        found.append((gradient, [info.loss for info in infos]))
        seen.append(set(file.read_text().split()))
    assert torch.allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-7)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-6)
    assert "16" in seen[1] - seen[0]


def test_augmentation_in_the_dataset_is_drawn_as_ever():
    """It is read partition by partition, under the seed of each."""
    scheme, data = "fractional_repetition(2, s=1)", Noisy()
    (first, _), (second, _) = (grads(one_pass, scheme, data=data) for one_pass in (False, True))
    assert torch.allclose(first, second, rtol=1e-5, atol=1e-7)


TIES = {
    "batch normalisation": (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), {}),
    "dropout": (mlp(dropout=0.1), {}),
    "moves the buffer": (nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)), {}),
    "micro_batch": (mlp(), {"micro_batch": 2}),
    "random numbers": (Rough(6, 3), {}),
    "depends on those beside": (Compares(6, 3), {}),
    "cannot be put together": (Scaled(6, 3), {"collate": shared_scale, "data": TensorDataset(*table())}),
}


@pytest.mark.parametrize("word", TIES)
def test_it_is_refused_with_the_reason(word):
    model, options = TIES[word]
    with pytest.raises(Invalid, match=word):
        coded(copy.deepcopy(model), one_pass=True, **options)
    with coded(copy.deepcopy(model), **options) as run:  # and left alone where nobody asks
        assert not run.problem.how.joins


def test_it_is_the_default_on_accelerators_only(monkeypatch):
    with coded() as run:
        problem = run.problem
        assert not joins(problem, None, check=True) and joins(problem, True, check=True) and tied(problem) == ""
        object.__setattr__(problem.how, "devices", ("cuda:0",))
        assert joins(problem, None, check=True) and not joins(problem, None, check=False)
        assert not joins(problem, False, check=True)
        with pytest.raises(Invalid, match="one_pass is True, False or None"):
            joins(problem, "yes", check=True)


def test_neighbours_are_joined_where_they_go_into_one_message_alike():
    together = codes.fractional_repetition(4, s=1).program(0).together
    assert [len(tasks) for tasks, _, _ in together] == [2]
    assert [len(tasks) for tasks, _, _ in codes.uncoded_mmc(4, load=2).program(0).together] == [1, 1]
    different = codes.cyclic_repetition(4, s=1).program(0)
    assert all(len(tasks) == 1 for tasks, _, _ in different.together) or len(set(different.messages[0].coef)) == 1


def test_empty_partitions_have_no_pass():
    with coded(mlp(), data=table(4), scheme="fractional_repetition(4, s=1)", batch_size=2) as run:
        problem, dim = run.problem, run.problem.dim
        params = params_of(run)
        for step in range(2):
            apart = sum(problem.accumulate(params, part, slice(0, dim), step, 1.0, None) for part in range(4))
            found = problem.accumulate_all(params, (0, 1, 2, 3), slice(0, dim), step, 1.0, None)
            assert np.allclose(found, apart, rtol=1e-5, atol=1e-7)


def test_gradients_that_are_added_at_once_are_the_same():
    """As on accelerators."""
    with coded(mlp(), data=table(), scheme="uncoded(2)") as run:
        problem, params = run.problem, params_of(run)
        whole = slice(0, problem.dim)
        expected = [problem.accumulate(params, part, whole, 0, 2.0, None).copy() for part in (0, 1)]
        problem.replica.apart = True
        first = problem.accumulate(params, 0, whole, 0, 2.0, None)
        assert np.allclose(first, expected[0])
        assert np.allclose(problem.accumulate(params, 1, whole, 0, 2.0, first), sum(expected))
