"""Ways between workers on devices and the master, with memory of the host in place of a device; a GPU runs the same tests."""

import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle import Invalid, UnstraggleError, codes
from unstraggle.engines import local
from unstraggle.runtime.gather import Gather, Scaling
from unstraggle.runtime.message import Message
from unstraggle.torch import ways
from unstraggle.torch.device_gather import DeviceGather
from unstraggle.torch.layout import ALIGNED, alignment
from unstraggle.torch.ways import Ipc, Pinned, way_of

from ..torch_models import coded, mlp, table

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SCHEMES = [
    "uncoded(2)",
    "fractional_repetition(4, s=1)",
    "correlated_mmc(3, load=2, order=2)",
    "work_conserving(2, load=2, pieces=2)",
]


pytestmark = pytest.mark.usefixtures("one_thread")


def trained(steps=3, device="cpu", home="cpu", scheme="uncoded(2)", **options):
    """A model after some steps, and what the steps said."""
    model = mlp().to(home)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    with coded(model, nn.CrossEntropyLoss(), table(), scheme=scheme, device=device, **options) as run:
        infos = []
        for _ in range(steps):
            optimizer.zero_grad()
            infos.append(run.backward())
            optimizer.step()
    return [p.detach().cpu() for p in model.parameters()], infos


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("way", ["ipc", "pinned"])
def test_a_way_gives_the_steps_of_any_other(device, scheme, way):
    reference, expected = trained(scheme=scheme)
    found, infos = trained(device=device, home=device, scheme=scheme, engine="local", engine_options={"way": way})
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(found, reference, strict=True))
    assert all(info.exact for info in infos)
    assert [info.loss for info in infos] == pytest.approx([info.loss for info in expected], rel=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_workers_that_are_killed_find_everything_again(device, monkeypatch):
    model = mlp().to(device)
    options = {"engine": "local", "engine_options": {"way": "ipc"}, "device": device}
    with coded(model, data=table(), scheme="uncoded(2)", **options) as run:
        run.backward()
        engine = run.master.engine
        assert isinstance(engine._memory.way, Ipc) and next(iter(model.parameters())).grad.device.type == device
        finish = DeviceGather.finish

        def deadly(gather, *given):
            """Kill a worker while its gradient is added up."""
            os.kill(engine.pid(0), signal.SIGKILL)
            return finish(gather, *given)

        os.kill(engine.pid(1), signal.SIGKILL)
        monkeypatch.setattr(DeviceGather, "finish", deadly)
        for _ in range(2):
            model.zero_grad()
            assert run.backward().exact
            monkeypatch.undo()
        again = [p.grad.cpu() for p in model.parameters()]
    twin = mlp()
    with coded(twin, data=table(), scheme="uncoded(2)") as run:
        for _ in range(3):
            twin.zero_grad()
            run.backward()
    assert all(torch.allclose(a, p.grad, rtol=1e-4, atol=1e-6) for a, p in zip(again, twin.parameters(), strict=True))


@pytest.mark.parametrize(("way", "takes"), [("ipc", False), ("pinned", False), ("host", True)])
def test_workers_that_compute_on_a_device_take_no_processor_from_the_master(monkeypatch, way, takes):
    monkeypatch.setattr(local, "cores", lambda: 1)
    with coded(mlp(), data=table(), scheme="uncoded(2)", engine="local", engine_options={"way": way}) as run:
        assert run.master.engine.crowded is takes and run.backward().exact


def test_what_stands_whole_is_not_touched_when_a_worker_is_asked_again():
    way = Ipc("cpu", 3, np.dtype("f4"), messages=1)
    way.open([], {})
    here = way.begin(0)
    here += torch.arange(3.0)
    way.deliver(0, here)
    assert torch.equal(way.lend(0), torch.zeros(3)) and way.params(0) is not way.params(0)
    other = torch.ones(3)
    way.deliver(0, other)
    assert torch.equal(here, other)
    way.close()


@pytest.mark.parametrize("code", [codes.uncoded(5), codes.cyclic_repetition(5, s=2), codes.uncoded(1)])
def test_a_device_adds_as_the_host_does(code):
    dim, rng = 40, np.random.default_rng(0)
    numbers = [rng.standard_normal(dim).astype("f4") for _ in range(len(code.messages))]
    host = Gather(code, dim, np.dtype("f4"))
    there = DeviceGather(code, dim, [torch.from_numpy(one) for one in numbers])
    got = np.arange(len(numbers)) % 4 != 1 if len(numbers) == 5 and code.load > 1 else np.ones(len(numbers), bool)
    scaling = Scaling(2, lambda head: 1 / float(head[1]), known=(1.0, 1))
    found = []
    for gather in (host, there):
        for m in np.flatnonzero(got):
            message = Message(int(code.messages.worker[m]), int(m), 0, 0.0, numbers[m].view(np.uint8))
            gather.check(message)
            gather.add([message])
        found.append(torch.as_tensor(gather.finish(code.decoder.weights(got), scaling)).clone().numpy())
        assert gather.finite
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)
    numbers[0][7] = np.nan
    there.finish(code.decoder.weights(got), scaling)
    assert not there.finite
    assert there.broken([Message(0, 0, 0, 0.0, numbers[0].view(np.uint8))]) == [0]
    there.clear()
    assert not there.finish(code.decoder.weights(got)).any()


