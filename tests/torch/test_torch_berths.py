"""Copies beside what a device computes, with a lane on which they are done late; and long vectors through two short pieces."""

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unstraggle.torch import pins, staging
from unstraggle.torch.berths import Berths
from unstraggle.torch.pins import Pins
from unstraggle.torch.staging import Staging

from ..torch_models import coded, mlp, params_of, table

DIM = 12
CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


class Event:
    def __init__(self):
        self.done = False

    def query(self):
        return self.done


class LateLane:
    """Copies are done when somebody waits for them, or when the device gets to them; in their order."""

    def __init__(self):
        self.waiting = []

    def copy(self, to, given):
        self.waiting.append((to, given, Event()))
        return self.waiting[-1][2]

    def do(self, count):
        for to, given_, event in self.waiting[:count]:
            to.copy_(given_)
            event.done = True
        del self.waiting[:count]

    def precede(self):
        self.do(len(self.waiting))

    wait = precede


def berths(messages=2):
    rooms = {m: np.full(4 * DIM, 255, np.uint8) for m in range(messages)}
    found = Berths(CPU, DIM, torch.float32, rooms)
    found._lane = LateLane()
    return found, {m: room.view("f4") for m, room in rooms.items()}


@given(st.data())
def test_a_message_is_in_its_room_whatever_was_left_before_and_whenever_the_device_gets_to_it(data):
    here, rooms = berths()
    for value in range(1, data.draw(st.integers(1, 5), "messages") + 1):
        index, known, said = data.draw(st.integers(0, 1)), 0, []
        here.say = lambda *what, said=said: said.append(what)
        total = here.begin(index)
        for upto in data.draw(st.lists(st.integers(0, DIM), max_size=4), "places"):
            if upto < known:
                here.leave(total, 0)
                here._lane.precede()  # else what leaves late is of both, and leaves once more
                known = 0
            total[known:upto] = value
            here.leave(total, upto)
            known = upto
            here._lane.do(data.draw(st.integers(0, 2)))
            assert all(m == index and (rooms[m][:end] == value).all() for m, end in said[-1:])
        if data.draw(st.booleans(), "left"):
            continue
        total[known:] = value
        here.deliver(index, total if data.draw(st.booleans(), "own") else total.clone())
        assert rooms[index].tolist() == [value] * DIM and not here._lane.waiting


def test_what_leaves_late_is_not_what_comes_after_it():
    here, rooms = berths()
    total = here.begin(0)
    total += 1
    here.leave(total, 8)
    other = here.begin(0)  # the task was left; its copy is waited for before zeros are written
    assert rooms[0][:8].tolist() == [1.0] * 8
    here.leave(other, 4)
    here.deliver(0, torch.full((DIM,), 5.0))
    assert rooms[0].tolist() == [5.0] * DIM


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
def test_long_vectors_pass_through_short_pieces(device, length, monkeypatch):
    monkeypatch.setattr(staging, "PIECE", 32)
    there, stage = torch.zeros(length, device=device), Staging(torch.device(device), torch.float32)
    for value in (1.0, 2.0):
        sent, back = torch.arange(length) + value, torch.zeros(length)
        stage.up(sent, there)
        wanted = sent.clone()
        sent += 100  # whoever gave it may change it
        stage.down(there, back)
        assert torch.equal(back, wanted.float()) and torch.equal(there.cpu(), back)


def test_a_piece_is_not_filled_while_the_device_copies_it(monkeypatch):
    class Copied:
        def synchronize(self):
            waits.append(True)

    monkeypatch.setattr(staging, "PIECE", 32)
    stage, waits = Staging(CPU, torch.float32), []
    monkeypatch.setattr(stage, "_mark", lambda number: stage._done.__setitem__(number % 2, Copied()))
    stage.up(torch.zeros(32), torch.zeros(32))
    assert len(waits) == 2, "the third piece and the fourth wait for the first and the second"
    stage.up(torch.zeros(8), torch.zeros(8))
    assert len(waits) == 3, "pieces of the vector before may be on their way still"


def test_memory_is_let_go_when_nobody_holds_it_and_not_before(monkeypatch):
    undone = []
    monkeypatch.setattr(pins.cudart, "pin", lambda address, size, device: True)
    monkeypatch.setattr(pins.cudart, "unpin", lambda address: undone.append(address))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: undone.append("done"))
    held = np.zeros(100_000)
    gone, found = weakref.ref(held), Pins(torch.device("cuda:0"), [held])
    del held
    gc.collect()
    assert gone() is not None and undone == []
    del found
    gc.collect()
    assert gone() is None and len(undone) == 2 and undone[0] == "done"
    again = Pins(torch.device("cuda:0"), [np.zeros(100_000)])
    again.release()
    again.release()
    assert len(undone) == 4


@pytest.mark.parametrize("align", [1, 16])
def test_parameters_come_through_pieces_and_are_viewed_where_they_landed(align, monkeypatch):
    monkeypatch.setattr(staging, "PIECE", 64)
    monkeypatch.setattr("unstraggle.torch.draft.alignment", lambda devices, code: align)
    with coded(mlp(), data=table(), scheme="uncoded(2)") as run:
        problem, params = run.problem, params_of(run)
        params.flags.writeable = False
        expected = [problem.grad(given_, 0) for given_ in (params, 2 * params)]
        problem.stay()
        problem.grad(params, 0)  # where it stands: that memory is the master's, and is not written
        problem.replica.staged = True
        before = params.copy()
        for given_, wanted in zip((params[:], 2 * params), expected, strict=True):
            assert np.array_equal(problem.grad(given_, 0), wanted)
        assert np.array_equal(params, before)
        landed = problem.replica.flat
        assert all(p.untyped_storage().data_ptr() == landed.untyped_storage().data_ptr() for p in problem.model.parameters())
