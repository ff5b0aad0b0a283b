"""Batches of one's own samplers and DataLoaders: those of the original script, whatever the code."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import ShiftedExponential
from unstraggle.torch.samplers import Sampled

from ..torch_models import Widest, mlp, table, together

SCHEMES = ("uncoded(2)", "fractional_repetition(6, s=1)", "cyclic_repetition(5, s=2)")
LOSS = nn.CrossEntropyLoss()


def coded(model, data, **options):
    options = {"scheme": "cyclic_repetition(4, s=1)", "engine": "virtual", **options}
    if options["engine"] == "virtual":
        options["latency"] = ShiftedExponential(rate=1.0)
    return us.torch.Coded(model, options.pop("loss_fn", LOSS), data, **options)


def script(loader, epochs=2):
    """An original training script: the losses of its steps."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    torch.manual_seed(7)
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = LOSS(model(inputs), targets)
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
    return losses


def adopted(loader, steps, **options):
    """The same script with Coded."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    torch.manual_seed(7)
    with coded(model, loader, **options) as run:
        for _ in range(steps):
            optimizer.zero_grad()
            losses.append(run.backward().loss)
            optimizer.step()
        assert run.epoch == 1
    return losses


def data():
    return TensorDataset(*table())


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 16, "shuffle": True},
        {"batch_size": 16, "shuffle": True, "drop_last": True, "generator": torch.Generator()},
        {"batch_size": 12, "sampler": WeightedRandomSampler([0.1, 0.9] * 25, 40)},
        {"batch_sampler": BatchSampler(RandomSampler(range(50), replacement=True, num_samples=30), 10, False)},
        {"batch_size": 20, "collate_fn": together},
    ],
)
def test_losses_of_three_schemes_are_those_of_the_script(options):
    if "generator" in options:
        options["generator"].manual_seed(3)
    expected = script(DataLoader(data(), **options))
    for scheme in SCHEMES:
        if "generator" in options:
            options["generator"].manual_seed(3)
        found = adopted(DataLoader(data(), **options), len(expected), scheme=scheme)
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_workers_that_are_processes_are_told_too():
    loader = DataLoader(data(), batch_size=16, shuffle=True)
    expected = script(loader)
    found = adopted(loader, len(expected), engine="local", scheme="fractional_repetition(2, s=1)")
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_all_ranks_of_a_distributed_sampler_make_a_step():
    """As with DistributedDataParallel: 4 ranks with 3 samples each."""
    ranks = [DistributedSampler(range(50), num_replicas=4, rank=rank, seed=5) for rank in range(4)]
    for sampler in ranks:
        sampler.set_epoch(2)
    steps = zip(*(BatchSampler(one, 3, False) for one in ranks), strict=True)
    expected = [sorted(row for rows in parts for row in rows) for parts in steps]
    for source, options in ((ranks[1], {"batch": 3}), (BatchSampler(ranks[0], 3, False), {})):
        batches = Sampled(source, 50, (0.25,) * 4, **options)
        assert [sorted(batches.draw(step).tolist()) for step in range(len(expected))] == expected
        assert batches.steps == len(expected)


def test_resuming_in_the_middle_of_an_epoch():
    loader = DataLoader(data(), batch_size=16, shuffle=True)
    models = [mlp() for _ in range(2)]
    with coded(models[0], loader, scheme="uncoded(4)") as run:
        torch.manual_seed(7)
        batches = [run.backward() and run.batches.draw(run.step - 1).tolist() for _ in range(5)]
        saved = copy.deepcopy(run.state_dict())
        batches += [run.backward() and run.batches.draw(run.step - 1).tolist() for _ in range(3)]
    state = torch.get_rng_state()
    with coded(models[1], loader, scheme="cyclic_repetition(5, s=1)") as run:
        run.load_state_dict(saved)
        assert torch.equal(torch.get_rng_state(), state) and (run.step, run.epoch) == (5, 1)
        again = [run.backward() and run.batches.draw(run.step - 1).tolist() for _ in range(3)]
        assert again == batches[5:8]
        with pytest.raises(Invalid, match="Step 2 was drawn before"):
            run.batches.draw(2)
    assert len({tuple(sorted(batch)) for batch in batches}) == 8


def test_samplers_on_their_own():
    with coded(mlp(), data(), batches=[[1, 2, 3], [4, 5]]) as run:
        assert [run.backward().samples for _ in range(3)] == [3, 2, 3] and run.steps_per_epoch == 2
    endless = (np.arange(step, step + 5) for step in range(40))
    with coded(mlp(), data(), batches=endless) as run:
        assert [run.backward().samples, run.epoch] == [5, 0]
        with pytest.raises(Invalid, match="has no length"):
            _ = run.steps_per_epoch


def test_micro_batches_and_several_batches_in_a_step():
    """The same gradients, from forward passes of few samples, and one round for as many batches as make a step."""
    x, y = table()
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    for options, rows, steps in (
        ({"accumulate": 3}, slice(24), 3),
        ({"micro_batch": 2}, slice(8), 7),
        ({"accumulate": 2, "micro_batch": 3}, slice(16), 4),
    ):
        for loss_fn in (LOSS, nn.functional.cross_entropy):
            model, other = Widest(), Widest()
            with coded(model, loader, loss_fn=loss_fn, scheme="cyclic_repetition(3, s=1)", **options) as run:
                run.problem.model.most = 0
                info = run.backward()
                assert info.samples == rows.stop and run.steps_per_epoch == steps
                assert run.problem.model.most <= options.get("micro_batch", 8)
            loss = LOSS(other(x[rows]), y[rows])
            loss.backward()
            assert info.loss == pytest.approx(loss.item(), rel=1e-5)
            for p, q in zip(model.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


def test_micro_batches_move_running_statistics_by_their_mean():
    x, y = table()
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    with coded(model, (x, y), scheme="uncoded(2)", batch_size=16, shuffle=False, micro_batch=4) as run:
        run.backward()
        passes = [x[run.batches.rows(0, part)[piece]] for part in range(2) for piece in (slice(4), slice(4, 8))]
    expected = torch.stack([0.1 * one.mean(0) for one in passes]).mean(0)
    torch.testing.assert_close(model[0].running_mean, expected, rtol=1e-4, atol=1e-6)


def test_several_batches_of_the_seed_are_one_larger_batch():
    with coded(mlp(), table(), batch_size=8, accumulate=3) as run, coded(mlp(), table(), batch_size=24) as other:
        assert run.backward().loss == pytest.approx(other.backward().loss) and run.steps_per_epoch == 3
    for options, words in (
        ({"accumulate": 0}, "accumulate is a whole number >= 1"),
        ({"micro_batch": 2.5}, "micro_batch is a whole number >= 1"),
        ({"micro_batch": 2, "scheme": "blocks([1, 2], uncoded(4), cyclic_repetition(4, s=2))"}, "has blocks of layers"),
    ):
        with pytest.raises(Invalid, match=words):
            coded(mlp(), table(), **options)


def test_what_is_no_sampler():
    for options, words in (
        ({"batches": RandomSampler(range(50))}, "batch_size= must say"),
        ({"batches": [[1, 50]]}, r"samples in 0..49, but the sampler gave"),
        ({"batches": [[0.5]]}, "samples in 0..49"),
        ({"batches": iter(())}, "A generator is gone through once"),
    ):
        run = coded(mlp(), data(), **options)
        with run, pytest.raises(Invalid, match=words):
            run.backward()
    for dataset, options, words in (
        (data(), {"batches": [[1]], "parts": "random"}, "Leave out parts="),
        (DataLoader(data()), {"batch_size": 4}, "but got batch_size, too"),
        (DataLoader(data(), batch_size=None), {}, "whole batches, which cannot be cut"),
        (DataLoader(Stream()), {}, "samples have no numbers"),
        (Stream(), {}, "needs a length and items"),
    ):
        with pytest.raises(Invalid, match=words):
            coded(mlp(), dataset, **options)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))