def test_a_device_refuses_what_the_host_would():
    gather = DeviceGather(codes.uncoded(2), 4, [torch.zeros(4)] * 2)
    for wrong, word in [
        ((0, 1, 16, None), "no message 1 of worker 0"),
        ((0, 0, 15, None), "but 15 came"),
        ((0, 0, 16, 5), "checksum"),
    ]:
        worker, index, size, checksum = wrong
        with pytest.raises(Invalid, match=word):
            gather.check(Message(worker, index, 0, 0.0, np.zeros(size, np.uint8), checksum))


KIND = np.dtype("f4")


def test_the_way_is_chosen_by_what_fits(monkeypatch):
    plain = codes.uncoded(2)
    monkeypatch.setattr(ways.cudart, "can_share", lambda device: True)
    assert way_of(["cpu"], "cpu", plain, 8, KIND, "auto") is None
    assert way_of(["cuda:0"], "cuda:0", plain, 8, KIND, "host") is None
    assert isinstance(way_of(["cuda:0"], "cuda:0", plain, 8, KIND, "auto"), Ipc)
    assert isinstance(way_of(["cuda:0"], "cpu", plain, 8, KIND, "auto"), Pinned)
    assert isinstance(way_of(["cuda:0", "cuda:1"], "cuda:0", plain, 8, KIND, "auto"), Pinned)
    monkeypatch.setattr(ways.cudart, "can_share", lambda device: False)
    assert isinstance(way_of(["cuda:0"], "cuda:0", plain, 8, KIND, "auto"), Pinned)
    with pytest.raises(Invalid, match="cannot share memory"):
        way_of(["cuda:0"], "cuda:0", plain, 8, KIND, "ipc")
    with pytest.raises(Invalid, match="on one device"):
        way_of(["cuda:0"], "cpu", plain, 8, KIND, "ipc")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (codes.quantize(codes.uncoded(2), bits=8), "quantises"),
        (codes.blocks([1, 1], codes.uncoded(2), codes.fractional_repetition(2, s=1)), "blocks"),
        (codes.reed_solomon(4, s=1), "complex"),
    ],
)
def test_what_does_not_fit_keeps_to_the_host(code, word):
    assert way_of(["cuda:0"], "cuda:0", code, 8, KIND, "auto") is None
    with pytest.raises(Invalid, match=word):
        way_of(["cuda:0"], "cuda:0", code, 8, KIND, "ipc")


