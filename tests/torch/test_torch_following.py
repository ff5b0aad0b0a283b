"""How much of a message is known while the backward pass computes the rest, and that it is what the message will be."""

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from unstraggle.engines import dock
from unstraggle.engines.dock import Dock
from unstraggle.engines.mooring import moored
from unstraggle.problems import Shows
from unstraggle.runtime.serve import Abandoned, Job, run, share_of
from unstraggle.torch.leaving import Following

from ..torch_models import Residual, Tied, Twice, coded, deep, mlp, params_of, table

INPUTS = torch.linspace(-1, 1, 24).view(6, 4)


class Told:
    """What is said of a message, with the numbers that stand there then."""

    def __init__(self):
        self.said = []

    def leave(self, total, upto):
        self.said.append((upto, total[:upto].clone()))


def message(model, stops, forward=None, alone=True):
    """The flat gradient of a model that is added up in its place, and what was said of it."""
    params = list(reversed(list(model.parameters())))
    ends = np.cumsum([p.numel() for p in params]).tolist()
    told, total = Told(), torch.zeros(ends[-1])
    views = [total[end - p.numel() : end].view_as(p) for p, end in zip(params, ends, strict=True)]
    for p, view in zip(params, views, strict=True):
        p.grad = view
    following = Following(params, ends, told.leave, stops)
    following.begin(total if alone else None, views)
    (forward or model)(INPUTS).square().sum().backward()
    following.end([])
    return total, told.said


@pytest.mark.parametrize("stops", [0, 1, 3, 7])
def test_what_is_said_to_be_known_is_what_it_will_be(stops):
    total, said = message(deep(), stops)
    places = [upto for upto, _ in said]
    assert places[0] == 0 and places == sorted(set(places)) and len(places) == 1 + stops
    assert all(torch.equal(numbers, total[:upto]) for upto, numbers in said)


def test_where_the_pass_comes_back_what_was_said_does_not_hold_and_nothing_more_is():
    total, said = message(Twice(), 3)
    places = [upto for upto, _ in said]
    assert max(places) > 0 and places[-1] == 0
    assert not torch.equal(max(said, key=lambda one: one[0])[1], total[: max(places)])


def test_nothing_is_said_of_a_message_with_more_passes_or_behind_what_no_loss_reaches():
    assert message(deep(), 3, alone=False)[1] == []
    model = deep()
    assert [upto for upto, _ in message(model, 3, lambda inputs: model[:4](inputs))[1]] == [0]


# Rooms of a worker


class Bench:
    """A worker whose master is on another host, and what it says."""

    def __init__(self, monkeypatch, model=None, worker=0, kind="auto", **options):
        monkeypatch.setattr(dock, "LEAST", 256)
        options.setdefault("scheme", "uncoded(2)")
        self.run = coded(model or mlp(), nn.CrossEntropyLoss(), table(), **options)
        problem, self.code = self.run.problem, self.run.code
        self.params = params_of(self.run)
        self.dock = Dock(worker, problem.dim, problem.dtype)
        share = pickle.loads(pickle.dumps(share_of(problem, self.code, worker)))
        self.share = self.dock.moor(share) if moored(share.problem, self.code, kind) else share
        self.dock.follow(self.share, self.know)
        self.said = []

    def know(self, index, upto):
        self.said.append((index, upto, self.dock._rooms[index][:upto].copy()))

    def compute(self, step=0, accumulate=None):
        """The payloads of a round, as bytes."""
        self.said, sent = [], {}
        job = Job(step, step, self.params[:], time.monotonic())
        if self.dock.follows:
            self.dock.expect(self.share.program)

        def send(message, payload, checksum, times):
            assert not self.dock.follows or self.dock.stands(message.index, payload)
            sent[message.index] = np.array(payload)

        begin = (lambda index: self.dock.begin(step, index, self.share.dtype)) if self.dock.begins else None
        run(self.share, job, send, lambda: False, lambda until: None, begin)
        return sent

    def whole(self, step=0):
        """The same without any of this."""
        sent = {}
        share = share_of(self.run.problem, self.code, self.share.worker)
        job = Job(step, step, self.params[:], time.monotonic())
        run(share, job, lambda m, payload, *_: sent.update({m.index: np.array(payload)}), lambda: False, lambda until: None)
        return sent

    def agree(self, step=0):
        """Whether messages are those of others, bit by bit, and so is what was said of them; gives how much was."""
        found, wanted = self.compute(step), self.whole(step)
        assert found.keys() == wanted.keys()
        assert all(np.array_equal(found[m], wanted[m]) for m in wanted)
        assert all(np.array_equal(numbers, found[m][:upto]) for m, upto, numbers in self.said)
        return [upto for _, upto, _ in self.said]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (mlp, {}),
        (Residual, {"check": False}),
        (Tied, {}),
        (mlp, {"scheme": "fractional_repetition(4, s=1)"}),
        (mlp, {"one_pass": True}),
    ],
    ids=["mlp", "residual", "tied", "two passes", "one pass"],
)
def test_what_goes_ahead_is_the_beginning_of_the_message_bit_by_bit(model, options, monkeypatch):
    bench = Bench(monkeypatch, model(), **options)
    for step in range(3):
        said = bench.agree(step)
        assert said == sorted(said) and (max(said, default=0) > 0 or model is Tied)


