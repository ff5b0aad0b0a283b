"""Numbers that are on their way before all of them are known: the beginning of a message, and parameters piece by piece."""

import os
import threading

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle import codes
from unstraggle.engines.local_worker import NOTE, PART
from unstraggle.runtime.message import Message
from unstraggle.torch import pinned
from unstraggle.torch.device_gather import DeviceGather
from unstraggle.torch.leaving import Leaving
from unstraggle.torch.pinned import Pinned, pieces
from unstraggle.torch.pins import merged

from ..torch_models import Twice, coded, deep, mlp, table

KIND = np.dtype("f4")


class Left:
    """What has left of a message, as a way has it."""

    def __init__(self, dim):
        self.room, self.upto, self.calls = torch.zeros(dim), 0, []

    def leave(self, total, upto):
        self.room[self.upto : upto] = total[self.upto : upto]
        self.upto = upto
        self.calls.append(upto)

    def arrived(self, total):
        """What the master has, when the rest has followed."""
        self.room[self.upto :] = total[self.upto :]
        return self.room


def message(model, stops, forward=None, passes=1):
    """The flat gradient of a model, of which the beginning leaves early, and what has left. passes: of the message."""
    params = list(reversed(list(model.parameters())))
    ends = np.cumsum([p.numel() for p in params]).tolist()
    left, total = Left(ends[-1]), torch.zeros(ends[-1])
    views = [total[end - p.numel() : end].view_as(p) for p, end in zip(params, ends, strict=True)]
    leaving = Leaving(params, ends, left.leave, stops)
    leaving.begin(total if passes == 1 else None, views)
    inputs = torch.linspace(-1, 1, 24).view(6, 4)
    for _ in range(passes):
        (forward or model)(inputs).square().sum().backward()
    rest = [place for place, p in enumerate(params) if p.grad is not None]
    leaving.end(rest)
    for place in rest:
        views[place] += params[place].grad
    return total, left


def gradient(model, forward=None, passes=1):
    """The same in one process."""
    for _ in range(passes):
        (forward or model)(torch.linspace(-1, 1, 24).view(6, 4)).square().sum().backward()
    return torch.cat([p.grad.reshape(-1) for p in reversed(list(model.parameters()))])


@pytest.mark.parametrize("stops", [0, 1, 3, 7])
def test_what_leaves_early_is_what_is_known_at_the_end(stops):
    total, left = message(deep(), stops)
    assert torch.allclose(left.arrived(total), gradient(deep()))
    assert left.calls == sorted(left.calls) and len(set(left.calls)) == 1 + stops


def test_nothing_leaves_while_more_passes_follow():
    total, left = message(deep(), 3, passes=2)
    assert left.calls == []
    assert torch.allclose(left.arrived(total), gradient(deep(), passes=2))


def test_what_changes_after_it_has_left_leaves_again():
    total, left = message(Twice(), 1)
    assert left.calls[-1] == 0 < max(left.calls)
    assert torch.allclose(left.arrived(total), gradient(Twice()))


def test_parameters_that_no_loss_reaches_keep_nothing_back_for_ever():
    def half(model):
        return lambda inputs: model[:4](inputs)  # the last layers, which come first in the message, get no gradient

    model, twin = deep(), deep()
    total, left = message(model, 3, half(model))
    half(twin)(torch.linspace(-1, 1, 24).view(6, 4)).square().sum().backward()
    expected = [torch.zeros(p.numel()) if p.grad is None else p.grad.reshape(-1) for p in reversed(list(twin.parameters()))]
    assert torch.allclose(left.arrived(total), torch.cat(expected))


# The way

DIM = 40


@pytest.fixture
def way(monkeypatch):
    monkeypatch.setattr(pinned, "PIECE", 32)
    sides, rooms = [np.zeros(DIM, KIND) for _ in range(2)], {0: np.zeros(4 * DIM, np.uint8)}
    found = Pinned(("cpu",), "cpu", DIM, KIND)
    found.open(sides, rooms)
    found.join(0, sides, rooms)
    yield found
    found.close()


def on_a_device(way):
    """The master's end as it is where its model is on a device, but on the CPU."""
    way._flats, way._stamp = [torch.zeros(DIM)] * 2, torch.zeros(1, dtype=torch.int64)
    return way


def test_a_vector_is_cut_into_pieces():
    assert [piece.stop - piece.start for piece in pieces(3 * (1 << 22) + 1, 4)] == [4194304, 4194304, 4194305]
    assert merged([(0, 1), (5000, 5001)]) == [(0, 8192)]


def test_a_worker_waits_for_each_piece_of_its_round(way):
    sides = [side.numpy() for side in way._hosts]
    other = Pinned(("cpu",), "cpu", DIM, KIND)  # the same way in another process
    other._area = way._area
    other.join(0, sides, {})
    on_a_device(way).lend(1).copy_(torch.arange(40.0))
    got = []
    worker = threading.Thread(target=lambda: got.append(other.params(1).clone()), daemon=True)
    worker.start()
    worker.join(0.1)
    assert not got
    way.publish(1)
    worker.join(60)
    assert torch.equal(got[0], torch.arange(40.0)) and way._marks[1].tolist() == [2] * 5