def test_a_worker_without_a_device_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for way in (Ipc("cuda:0", 4, KIND, messages=1), Pinned(("cuda:0",), "cuda:0", 4, KIND)):
        with pytest.raises(UnstraggleError, match="sees no CUDA device"):
            way.join(0, [np.zeros(4, "f4")] * 2, {0: np.zeros(16, np.uint8)})


def test_problems_of_the_host_have_no_way():
    from unstraggle.engines import Local
    from unstraggle.problems import LeastSquares

    problem = LeastSquares.split(np.eye(2), np.ones(2), parts=2)
    with pytest.raises(Invalid, match="way is one of auto, ipc"):
        Local(problem, way="wire")
    with pytest.raises(Invalid, match="for problems on devices"):
        Local(problem, way="ipc").open(codes.uncoded(2))


def test_parameters_of_accelerators_begin_at_round_places():
    assert alignment(["cpu"], codes.uncoded(2)) == 1
    assert alignment(["cuda:0"], codes.blocks([1, 1], codes.uncoded(2), codes.fractional_repetition(2, s=1))) == 1
    assert alignment(["cuda:0"], codes.uncoded(2)) == ALIGNED


def test_gaps_between_parameters_change_nothing(monkeypatch):
    asked = []
    monkeypatch.setattr("unstraggle.torch.draft.alignment", lambda devices, code: asked.append(devices) or 16)
    reference, _ = trained(scheme="fractional_repetition(4, s=1)", steps=2)
    monkeypatch.undo()
    assert set(asked) == {("cpu",)}
    found, _ = trained(scheme="fractional_repetition(4, s=1)", steps=2)
    assert all(torch.equal(a, b) for a, b in zip(found, reference, strict=True))


def test_workers_on_several_devices_pass_through_their_own():
    way = Pinned(("meta", "cpu"), "cpu", 4, KIND)
    way.open([np.zeros(4, "f4")] * 2, {})
    way.publish(0)
    way.join(3, [np.zeros(4, "f4")] * 2, {1: np.zeros(16, np.uint8)})
    assert way.params(0).device.type == way.begin(1).device.type == "cpu"
    way.join(2, [np.zeros(4, "f4")] * 2, {1: np.zeros(16, np.uint8)})
    assert way.params(0).device.type == "meta"


def test_what_a_device_said_of_a_round_is_gone_in_the_next():
    """The report of a gradient that was not finite is used again, as zeros; one of another size is made anew."""
    gather, scaling = DeviceGather(codes.uncoded(2), 4, [torch.zeros(4)] * 2), Scaling(1, lambda head: 1.0)
    seen = []

    def launch(out, report, *given, looks, **options):
        """Says that the first gradient has no number, and the next nothing."""
        seen.append(report.data_ptr())
        assert not report.any()
        report[:] = 1.0 if len(seen) == 1 else 0.0

    gather.add([Message(worker, worker, 0, 0.0, np.zeros(16, np.uint8)) for worker in (0, 1)])
    terms = [([0, 1], torch.ones(9))]
    for _ in range(2):
        gather._at_once(launch, gather.coming(), terms, scaling)
        assert gather.finite == (len(seen) > 1)
    assert seen[0] == seen[1]
    gather._at_once(launch, gather.coming(2), 2 * terms, scaling)
    assert gather.finite


@pytest.mark.parametrize("way", ["ipc", "pinned"])
def test_parameters_that_are_no_numbers_are_refused_and_the_next_step_goes_on(way):
    model = mlp()
    with coded(model, data=table(), scheme="uncoded(2)", engine="local", engine_options={"way": way}) as run:
        weight = next(iter(model.parameters()))
        kept = weight.detach().clone()
        with torch.no_grad():
            weight[0, 0] = float("nan")
        with pytest.raises(Invalid, match="must be finite"):
            run.backward()
        with torch.no_grad():
            weight.copy_(kept)
        assert run.backward().exact