def test_of_several_passes_only_the_last_one_is_told(monkeypatch):
    bench = Bench(monkeypatch, scheme="fractional_repetition(4, s=1)")
    said, reached = bench.agree(), []
    assert said.count(0) == 1 and len(said) > 1
    leave = bench.share.problem.replica._leaving
    leave._leave, before = lambda total, upto: (reached.append(upto), before(total, upto)), leave._leave
    bench.compute()
    assert reached.count(0) == 2 and [upto for _, upto, _ in bench.said] == said


def test_nothing_is_told_where_passes_are_cut_or_messages_are_not_gradients_as_they_are(monkeypatch):
    assert Bench(monkeypatch, micro_batch=3).agree() == []
    for scheme in ("quantize(uncoded(2), bits=8)", "uncoded_mmc(2, load=2)", "work_conserving(2, load=2, pieces=2)"):
        assert not Bench(monkeypatch, scheme=scheme).dock.follows, scheme
    short = Bench(monkeypatch)
    monkeypatch.setattr(dock, "LEAST", 1 << 20)
    other = Dock(0, short.run.problem.dim, np.dtype("f4"))
    other.follow(short.share, short.know)
    assert not other.follows, "it is short"


def test_a_task_that_was_left_spoils_none_that_follows(monkeypatch):
    bench = Bench(monkeypatch)
    bench.agree(0)
    accumulate = bench.share.problem.accumulate

    def leaves(*given):
        accumulate(*given)
        raise Abandoned

    monkeypatch.setattr(bench.share.problem, "accumulate", leaves)
    assert bench.compute(1) == {}
    monkeypatch.setattr(bench.share.problem, "accumulate", accumulate)
    assert max(bench.agree(2)) > 0


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_messages_of_a_device_are_told_of_when_they_are_in_memory_of_the_host(device, monkeypatch):
    bench = Bench(monkeypatch, kind="pinned", device=device)
    problem = bench.share.problem
    problem._open()
    replica = problem.replica
    replica.apart = True  # as on a device
    replica.zeros = lambda: torch.zeros_like(replica.flat)
    for step in range(3):
        found = bench.compute(step)
        assert all(np.array_equal(numbers, found[m][:upto]) for m, upto, numbers in bench.said)
        assert device == "cuda" or max(upto for _, upto, _ in bench.said) > 0
        wanted = bench.whole(step)
        assert all(np.allclose(found[m].view("f4"), wanted[m].view("f4"), rtol=1e-4, atol=1e-6) for m in wanted)


def test_a_problem_that_is_sent_on_tells_nobody(monkeypatch):
    for kind in ("auto", "pinned"):
        bench = Bench(monkeypatch, kind=kind)
        assert isinstance(bench.share.problem, Shows) and bench.dock.follows
        again = pickle.loads(pickle.dumps(replace(bench.share, land=None))).problem
        assert again.replica.follow is again.replica.leave is again._berths is None
