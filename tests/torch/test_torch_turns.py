"""Several losses on one set of workers, and states that are carried from step to step."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import ShiftedExponential

VIRTUAL = {"engine": "virtual", "latency": ShiftedExponential(rate=1.0)}
CODE = "fractional_repetition(4, s=1)"


def critic(nets, batch):
    made = nets["maker"](torch.randn(len(batch[0]), 2))
    return functional.softplus(-nets["critic"](batch[0])).mean() + functional.softplus(nets["critic"](made.detach())).mean()


def maker(nets, batch, context):
    made = nets["maker"](torch.randn(len(batch[0]), 2))
    return functional.softplus(-nets["critic"](made)).mean(), {"made": context["weight"] * made.detach().sum()}


def summed(nets, batch):
    return nets["critic"](batch[0]).sum()


def averaged(nets, batch):
    return nets["critic"](batch[0]).mean()


BOTH = {"critic": critic, "maker": maker}


def networks():
    torch.manual_seed(0)
    return nn.ModuleDict({"critic": nn.Linear(3, 1), "maker": nn.Linear(2, 3)})


def gan(nets=None, losses=BOTH, **options):
    data = (torch.randn(24, 3, generator=torch.Generator().manual_seed(1)),)
    given = {"scheme": CODE, "batch_size": 8, "reduction": "mean", "context": {"weight": 2.0}, **VIRTUAL, **options}
    return us.torch.Coded(nets or networks(), None, data, forward=losses, **given)


def by_hand(nets, run, loss, step):
    """The gradients of all partitions in this process, drawn as the workers draw."""
    from unstraggle.torch.seeds import seeded

    total = 0.0
    for part in range(run.problem.k):
        rows = torch.as_tensor(run.batches.rows(step, part))
        with seeded((run.seed, step, part), torch.device("cpu")):
            found = loss(nets, (run.problem.data.tensors[0][rows],), *(({"weight": 2.0},) if loss is maker else ()))
        total = total + (found[0] if isinstance(found, tuple) else found) * len(rows)
    (total / run.batches.size(step)).backward()


@pytest.mark.parametrize("engine", [VIRTUAL, {"engine": "local", "latency": None, "scheme": "fractional_repetition(2, s=1)"}])
def test_each_step_takes_one_of_several_losses(engine):
    nets, twin = networks(), networks()
    with gan(nets, **engine) as run:
        for step, (loss, again) in enumerate([("critic", False), ("maker", True), ("maker", False)]):
            nets.zero_grad()
            twin.zero_grad()
            info = run.backward(loss, again=again)
            at = step - (step > 0)  # the second takes the batch of the first
            assert (info.step, run.step) == (at, at + 1) and info.exact
            assert bool(info.metrics["made"]) == (loss == "maker")
            by_hand(twin, run, BOTH[loss], at)
            for mine, other in zip(nets.parameters(), twin.parameters(), strict=True):
                assert (mine.grad is None) == (other.grad is None)
                if mine.grad is not None:
                    torch.testing.assert_close(mine.grad, other.grad)


def test_the_same_batch_again_of_a_sampler():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(24, 3)), batch_size=8, shuffle=True)
    with us.torch.Coded(networks(), None, loader, scheme=CODE, forward={"sum": summed, "same": summed}, **VIRTUAL) as run:
        first, same, other = run.backward("sum"), run.backward("same", again=True), run.backward("sum")
        assert first.loss == same.loss != other.loss and other.step == 1


def test_several_losses_are_refused_where_they_do_not_fit():
    with gan() as run:
        with pytest.raises(Invalid, match='one of "critic", "maker", but got None'):
            run.backward()
        with pytest.raises(Invalid, match="there was none"):
            run.backward("critic", again=True)
    one = us.torch.Coded(networks(), None, (torch.randn(8, 3),), scheme=CODE, forward=summed, **VIRTUAL)
    with one, pytest.raises(Invalid, match="has one loss"):
        one.backward("critic")
    for words, options in {
        "all be means": {"losses": {"mean": averaged, "sum": summed}, "reduction": None},
        'no "loss" in context': {"context": {"loss": 1}},
        "a code over all coordinates": {"scheme": "blocks([1, 1], uncoded(2), cyclic_repetition(2, s=1))"},
        "forward={name: function": {"losses": {}},
    }.items():
        with pytest.raises(Invalid, match=words):
            gan(**options)


# Carried states


class Streams(nn.Module):
    """A recurrent network with a state for each of eight streams."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.say = nn.GRUCell(2, 3), nn.Linear(3, 1)
        self.register_buffer("state", torch.zeros(8, 3))


def goes_on(model, batch):
    inputs, stream = batch
    state = model.cell(inputs, model.state[stream])
    model.state[stream] = state.detach()
    return model.say(state).pow(2).mean()


def mixes(model, batch):
    state = model.cell(batch[0], model.state[batch[1]])
    model.state += state.mean().detach()
    return model.say(state).pow(2).mean()


def windows():
    return torch.randn(24, 2, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 8


@pytest.mark.parametrize("options", [{}, {"micro_batch": 1}, {"scheme": "cyclic_repetition(3, s=1)"}])
def test_a_carried_state_goes_on_for_every_stream(options):
    model, twin, data = Streams(), Streams(), windows()
    given = {"scheme": CODE, "batch_size": 8, "shuffle": False, "carried": ["state"], **VIRTUAL, **options}
    with us.torch.Coded(model, None, data, forward=goes_on, **given) as run:
        for step in range(3):
            loss = goes_on(twin, tuple(column[8 * step : 8 * step + 8] for column in data))
            assert run.backward().loss == pytest.approx(loss.item(), rel=1e-5)
            torch.testing.assert_close(model.state, twin.state)
        assert float(model.state.abs().min()) > 0


def test_a_state_that_samples_share_cannot_be_carried():
    given = {"scheme": CODE, "batch_size": 8, "shuffle": False, **VIRTUAL}
    with pytest.raises(Invalid, match="two samples move the same places"):
        us.torch.Coded(Streams(), None, windows(), forward=mixes, carried=["state"], **given)
    with pytest.raises(Invalid, match="no floating-point buffer that the forward pass moves"):
        us.torch.Coded(Streams(), None, windows(), forward=goes_on, carried=["memory"], **given)
