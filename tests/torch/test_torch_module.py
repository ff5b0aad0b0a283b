"""TorchModule: partial gradients are those of autograd, one or all at once, and the same on every worker."""

import pickle

import numpy as np
import pytest

import unstraggle as us
from unstraggle import Invalid

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from unstraggle.torch import TorchModule  # noqa: E402

torch.set_num_threads(1)  # many small products


def data(samples=24):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 6, generator=generator), torch.randint(0, 3, (samples,), generator=generator)


def network(dropout=0.0):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), *([nn.Dropout(dropout)] if dropout else []), nn.Linear(5, 3))


def problem(parts=4, batch=None, seed=0, dropout=0.0):
    return TorchModule(network(dropout), nn.functional.cross_entropy, data(), parts, batch, seed)


def by_autograd(task, rows):
    """Gradient of the loss summed over some rows, as any PyTorch program computes it."""
    model = network()
    (nn.functional.cross_entropy(model(task.inputs[rows]), task.targets[rows], reduction="sum")).backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy()


def test_gradients_are_those_of_autograd():
    task = problem()
    params = task.initial()
    assert (task.k, task.dim, task.samples, task.dtype) == (4, 6 * 5 + 5 + 5 * 3 + 3, 24, np.float32)
    for part in range(4):
        expected = by_autograd(task, task.rows[part])
        assert np.allclose(task.grad(params, part), expected, rtol=1e-4, atol=1e-5)
        assert np.array_equal(task.grad(params, part, slice(3, 9)), task.grad(params, part)[3:9])
    assert np.allclose(task.gradient(params), by_autograd(task, np.arange(24)), rtol=1e-4, atol=1e-5)
    loss = nn.functional.cross_entropy(network()(task.inputs), task.targets)
    assert task.mean_loss(params) == pytest.approx(loss.item())


@pytest.mark.parametrize("options", [{}, {"batch": 3}, {"parts": [[0, 1, 2], [3, 4], [9]]}, {"dropout": 0.5, "batch": 2}])
def test_all_at_once_is_one_by_one(options):
    task = problem(**options)
    params = task.initial() + 0.1
    alone = np.stack([task.grad(params, part, step=5) for part in range(task.k)])
    assert np.allclose(task.grads(params, 5), alone, rtol=1e-4, atol=1e-5)
    assert np.allclose(task.grads(params, 5, [2, 0]), alone[[2, 0]], rtol=1e-4, atol=1e-5)
    assert np.allclose(task.gradient(params, 5), alone.sum(axis=0), rtol=1e-4, atol=1e-4)
    assert task.grads(params, 5, []).shape == (0, task.dim)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_another_worker_draws_the_same_batch(dropout):
    here, there = problem(batch=2, dropout=dropout), pickle.loads(pickle.dumps(problem(batch=2, dropout=dropout)))
    params = here.initial()
    here.grad(params, 0, step=1)
    torch.manual_seed(99)
    assert np.array_equal(here.grad(params, 3, step=7), there.grad(params, 3, step=7))
    assert not np.array_equal(here.grad(params, 3, step=7), here.grad(params, 3, step=8))
    assert not np.array_equal(here.grad(params, 3, step=7), problem(batch=2, seed=1).grad(params, 3, step=7))


def test_batches_are_unbiased():
    task = problem(batch=2)
    params = task.initial()
    drawn = np.array([task.grad(params, 1, step=step) for step in range(400)])
    error = drawn.mean(axis=0) - problem().grad(params, 1)
    assert np.abs(error / (drawn.std(axis=0) / 20 + 1e-6)).max() < 4


def test_outputs_are_without_dropout_and_leave_the_mode_alone():
    task = problem(dropout=0.5)
    params = task.initial()
    assert torch.equal(task.outputs(params, task.inputs), task.outputs(params, task.inputs)) and task.model.training


@pytest.mark.parametrize(
    "options, words",
    [
        ({"parts": 0}, "1 <= parts <= 24"),
        ({"parts": 25}, "1 <= parts <= 24"),
        ({"batch": 7}, "1 <= batch <= 6"),
        ({"parts": [[0], [24]]}, "0..23"),
        ({"parts": [[0], []]}, "at least one row"),
    ],
)
def test_bad_partitions_are_refused(options, words):
    with pytest.raises(Invalid, match=words):
        problem(**options)


def test_layers_whose_results_depend_on_the_worker_are_refused():
    with pytest.raises(Invalid, match="GroupNorm"):
        TorchModule(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), nn.functional.cross_entropy, data(), 2)
    with pytest.raises(Invalid, match="float32"):
        TorchModule(nn.Linear(6, 3).half(), nn.functional.cross_entropy, data(), 2)


def test_the_module_is_left_alone_and_parameters_may_change_in_place():
    module = network()
    before = [p.detach().clone() for p in module.parameters()]
    task = TorchModule(module, nn.functional.cross_entropy, data(), 4)
    params = task.initial()
    first = task.grad(params, 0)
    params += 0.5
    assert not np.allclose(task.grad(params, 0), first)
    assert np.allclose(task.grad(params, 0), TorchModule(module, nn.functional.cross_entropy, data(), 4).grad(params, 0))
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert np.array_equal(task.initial(), pickle.loads(pickle.dumps(task)).initial())


@pytest.mark.parametrize("scheme", ["cyclic_repetition(4, s=1)", "blocks([20, 33], uncoded(4), cyclic_repetition(4, s=1))"])
def test_a_master_decodes_its_gradient_round_after_round(scheme):
    """By way of the share of a worker, which adds in the backward pass or takes a block of it."""
    task, code = problem(batch=3), us.parse_code(scheme)
    params = task.initial()
    with us.Master(code, us.engines.Virtual(task, us.latency.Exponential(1.0), rng=0)) as master:
        for step in range(3):
            assert np.allclose(master.gradient(params).gradient, task.gradient(params, step), rtol=1e-4, atol=1e-4)
            params -= 0.1


def test_double_precision_and_frozen_parameters():
    module = network().double()
    module[0].weight.requires_grad_(False)
    inputs, targets = data()
    task = TorchModule(module, nn.functional.cross_entropy, (inputs.double(), targets), 4)
    assert (task.dim, task.dtype, task.initial().dtype) == (5 + 5 * 3 + 3, np.float64, np.float64)
    assert np.allclose(task.grads(task.initial())[2], task.grad(task.initial(), 2), rtol=1e-12)