def test_the_rounds_of_a_side_are_told_apart(way):
    for round in range(4):
        on_a_device(way).lend(round % 2).fill_(round + 1.0)
        way.publish(round)
        assert way.params(round).tolist() == [round + 1.0] * DIM


def test_what_has_left_is_not_copied_again(way):
    said = []
    way.leaving(lambda *what: said.append(what))
    total = way.begin(0)
    total += 1
    way.leave(total, 16)
    total += 1
    way.deliver(0, total)
    assert way._rooms[0].tolist() == [1.0] * 16 + [2.0] * 24
    total = way.begin(0)
    way.leave(total, 16)
    way.leave(total, 0)
    total += 3
    way.leave(torch.ones(DIM), 20)  # no message of this way
    way.deliver(0, total)
    assert way._rooms[0].tolist() == [3.0] * DIM
    way.deliver(0, torch.full((DIM,), 4.0))
    assert way._rooms[0].tolist() == [4.0] * DIM
    assert said == [(0, 16), (0, 16), (0, 0)]


def test_the_master_hears_only_of_what_has_left(way):
    class Event:
        done = False

        def query(self):
            return self.done

    said = []
    way.leaving(lambda *what: said.append(what))
    total, first = way.begin(0), Event()
    way._berths._leaving.append((0, 8, first))  # a copy that the device has not done yet
    way.leave(total, 16)
    assert said == []
    first.done = True
    way.leave(total, 24)
    assert said == [(0, 8), (0, 16), (0, 24)]


def test_a_device_takes_the_beginning_of_a_message_before_the_end():
    slots = [torch.arange(4.0), torch.arange(4.0)]
    gather = DeviceGather(codes.uncoded(2), 4, slots, torch.device("cpu"))
    gather.hasten(0, 2)
    slots[0][:2] = 9.0  # too late
    gather.hasten(1, 3)
    gather.hasten(1, 0)  # the worker begins again
    gather.hasten(1, 3)
    slots[1][:] = 7.0
    gather.hasten(1, 1)  # another one does, in its place
    gather.add([Message(w, w, 0, 0.0, slots[w].numpy().view(np.uint8)) for w in (0, 1)])
    gather.hasten(0, 1)  # a note that comes late changes nothing
    found = gather.finish(np.array([[1.0, 100.0]]))[0]
    assert found.tolist() == [700.0, 701.0, 702.0, 703.0]
    gather.hasten(0, 2)
    gather.clear()
    gather.hasten(0, 2)
    gather.clear()
    slots[0][:2] = 8.0
    gather.add([Message(0, 0, 0, 0.0, slots[0].numpy().view(np.uint8))])
    assert gather.finish(np.array([[1.0, 0.0]]))[0].tolist() == [8.0, 8.0, 2.0, 3.0]


class Hastened:
    """A gather that is told what has left."""

    def __init__(self):
        self.parts = []

    def hasten(self, *part):
        self.parts.append(part)


def test_notes_of_parts_go_to_who_adds_and_are_no_events():
    with coded(mlp(), scheme="uncoded(2)", engine="local", engine_options={"way": "ipc"}) as run:
        run.backward()
        engine, run.master.engine._memory.gather = run.master.engine, Hastened()
        for round, upto in ((engine._round, 5), (engine._round - 1, 6), (engine._round, 0)):
            os.write(engine._notes, NOTE.pack(PART, 0, round, 1, upto))
        assert engine.next(engine.clock()) == []
        assert engine._memory.gather.parts == [(1, 5), (1, 0)]
        assert run.backward().exact


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("options", [{}, {"micro_batch": 3}, {"one_pass": True}], ids=str)
def test_steps_are_those_of_one_process(device, options, monkeypatch):
    monkeypatch.setattr(pinned, "PIECE", 64)
    found = []
    for how in ({"engine": "local", "engine_options": {"way": "pinned"}, "device": device, **options}, {}):
        model = mlp().to(device if how else "cpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        with coded(model, nn.CrossEntropyLoss(), table(), scheme="fractional_repetition(2, s=1)", **how) as run:
            for _ in range(4):
                optimizer.zero_grad()
                assert run.backward().exact
                optimizer.step()
        found.append([p.detach().cpu() for p in model.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(*found, strict=True))


def test_parameters_are_foreseen_and_an_order_that_is_repeated_is_not_mistaken():
    with coded(mlp(), scheme="uncoded(1)") as run:
        problem = run.problem
        problem.stay()
        sides = [torch.full((problem.dim,), value) for value in (1.0, 2.0)]
        for side in sides:
            problem._load(side[:])
        problem.prepare()
        replica = problem.replica
        assert {float(p.detach().mean()) for p in replica.params.values()} == {1.0}
        for expected, side in ((2.0, sides[1]), (1.0, sides[0]), (2.0, sides[1])):
            problem._load(side[:])
            assert {float(p.detach().mean()) for p in replica.params.values()} == {expected} == {float(replica.flat.mean())}
