"""shared=True: the model's parameters live where workers read them, and an optimiser's step is the only one who writes."""

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle import codes
from unstraggle.engines import Local
from unstraggle.errors import Invalid
from unstraggle.torch import Coded

from ..torch_models import coded, mlp, table

LOCAL = {"engine": "local", "scheme": "fractional_repetition(2, s=1)"}


pytestmark = pytest.mark.usefixtures("one_thread")


def at_home(run):
    """Which of the model's parameters lie in the memory of the engine."""
    memory = run.master.room()
    begin = memory.__array_interface__["data"][0]
    return [begin <= p.data_ptr() < begin + memory.nbytes for p in run.model.parameters()]


def own_memory(model):
    """Whether every parameter has memory for itself."""
    return len({p.untyped_storage().data_ptr() for p in model.parameters()}) == len(list(model.parameters()))


def trained(shared, model=None, meanwhile=lambda run, step: None, steps=6, **options):
    """The model after some steps of Adam. Worker 1 is late in every second one, and still in it while that ends."""
    model = mlp(torch.float64) if model is None else model
    options = {"data": table(dtype=torch.float64), **LOCAL, **options}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, foreach=True)
    with coded(model, **options, shared=shared) as run:
        for step in range(steps):
            meanwhile(run, step)
            optimizer.zero_grad()
            info = run.backward(delays=np.array([0.0, 60.0 * (step % 2)]))
            assert info.exact and (step % 2 == 0 or info.used == (0,))
            optimizer.step()
    return model


def require_same(one, other):
    """Half-written parameters would differ by far more than rounding does: that of a layer's answer to one sample depends on
    whether its weights begin at a multiple of 16 bytes."""
    for name, value in other.state_dict().items():
        torch.testing.assert_close(one.state_dict()[name], value, rtol=1e-9, atol=1e-11, msg=name)


def test_training_is_the_same_and_parameters_stay_where_workers_read_them():
    seen = []
    model = trained(True, meanwhile=lambda run, step: seen.append(at_home(run)))
    require_same(model, trained(False))
    assert not any(seen[0]) and all(map(all, seen[1:])), "they move in with the first step"
    assert own_memory(model), "and out at the end"


def test_parameters_that_are_put_elsewhere_move_in_again():
    seen = []

    def put(run, step):
        seen.append(all(at_home(run)))
        if step == 2:
            for p in run.model.parameters():
                p.data = p.data.clone()
        elif step == 4:
            run.model.load_state_dict({name: value + 0.01 for name, value in run.model.state_dict().items()})

    model = trained(True, meanwhile=put)
    assert seen == [False, True, True, True, True, True]
    require_same(model, trained(False, meanwhile=put))


def test_statistics_and_the_order_of_memory_are_kept():
    def pictures():
        torch.manual_seed(3)
        layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 6 * 6, 3)
        return nn.Sequential(*layers).double().to(memory_format=torch.channels_last)

    inputs = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model, other = (trained(shared, pictures(), data=(inputs, torch.arange(24) % 3), steps=3) for shared in (True, False))
    require_same(model, other)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert own_memory(model) and all(one.untyped_storage().nbytes() == one.nbytes for one in model.buffers())


def test_a_change_of_code_takes_them_along():
    model, seen = mlp(torch.float64), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    options = {"scheme": "adaptive", "workers": 2, "shared": True, "engine": "local"}
    with coded(model, data=table(dtype=torch.float64), **options) as run:
        for step in range(4):
            if step == 2:
                run.master.switch(codes.work_conserving(2, load=2, pieces=2))
            optimizer.zero_grad()
            code = run.backward().code
            optimizer.step()
            seen.append((code, model[0].weight.detach(), all(at_home(run))))  # who keeps it keeps the memory
        run.take(codes.uncoded(2))
        assert own_memory(model), "until its workers are there"
    assert all(home for *_, home in seen)
    assert [code for code, *_ in seen] == ["uncoded(2)"] * 2 + ["work_conserving(2, load=2, pieces=2)"] * 2
    first, second, third, fourth = (weight.data_ptr() for _, weight, _ in seen)
    assert first == second != third == fourth
    require_same(model, alone(run.batches.batch_of, 4))


def alone(rows_of, steps):
    """The model after as many steps in one process."""
    model, (inputs, targets) = mlp(torch.float64), table(dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        nn.CrossEntropyLoss()(model(inputs[rows_of(step)]), targets[rows_of(step)]).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("engine", ["virtual", "ray", Local])
def test_it_is_refused_where_workers_read_elsewhere(engine):
    with pytest.raises(Invalid, match=r"shared=True is for engine=\"local\" and a model on the CPU, but the engine is .*"):
        coded(shared=True, scheme="uncoded(2)", engine=engine)


def test_it_is_refused_for_a_model_elsewhere_and_for_other_numbers_of_sides():
    with pytest.raises(Invalid, match="the model on meta"):
        Coded(nn.Linear(6, 3, device="meta"), nn.CrossEntropyLoss(), table(), scheme="uncoded(2)", shared=True)
    with pytest.raises(Invalid, match=r"on a device stand on two sides in turn, but got sides=1 \(shared=True\)"):
        coded(shared=True, engine="local", engine_options={"way": "ipc"})
    with pytest.raises(Invalid, match="on one side or on two in turn, but got sides=3"):
        Local(None, sides=3)
