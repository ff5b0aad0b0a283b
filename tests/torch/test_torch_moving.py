"""What moves in a model besides its trainable parameters: teachers, buffers, attributes. Workers have it as the master does."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import unstraggle as us
from unstraggle import Invalid, WorkerFailed
from unstraggle.latency import ShiftedExponential
from unstraggle.torch.context import pack, unpack

from ..torch_models import Counting, Distilled, mean_square, mlp, scaled, table


def coded(model, loss_fn=mean_square, data=None, **options):
    options = {"scheme": "cyclic_repetition(4, s=1)", "batch_size": 16, "shuffle": False, "engine": "virtual", **options}
    if options["engine"] == "virtual":
        options["latency"] = ShiftedExponential(rate=1.0)
    return us.torch.Coded(model, loss_fn, table() if data is None else data, **options)


def alone(model, loss_fn, data, step):
    """The batches of `shuffle=False` in one process."""
    rows = slice(16 * step, 16 * step + 16)
    loss = loss_fn(model(data[0][rows]), data[1][rows])
    loss.backward()
    return float(loss.detach())


def losses(model, change, run=None, data=None, loss_fn=mean_square, steps=3):
    """Train, coded or in one process, where the loop changes something between two steps."""
    optimizer, found = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3), []
    for step in range(steps):
        optimizer.zero_grad()
        found.append(alone(model, loss_fn, data or table(), step) if run is None else run.backward().loss)
        optimizer.step()
        change(model)
    return found


def follow(model):
    """An exponential moving average, as most scripts write it: no version counts it."""
    for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
        slow.data.mul_(0.5).add_(fast.data, alpha=0.5)


def cool(model):
    model.temperature *= 0.5


def cool_by_hand(model):
    model.temperature.data[:] = model.temperature.data * 0.5


def less(model):
    model.strength = model.strength * 0.5


def renewed(model):
    model.temperature = torch.full((1,), 0.25)


@pytest.mark.parametrize("change", [follow, cool, cool_by_hand, less, renewed])
def test_what_the_loop_changes_reaches_the_workers(change):
    expected = losses(Distilled(), change)
    unchanged = losses(Distilled(), lambda model: None)
    model = Distilled()
    with coded(model) as run:
        found = losses(model, change, run)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert abs(np.subtract(expected, unchanged)[1:]).min() > 1e-4


@pytest.mark.parametrize("way", ["auto", "ipc"])
def test_it_reaches_processes_too(way):
    """The model is looked at while workers compute: they begin anew when something has moved."""
    expected, model = losses(Distilled(), follow), Distilled()
    with coded(model, engine="local", scheme="fractional_repetition(2, s=1)", engine_options={"way": way}) as run:
        np.testing.assert_allclose(losses(model, follow, run), expected, rtol=1e-5)


@pytest.mark.parametrize("way, crowded", [("auto", False), ("auto", True), ("ipc", False)])
def test_what_changes_after_quiet_steps_reaches_workers_in_the_same_step(way, crowded):
    """crowded: whether workers leave no processor to the master, who then looks before he gives the order."""
    model, data = nn.Sequential(nn.Linear(6, 3)), table()
    model.register_buffer("shift", torch.zeros(3))
    model.register_forward_hook(shifted)
    twin, rounds, steps = copy.deepcopy(model), [], 7
    with coded(model, nn.functional.cross_entropy, data, engine="local", engine_options={"way": way}) as run:
        run.master.engine.crowded = crowded
        for step in range(steps):
            for one in (model, twin):
                change(one, step)
                one.zero_grad()
            rows = run.batches.batch_of(step)
            nn.functional.cross_entropy(twin(data[0][rows]), data[1][rows]).backward()
            info = run.backward()
            rounds.append(info.round)
            assert step == 0 or info.split.outside > 0  # also of steps that began anew: their time is not lost
            for p, q in zip(model.parameters(), twin.parameters(), strict=True):
                np.testing.assert_allclose(p.grad, q.grad, rtol=1e-4, atol=1e-6)
        assert rounds == ([*range(7)] if crowded else [0, 1, 3, 4, 6, 7, 8])  # twice workers had begun when it was seen
        model[0].bias.requires_grad_(False)
        with pytest.raises(Invalid, match="trainable parameters have changed"):
            run.backward()
        model[0].bias.requires_grad_(True)
        assert run.backward().exact


def shifted(module, given, found):
    return found + module.shift


def change(model, step):
    """Nothing in most steps; another object in place of a parameter in the third, and a buffer in the fifth."""
    if step == 2:
        model[0].weight = nn.Parameter(2 * model[0].weight.detach())
    if step == 4:
        model.shift += torch.tensor([1.0, 0.0, -1.0])


def test_nothing_travels_where_nothing_moves():
    model = mlp()
    with coded(model, nn.functional.cross_entropy) as run:
        run.backward()
        model.eval()
        assert run._told(run.step) == b""
        run.refresh()
        assert run._told(run.step) == b""


def test_a_change_of_one_number_in_many_is_found_by_refresh():
    model = nn.Sequential(nn.Linear(6, 3))
    model.register_buffer("large", torch.zeros(10_000))
    with coded(model, nn.functional.cross_entropy) as run:
        model.large.data[7] = 1.0
        assert run._told(run.step) == b""
        run.refresh()
        assert unpack(run._told(run.step))["tensors"]["model.large"][7] == 1.0
        run.backward()
        assert float(run.problem.model.large[7]) == 1.0


@pytest.mark.parametrize("how", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_spectral_normalisation_iterates_as_in_one_process(how):
    torch.manual_seed(0)
    models = [nn.Sequential(how(nn.Linear(6, 12)), nn.Tanh(), nn.Linear(12, 3))]
    models.append(copy.deepcopy(models[0]))
    data = table()
    with coded(models[0], nn.functional.cross_entropy, data) as run:
        found = losses(models[0], lambda model: None, run)
    expected = losses(models[1], lambda model: None, None, data, nn.functional.cross_entropy)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    torch.testing.assert_close(*(model.eval()(data[0]) for model in models), rtol=1e-4, atol=1e-5)


def test_buffers_that_cannot_move_together_are_refused():
    with pytest.raises(Invalid, match=r"The forward pass moves calls, a buffer of torch.int64"):
        coded(Counting(torch.zeros((), dtype=torch.int64)), nn.functional.cross_entropy)
    with pytest.raises(Invalid, match="too coarse for the buffers that the forward pass moves, such as calls"):
        coded(Counting(torch.zeros(())), nn.functional.cross_entropy, scheme="quantize(uncoded(4), bits=8)")
    model = Counting(torch.zeros(()))
    with coded(model, nn.functional.cross_entropy) as run:
        run.backward(), run.backward()
    assert float(model.calls) == 2.0
    options = {"check": False, "on_shortfall": "raise"}
    with (
        coded(Counting(torch.zeros(())), nn.functional.cross_entropy, **options) as run,
        pytest.raises((WorkerFailed, us.UnstraggleError), match="the forward pass moves the buffer calls"),
    ):
        run.backward()
    with coded(Counting(torch.zeros(())), nn.functional.cross_entropy, statistics="discard", **options) as run:
        assert run.backward().exact


def test_values_go_with_a_step():
    data, model = table(), nn.Linear(6, 3)
    with coded(model, nn.functional.cross_entropy, data, forward=scaled, context={"temperature": 1.0}) as run:
        for temperature in (1.0, 0.5, torch.tensor([2.0, 1.0, 0.5])):
            run.context["temperature"] = temperature
            expected = nn.functional.cross_entropy(model(data[0][:16]) / temperature, data[1][:16])
            run.step = 0
            assert run.backward().loss == pytest.approx(expected.item(), rel=1e-5)
        run.context["temperature"] = object()
        with pytest.raises(Invalid, match="Numbers, texts, lists, dictionaries and tensors can go with a step"):
            run.backward()


def test_a_loss_that_would_have_to_be_trained_is_refused():
    loss = nn.CrossEntropyLoss()
    loss.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(Invalid, match=r"loss_fn has parameters that require a gradient \(scale\)"):
        coded(mlp(), loss)


def test_bytes_of_a_context():
    values = {"a": [1, 2.5, None, "x", {"b": True}], "t": torch.ones(2, 3, dtype=torch.bfloat16), "n": np.arange(3)}
    found = unpack(pack(values | {"empty": torch.zeros(0, 4), "one": torch.tensor(3), "np": np.float32(0.5)}))
    assert found["a"] == values["a"] and found["np"] == 0.5 and int(found["one"]) == 3
    assert found["empty"].shape == (0, 4) and found["n"].tolist() == [0, 1, 2]
    assert torch.equal(found["t"], values["t"]) and found["t"].dtype == torch.bfloat16
    assert unpack(b"") == {}


@pytest.mark.parametrize("crowded", [False, True])
def test_what_becomes_trainable_after_quiet_steps_is_refused(crowded):
    model = nn.Sequential(nn.Linear(6, 3))
    model[0].bias.requires_grad_(False)
    with coded(model, nn.functional.cross_entropy, engine="local", scheme="uncoded(2)") as run:
        run.master.engine.crowded = crowded
        for _ in range(2):
            run.backward()
        model[0].bias.requires_grad_(True)
        with pytest.raises(Invalid, match="trainable parameters have changed"):
            run.backward()


def test_values_of_one_step_are_forgotten_in_the_next():
    with coded(mlp(), scheme="uncoded(2)") as run:
        run.problem.hear(pack({"values": {"temperature": 2.0}}))
        assert run.problem.context == {"temperature": 2.0}
        run.problem.hear(b"")
        assert run.problem.context == {}


@pytest.mark.parametrize("engine", ["virtual", "local"])
def test_a_parameter_that_took_the_place_of_another_is_the_one_that_counts(engine):
    model, (inputs, targets) = nn.Sequential(nn.Linear(6, 3)), table()
    with coded(model, nn.functional.cross_entropy, engine=engine, scheme="uncoded(2)", batch_size=None) as run:
        for _ in range(3):
            run.backward()
        model[0].weight = nn.Parameter(torch.randn(3, 6, generator=torch.Generator().manual_seed(1)))
        model.zero_grad()
        run.backward()
    found, model[0].weight.grad = model[0].weight.grad, None
    nn.functional.cross_entropy(model(inputs), targets).backward()
    torch.testing.assert_close(found, model[0].weight.grad)
