"""Blocks of layers: a backward pass in several sittings, cut where it can be cut, and what its pieces cost."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle import Invalid, simulate
from unstraggle.latency import ShiftedExponential
from unstraggle.torch.layer_plan import round_times, sorted_speeds
from unstraggle.torch.layout import layout_of, trainable
from unstraggle.torch.stages import Staged, backward_order, joints

from ..torch_models import Residual, Tied, Unet, mlp, table
from .test_torch_coded import alone, coded, difference, late

BLOCKS = "blocks([1, 2], uncoded(4), cyclic_repetition(4, s=2))"


pytestmark = pytest.mark.usefixtures("one_thread")


class Counted(torch.autograd.Function):
    """The identity, which counts how often a gradient passes it."""

    passes = 0

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        Counted.passes += 1
        return grad


class Watched(nn.Module):
    """A chain of layers with a counter behind each."""

    def __init__(self, depth=4):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = Counted.apply(torch.tanh(layer(x)))
        return x[:, :3]


def staged(model):
    """A staged backward pass of one batch, the places where it can pause, and its gradient all at once."""
    inputs, targets = table(10)
    params = dict(trainable(model))

    def loss():
        return nn.functional.cross_entropy(model(inputs), targets)

    with torch.random.fork_rng(devices=[]):
        order, _ = backward_order(loss(), params)
        params = {name: params[name] for name in order}
        ends = joints(loss(), params)
        layout = layout_of(model, order=order, loss=False, statistics=False)
    with torch.random.fork_rng(devices=[]):
        grads = torch.autograd.grad(loss(), list(params.values()), allow_unused=True)
    whole = torch.cat(
        [(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in zip(grads, params.values(), strict=True)]
    )

    def again():
        with torch.random.fork_rng(devices=[]):
            value = loss()
        return Staged(value, value.detach().reshape(1)[:0], list(params.values()), layout, again)

    stops = [0, *np.cumsum(layout.sizes)[np.array(ends) - 1].tolist()]
    return again, stops, whole.numpy()


@pytest.mark.parametrize("model", [mlp(), Residual(), Residual(nn.BatchNorm1d), Tied(), Unet()], ids=lambda m: type(m).__name__)
def test_blocks_of_a_backward_pass_are_the_gradient(model):
    again, stops, whole = staged(model)
    for chosen in (stops, [0, stops[-1]], [0, *stops[2::2], stops[-1]] if len(stops) % 2 == 0 else stops):
        one = again()
        blocks = [one.take(slice(a, b)) for a, b in pairwise(chosen)]
        np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("model", [mlp(), Residual()], ids=lambda m: type(m).__name__)
def test_any_block_can_be_asked_for(model):
    """Only the last one, or the last one first; and one that ends within a layer."""
    again, stops, whole = staged(model)
    last, first = slice(stops[-2], stops[-1]), slice(0, stops[1])
    one = again()
    np.testing.assert_allclose(one.take(last), whole[last], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(one.take(first), whole[first], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(one.take(last), whole[last], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("model", [mlp(), Residual(), Unet()], ids=lambda m: type(m).__name__)
def test_blocks_may_end_anywhere(model):
    """Within a layer, or where gradients cannot wait: then more is computed and kept."""
    again, stops, whole = staged(model)
    ends = [0, *range(5, stops[-1], 13), stops[-1]]
    one = again()
    blocks = [one.take(slice(a, b)) for a, b in pairwise(ends)]
    np.testing.assert_allclose(np.concatenate(blocks), whole, rtol=1e-5, atol=1e-7)
    assert not one._done


def test_no_layer_is_passed_twice():
    again, stops, _ = staged(Watched())
    assert len(stops) == 5
    one = again()
    for number, (a, b) in enumerate(pairwise(stops)):
        Counted.passes = 0
        one.take(slice(a, b))
        assert Counted.passes == 1, number
    one, Counted.passes = again(), 0
    one.take(slice(stops[1], stops[2]))
    one.take(slice(stops[3], stops[4]))
    assert Counted.passes == 4


def test_the_order_is_that_of_the_backward_pass():
    """Last layer first; a weight with two uses where its last one is done; what is never reached at the end."""
    model = Tied()
    inputs, targets = table(5)
    order, unused = backward_order(nn.functional.cross_entropy(model(inputs), targets), dict(trainable(model)))
    assert order[:2] == ["middle.bias", "middle.weight"] and order[2] == "first.weight"
    assert unused == set(order[3:]) == {"unused.weight", "unused.bias"}
    model = mlp()
    order, unused = backward_order(nn.functional.cross_entropy(model(inputs), targets), dict(trainable(model)))
    assert order == ["5.bias", "5.weight", "3.bias", "3.weight", "0.bias", "0.weight"] and not unused
    assert all(p.grad is None for p in model.parameters())


def test_a_network_is_cut_only_where_gradients_can_wait():
    """Between residual blocks, not within; between layers of a chain; not under a skip connection."""
    assert staged(Residual(depth=3))[1] == [0, 27, 323, 619, 915, 971]
    assert staged(mlp())[1] == [0, 39, 195, 279]
    assert staged(Unet())[1] == [0, 21, 105, 147]


def test_blocks_end_at_layers():
    with coded(Residual(), scheme="blocks([1, 1, 2], uncoded(4), cyclic_repetition(4, s=1), cyclic_repetition(4, s=2))") as run:
        ends = np.rint(np.cumsum(run.code.blocks) * run.layout.dim).astype(int)
        at = {place.stop for place in run.layout.places.values()}
        assert set(ends.tolist()) <= at and len(set(ends.tolist())) == 3
        names = [name for name, place in run.layout.places.items() if place.stop in ends]
        assert [name.split(".")[0] for name in names] == ["layers", "layers", "stem"]
        assert run.backward().exact
    with pytest.raises(Invalid, match=r"has 4 blocks, but .* only between 3 groups of layers"):
        coded(Unet(), scheme="blocks([1, 1, 1, 1], uncoded(4), uncoded(4), uncoded(4), cyclic_repetition(4, s=2))")


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.BatchNorm1d])
def test_block_codes_on_processes_equal_one_process(norm):
    """With dropout, skip connections, normalisation and slow workers."""
    data, rng = table(), np.random.default_rng(1)
    models = [Residual(norm)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5) for model in models]
    with coded(models[0], data=data, scheme=BLOCKS, engine="local", drop_last=True) as run:
        for step in range(4):
            delays = late(run.code, rng)
            delays[run.code.messages.block == 0] = 0.0
            for optimizer in optimizers:
                optimizer.zero_grad()
            info = run.backward(delays=delays)
            assert info.exact
            assert info.loss == pytest.approx(alone(run, models[1], data, step), rel=1e-5)
            for optimizer in optimizers:
                optimizer.step()
    assert difference(*models) < 1e-5


def test_profiles_and_plans():
    model, batch = Residual(depth=2, width=64), table(200)
    profile = us.torch.profile_blocks(model, nn.CrossEntropyLoss(), batch, repeats=3)
    assert len(profile.names) == len(profile.sizes) == 4
    assert sum(profile.sizes) == sum(p.numel() for p in model.parameters())
    assert profile.names[0].startswith("last") and profile.names[-1].startswith("stem")
    assert min(profile.whole) > 0 and profile.forward > 0
    assert "(forward)" in str(profile)
    plan = profile.plan(ShiftedExponential(rate=2.0, shift=0.2), n=4)
    assert sum(plan.params["sizes"]) == 4
    with coded(model, scheme=plan.code) as run:
        assert run.backward().exact
    with pytest.raises(Invalid, match="each of the 4 groups a number of stragglers from 0 to 3"):
        profile.code([1, 1], n=4)
    with pytest.raises(Invalid, match="from 0 to 3"):
        profile.code([0, 0, 1, 4], n=4)


def test_measured_work_counts_what_a_worker_really_does():
    """Known costs: the forward pass once a partition, groups on the way passed once, groups asked for in full."""
    profile = us.torch.Profile(("c", "b", "a"), (10, 20, 30), forward=2.0, passed=(1.0, 1.0, 0.0), whole=(2.0, 3.0, 3.0))
    assert profile.costs == (4.0, 3.0, 3.0)
    code = profile.code([0, 1, 1], n=3)
    assert code.blocks == pytest.approx((10 / 60, 50 / 60))
    mine = code.tasks.worker == 0
    assert list(zip(code.tasks.part[mine], code.tasks.block[mine], strict=True)) == [(0, 0), (0, 1), (1, 1)]
    assert code.tasks.work[mine].tolist() == pytest.approx([0.4, 0.6, (2 + 1 + 6) / 10])
    whole = profile.measured(us.codes.cyclic_repetition(3, s=1))
    np.testing.assert_allclose(whole.tasks.work, 1.0)
    assert simulate(code, ShiftedExponential(rate=1.0), rounds=100, rng=0).time.mean > 0
    assert code.name == "<blocks([10, 50], uncoded(3), cyclic_repetition(3, s=1)), work as measured>"


def test_blocks_that_are_moved_to_layers_are_named_so():
    model = Residual(depth=2, width=64)
    with coded(model, scheme="blocks([1, 2], uncoded(3), cyclic_repetition(3, s=1))") as run:
        assert run.code.blocks != (1 / 3, 2 / 3)
        assert run.code.name == "<blocks([1, 2], uncoded(3), cyclic_repetition(3, s=1)), cut between layers>"


IDEAL = us.torch.Profile(tuple("abcdef"), (10,) * 6, forward=0.0, passed=(0.0,) * 6, whole=(1.0,) * 6)
CHAIN = us.torch.Profile(tuple("abcdef"), (10,) * 6, forward=6.0, passed=(1.0,) * 6, whole=(2.0,) * 6)


@pytest.mark.parametrize("tolerances", [(0,) * 6, (0, 0, 1, 1, 3, 3), (2, 2, 0, 1, 1, 1), (3, 0, 3, 0, 3, 0)])
@pytest.mark.parametrize("profile", [IDEAL, CHAIN])
def test_times_of_layers_are_those_of_the_simulator(profile, tolerances):
    latency = ShiftedExponential(rate=1.0, shift=0.3)
    speeds = sorted_speeds(latency, 4, 500, np.random.default_rng(5))
    code = profile.code(tolerances, 4)
    replayed = us.replay(code, latency.sample(code, 500, np.random.default_rng(5)))
    np.testing.assert_allclose(round_times(profile, tolerances, speeds), replayed.time.values, rtol=1e-9)


def test_plans_count_what_blocks_really_cost():
    """Where groups are independent, blocks pay as the paper says; where they are layers of a chain, they do not."""
    latency = ShiftedExponential(rate=6.0, shift=0.05)
    ideal, chain = IDEAL.plan(latency, 8), CHAIN.plan(latency, 8)
    waiting = simulate(us.codes.uncoded(8), latency, rounds=20_000, rng=0).time.mean
    assert ideal.cost == pytest.approx(ideal.params["if_independent"], rel=0.02) and ideal.cost < 0.7 * waiting
    assert chain.params["tolerances"] == [0] * 6 and chain.cost == pytest.approx(waiting, rel=0.02)
    promised = CHAIN.plan(latency, 8, method="optimal")
    assert promised.params["if_independent"] < 0.7 * waiting < waiting < promised.cost
    assert promised.params["tolerances"] == sorted(promised.params["tolerances"])
    assert promised.cost == pytest.approx(simulate(promised.code, latency, rounds=20_000, rng=1).time.mean, rel=0.02)


def test_a_plan_of_layers_needs_one_speed_a_round():
    class Tasks:
        def sample(self, code, rounds, rng):
            raise NotImplementedError

    with pytest.raises(Invalid, match="one speed per round"):
        sorted_speeds(Tasks(), 4, 10, np.random.default_rng(0))
