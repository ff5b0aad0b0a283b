"""What a loss is over samples: a mean, a sum, or a sum with a denominator. Wrong guesses would train with other gradients."""

import copy

import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import ShiftedExponential
from unstraggle.torch.outcome import taken_apart

from ..torch_models import (
    Noisy,
    contrast,
    half_square,
    mlp,
    noisy_square,
    table,
    tokens_mean,
    tokens_wrongly,
    weighted_mean,
)


def coded(model, loss_fn, data, **options):
    options = {"scheme": "cyclic_repetition(4, s=1)", "batch_size": 18, "shuffle": False, "engine": "virtual", **options}
    return us.torch.Coded(model, loss_fn, data, latency=ShiftedExponential(rate=1.0), **options)


def padded():
    """Two tokens a sample, of which -1 is padding: unevenly over the samples."""
    inputs, _ = table()
    targets = torch.randint(0, 3, (50, 2), generator=torch.Generator().manual_seed(1))
    targets[::3, 1] = -1
    targets[1::7] = -1
    return inputs, targets


def require_same(model, other, info, loss):
    loss.backward()
    assert info.loss == pytest.approx(loss.item(), rel=1e-5)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


def test_sums_with_a_denominator_are_divided_once():
    """Token means: padding is spread unevenly over the partitions, and one may have none but padding."""
    data, model = padded(), nn.Linear(6, 6)
    other = copy.deepcopy(model)
    with coded(model, None, data, forward=tokens_mean) as run:
        info = run.backward()
        assert run.problem.how.ratio
    total, tokens, metrics = tokens_mean(other, (data[0][:18], data[1][:18]))
    require_same(model, other, info, total / tokens)
    assert info.metrics == {name: float(value) for name, value in metrics.items()}
    assert info.to_dict()["metrics"] == info.metrics


def test_a_mean_of_token_means_is_refused():
    with pytest.raises(Invalid, match=r"neither the sum nor mean .*\(sum, denominator\)"):
        coded(nn.Linear(6, 6), None, padded(), forward=tokens_wrongly)
    with pytest.raises(Invalid, match="Without loss_fn, give forward="):
        coded(nn.Linear(6, 6), None, padded())


@pytest.mark.parametrize("smooth", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 5.0, 0.1])])
def test_class_weights_and_ignored_targets_of_torch_are_exact(weight, smooth):
    loss_fn = nn.CrossEntropyLoss(weight, label_smoothing=smooth)
    data = table()
    data[1][::5] = -100
    data[1][:18:4] = -100  # all of the first partition
    model, other = mlp(), mlp()
    with coded(model, loss_fn, data) as run:
        info = run.backward()
    require_same(model, other, info, loss_fn(other(data[0][:18]), data[1][:18]))


def test_taking_means_apart_gives_what_torch_gives():
    generator = torch.Generator().manual_seed(0)
    outputs, weight = torch.randn(5, 3, 4, generator=generator), torch.tensor([1.0, 5.0, 0.1])
    for loss_fn, targets in (
        (nn.CrossEntropyLoss(), torch.randint(0, 3, (5, 4), generator=generator)),
        (nn.NLLLoss(weight, ignore_index=2), torch.randint(0, 3, (5, 4), generator=generator)),
        (nn.CrossEntropyLoss(weight, label_smoothing=0.2), torch.softmax(torch.randn(5, 3, 4, generator=generator), 1)),
    ):
        total, denominator = taken_apart(loss_fn, outputs, targets)
        torch.testing.assert_close(total / denominator, loss_fn(outputs, targets))


@pytest.mark.parametrize(("loss_fn", "words"), [(weighted_mean, "neither the sum"), (contrast, "neither the sum")])
def test_random_augmentation_does_not_switch_the_check_off(loss_fn, words):
    with pytest.raises(Invalid, match=words):
        coded(mlp(), loss_fn, Noisy())
    with coded(mlp(), half_square, Noisy()) as run:  # a mean was assumed, and gradients were too small by the batch
        assert not run.problem.how.mean and not run.problem.how.ratio


def test_what_cannot_be_seen_must_be_declared():
    with pytest.raises(Invalid, match="cannot be seen whether the loss is a mean or a sum"):
        coded(mlp(), noisy_square, table())
    with coded(mlp(), noisy_square, table(), reduction="sum") as run:
        assert not run.problem.how.mean and run.backward().exact


def test_other_forms_are_refused():
    data, model = padded(), nn.Linear(6, 6)
    with pytest.raises(Invalid, match="too coarse for the denominator"):
        coded(model, None, data, forward=tokens_mean, scheme="quantize(uncoded(4), bits=8)")
    for more, words in (
        ({}, r"the loss is \(sum, denominator\) in some steps only"),
        ({"reduction": "ratio"}, "metric right was"),
    ):
        run = coded(model, None, data, forward=tokens_mean, check=False, **more)
        with run, pytest.raises(us.UnstraggleError, match=words):
            run.backward()
    with pytest.raises(us.UnstraggleError, match="but got 3 numbers"):
        coded(model, None, data, forward=lambda model, batch: (model(batch[0]).sum(), 1, 2))
    data[1][:] = -1
    with coded(model, None, data, forward=tokens_mean) as run, pytest.raises(Invalid, match="add up to 0"):
        run.backward()
