"""Streams: a shard for each partition, read in order by whoever has it, also after missed steps."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset

import unstraggle as us
from unstraggle import Invalid
from unstraggle.torch import Coded, Shards

SAMPLES = torch.randn(24, 3)
LATENCY = us.latency.ShiftedExponential(rate=1.0)


class Stream(IterableDataset):
    """Some of the samples, as a file would have them; opened: how often it was begun, read: samples that were read."""

    def __init__(self, begin, end):
        self.rows, self.opened, self.read = range(begin, end), 0, 0

    def __iter__(self):
        self.opened += 1
        for row in self.rows:
            self.read += 1
            yield SAMPLES[row], SAMPLES[row, :1]


class Shuffled(Stream):
    def __iter__(self):
        return iter([next(super().__iter__()), torch.randn(1)])


def streams():
    return [Stream(0, 6), Stream(6, 12), Stream(12, 18), Stream(18, 24)]


def coded(dataset, scheme="cyclic_repetition(4, s=1)", **options):
    options = {"engine": "virtual", "latency": LATENCY, "batch_size": 8} | options
    return Coded(nn.Linear(3, 1), nn.MSELoss(), dataset, scheme=scheme, **options)


def test_an_epoch_goes_through_every_stream_in_its_order():
    lengths = [6] * 4
    with coded(Shards(streams(), lengths)) as run:
        steps = [torch.cat([SAMPLES[run.problem.which(step, part)] for part in range(4)]) for step in range(3)]
        for step, rows in enumerate(steps):
            before = [p.detach().clone().requires_grad_() for p in run.model.parameters()]
            run.model.zero_grad()
            info = run.backward()
            loss = nn.functional.mse_loss(nn.functional.linear(rows, *before), rows[:, :1])
            torch.testing.assert_close(torch.tensor(info.loss), loss.detach(), rtol=1e-5, atol=1e-6)
            grads = torch.autograd.grad(loss, before)
            torch.testing.assert_close([p.grad for p in run.model.parameters()], list(grads), rtol=1e-4, atol=1e-6)
            assert info.samples == 8, step
        torch.testing.assert_close(torch.cat(steps).sort(0).values, SAMPLES.sort(0).values)
        assert run.steps_per_epoch == 3 and run.backward().epoch == 1


def test_a_worker_reads_over_what_it_has_missed_and_begins_again_for_what_is_past():
    stream = Stream(0, 6)
    shards = Shards([stream], [6])
    stream.opened = stream.read = 0
    assert torch.equal(shards[1][0], SAMPLES[1]) and torch.equal(shards[4][0], SAMPLES[4])
    assert (stream.opened, stream.read) == (1, 5)
    assert torch.equal(shards[0][0], SAMPLES[0]) and stream.opened == 2
    assert torch.equal(pickle.loads(pickle.dumps(shards))[5][0], SAMPLES[5])


def test_more_shards_than_partitions_are_dealt():
    assert [part.tolist() for part in Shards([range(2), range(3), range(1)]).parts(2)] == [[0, 1, 5], [2, 3, 4]]


def test_what_is_no_stream_for_all():
    for make, words in (
        (lambda: Shards(streams()), "no len"),
        (lambda: Shards([Shuffled(0, 6)], [2]), "gives other samples the second time"),
        (lambda: Shards([iter([1, 2])], [2]), "gone through once"),
        (lambda: Shards([range(3)], [0]), "a length >= 1"),
        (lambda: Shards([range(3)], [4])[3], "Stream 0 has 3 samples, but its length is 4"),
        (lambda: coded(Shards(streams()[:2], [6, 6])), "4 partitions, but there are 2 streams"),
        (lambda: coded(Shards(streams(), [6] * 4), parts="random"), "Leave out parts="),
        (lambda: coded(Shards(streams(), [6] * 4), scheme="adaptive", workers=4), "changes the partitions"),
        (lambda: coded(Stream(0, 6)), "a stream for each shard of the data, as Shards"),
        (lambda: coded(torch.utils.data.DataLoader(Stream(0, 6)), batch_size=None), "as Shards"),
    ):
        with pytest.raises(Invalid, match=words):
            make()
    assert np.array_equal(Shards([range(3)])[2], 2)
