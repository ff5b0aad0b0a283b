"""A worker leaves a network between two layers when its round is over."""

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle.engines import Abandoned
from unstraggle.problems import Stops
from unstraggle.torch.problem import TorchProblem
from unstraggle.torch.stopping import heed

from ..torch_models import coded, mlp, params_of


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)))


def after(looks):
    """Whether to stop: yes, from so many looks on."""
    seen = iter(range(10**6))
    return lambda: next(seen) >= looks


def passes(model):
    model.zero_grad()
    loss = model(torch.arange(12.0).reshape(4, 3)).sum()
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("looks", range(10))
def test_passes_are_left_at_every_layer_and_parameter(looks):
    """Four layers forward, six parameters backward."""
    model = network()
    heed(model, after(looks))
    with pytest.raises(Abandoned):
        passes(model)


def test_nobody_looks_more_often_and_gradients_are_the_same_bits():
    plain, model = passes(network()), network()
    heed(model, after(10))
    assert all(torch.equal(one, other) for one, other in zip(plain, passes(model), strict=True))


def test_the_newest_question_counts_and_hooks_are_set_once():
    model = network()
    heed(model, after(0))
    heed(model, after(10))
    passes(model)
    heed(model, lambda: False)
    passes(model)


def test_a_pass_on_a_device_is_looked_at_a_few_times():
    model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(20)])
    seen = []
    heed(model, lambda: seen.append(0), looks=8)
    model(torch.ones(4, 3)).sum().backward()
    assert len(seen) == 16 and model[0]._forward_pre_hooks and model[19]._forward_pre_hooks


def test_frozen_parameters_are_left_alone():
    model = network()
    model[0].requires_grad_(False)
    heed(model, after(8))
    model(torch.ones(4, 3)).sum().backward()


def test_a_compiled_model_is_one_layer():
    class Compiled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self._orig_mod = inner

        def forward(self, inputs):
            return self._orig_mod(inputs)

    model = Compiled(network())
    heed(model, after(1))
    model(torch.ones(4, 3))
    with pytest.raises(Abandoned):
        model(torch.ones(4, 3))


def test_what_a_pass_that_was_left_has_computed_does_not_count():
    """Gradients of their own, as on an accelerator, were added to those of the next task."""
    with coded(mlp(), scheme="uncoded(2)") as run:
        problem, params = run.problem, params_of(run)
        expected = problem.grad(params, 0, step=1).copy()
        problem.replica.apart = True
        problem.heed(after(8))  # of 6 layers and 6 parameters
        with pytest.raises(Abandoned):
            problem.grad(params, 0, step=0)
        problem.heed(lambda: False)
        np.testing.assert_allclose(problem.grad(params, 0, step=1), expected, rtol=1e-6)


def test_torch_problems_can_stop():
    assert issubclass(TorchProblem, Stops)


def test_workers_that_cannot_be_spared_look_seldom():
    """Their rounds end when all are done, unless a stop rule or patience ends them before."""
    seldom = coded(mlp(), scheme="uncoded(4)")
    often = [coded(mlp(), scheme="cyclic_repetition(4, s=1)"), coded(mlp(), scheme="uncoded(4)", patience=3.0)]
    often.append(coded(mlp(), scheme="work_conserving(4, load=2, pieces=1)"))
    with seldom:
        assert seldom.problem.share(1, [1]).how.looks == 2
    for run in often:
        with run:
            assert run.problem.share(1, [1]).how.looks == 8
