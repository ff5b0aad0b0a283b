"""Readers: processes that read ahead for a worker, as it would have read itself, random numbers and errors included."""

import gc
import logging
import os
import signal
import socket
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import unstraggle as us
from unstraggle import Invalid
from unstraggle.engines import Local
from unstraggle.latency import ShiftedExponential
from unstraggle.torch import parcel
from unstraggle.torch.ahead import Ahead
from unstraggle.torch.reading_process import ReadingProcess

from ..engines.scenarios import until
from ..torch_models import Noisy, mlp, params_of, table

VIRTUAL = {"engine": "virtual", "latency": ShiftedExponential(rate=1.0)}
Pair = namedtuple("Pair", "left right")


class Noted(Noisy):
    """Augmented samples; who reads which is written into a file."""

    def __init__(self, notes, samples=48):
        super().__init__(samples)
        self.notes = str(notes)

    def __getitem__(self, row):
        with open(self.notes, "a") as file:
            file.write(f"{os.getpid()} {row}\n")
        return super().__getitem__(row)


def notes_in(file):
    """(process, row) of all that was read."""
    text = Path(file).read_text() if Path(file).exists() else ""
    return [tuple(int(word) for word in line.split()) for line in text.splitlines()]


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"  # dead; whoever forked it may ask how


def children():
    """Processes of this one that have not been asked how they ended."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


def worker_of(dataset, worker=0, **options):
    """A run, and a problem as one of its workers has it."""
    given = {"scheme": "uncoded(2)", "batch_size": 8, "shuffle": False, **VIRTUAL, **options}
    run = us.torch.Coded(mlp(dropout=0.3), nn.CrossEntropyLoss(), dataset, **given)
    run.close()
    return run, run.problem.share(worker, [worker])


def seed(key):
    return (7, *key)


# What comes from a process


@pytest.fixture
def link():
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ends
    for end in ends:
        end.close()


def test_all_that_a_batch_may_be_made_of_arrives(link):
    wide = torch.arange(24.0).reshape(4, 6)
    tensors = [
        wide,
        wide.T,
        wide[:, ::2],
        wide.to(torch.bfloat16),
        wide > 3,
        torch.tensor(7),
        torch.zeros(0, 3),
        torch.complex(wide, -wide).conj(),
        torch.complex(wide, -wide).conj().imag,
        nn.Parameter(wide),
        torch.ones(3, requires_grad=True),
        wide.to_sparse(),
    ]
    arrays = [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3)), np.zeros(0, np.int8), np.array(3), np.arange(9)[::2]]
    others = [{"key": (1, "text", None)}, Pair(b"left", 2.5), np.array([{"an": "object"}, None], object)]
    parcel.send(link[0], (tensors, arrays, others))
    found = parcel.receive(link[1])
    for sent, got in zip(tensors, found[0], strict=True):
        assert type(got) is type(sent) and got.dtype == sent.dtype and got.shape == sent.shape
        assert torch.equal(got.to_dense(), sent.to_dense()) and got.requires_grad == sent.requires_grad
    for sent, got in zip(arrays, found[1], strict=True):
        assert got.dtype == sent.dtype and np.array_equal(got, sent)
    assert found[2][:2] == others[:2] and found[2][2].tolist() == others[2].tolist()
    found[0][0].add_(1)  # it is memory of one's own, which stays
    found[1][0][:] = 5
    assert torch.equal(found[0][1], wide.T)


def test_nothing_is_left_of_parcels_and_a_link_that_has_ended_says_so(link):
    parcel.send(link[0], torch.zeros(1000))
    parcel.receive(link[1])
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:unstraggle")
    for _ in range(50):
        parcel.send(link[0], [torch.zeros(1000), np.ones(1000)])
        parcel.receive(link[1])
    with pytest.raises(TypeError):  # nothing is sent of what cannot be
        parcel.send(link[0], [torch.zeros(1000), (number for number in range(3))])
    gc.collect()
    assert before == (len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:unstraggle"))
    link[0].close()
    with pytest.raises(EOFError):
        parcel.receive(link[1])


class Unsendable(Exception):
    """Its arguments do not make it again."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def failing(part, places):
    if part == 0:
        raise FileNotFoundError(2, "no such file", "5.png")
    if part == 1:
        raise Unsendable("this", "that")
    if part == 3:
        raise ConnectionResetError("the server of the samples, not the link to this process")
    return (number for number in places)


def test_errors_of_reading_arrive_whatever_they_are_and_reading_goes_on():
    source = ReadingProcess(lambda part, places: failing(part, places) if part < 4 else torch.as_tensor(places), seed)
    with pytest.raises(FileNotFoundError, match=r"no such file: '5.png'"):
        source.read((0, 0, 0), np.arange(2))
    with pytest.raises(RuntimeError, match="Unsendable: this and that"):
        source.read((0, 1, 0), np.arange(2))
    with pytest.raises(TypeError, match="generator"):
        source.read((0, 2, 0), np.arange(2))
    with pytest.raises(ConnectionResetError, match="the server of the samples"):
        source.read((0, 3, 0), np.arange(2))
    assert source.read((0, 4, 0), np.arange(2)).batch.tolist() == [0, 1]
    source.close()


def test_a_process_that_was_killed_is_named_and_another_one_reads_on(caplog):
    source = ReadingProcess(lambda part, places: os.kill(os.getpid(), part) or os.getpid(), seed)
    source.close()  # nothing was begun
    first = source.read((0, 0, 0), np.arange(2)).batch
    assert first != os.getpid() and source.read((1, 0, 0), np.arange(2)).batch == first
    with pytest.raises(ChildProcessError, match=r"A reading process ended by SIGKILL: somebody has killed it, or .* readers=$"):
        source.read((1, signal.SIGKILL, 0), np.arange(2))
    with pytest.raises(ChildProcessError, match=r"A reading process ended by SIGUSR1$"):
        source.read((1, signal.SIGUSR1, 0), np.arange(2))
    second = source.read((2, 0, 0), np.arange(2)).batch
    assert second not in (first, os.getpid()) and str(first) not in children()
    os.kill(second, signal.SIGKILL)
    until(lambda: is_gone(second))
    third = source.read((2, 0, 0), np.arange(2)).batch  # was asked of the second one
    assert third not in (first, second) and "another one reads on" in caplog.text
    source.close()
    assert not {str(second), str(third)} & children()


def test_a_process_computes_with_one_thread_and_heeds_neither_interrupts_nor_what_waits_to_be_printed(tmp_path, monkeypatch):
    """Ctrl+C goes to all processes of a terminal, threads are not forked, and what was printed before is printed once."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with open(tmp_path / "printed", "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        print("before")
        source = ReadingProcess(lambda part, places: (print("read"), os.getpid(), torch.get_num_threads())[1:], seed)
        pid, threads = source.read((0, 0, 0), np.arange(2)).batch
        os.kill(pid, signal.SIGINT)
        assert source.read((1, 0, 0), np.arange(2)).batch == (pid, threads) and threads == 1
        source.close()
    torch.set_num_threads(before)
    assert (tmp_path / "printed").read_text() == "before\nread\nread\n"


def test_processes_end_with_what_asked_them():
    before = children()
    ahead = Ahead([ReadingProcess(lambda part, places: part, seed) for _ in range(3)], depth=3)
    assert len(children() - before) == 3  # all of them at once, while nothing is computed
    del ahead
    gc.collect()
    until(lambda: children() == before)


# Workers


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("micro", [None, 3])
def test_workers_compute_the_same_to_the_bit_also_after_a_jump(readers, micro):
    """Reading draws from three generators, and dropout goes on from there."""
    run, problem = worker_of(Noisy(48), readers=readers, micro_batch=micro)
    plain, params = worker_of(Noisy(48), micro_batch=micro)[1], params_of(run)
    for step in (0, 1, 5, 2, 2, 3, 4):
        assert np.array_equal(problem.grad(params, 0, step=step), plain.grad(params, 0, step=step))
        problem.prepare()
    assert problem._reading.ahead.depth == readers + 1 and plain._reading.ahead is None


def test_micro_batches_draw_numbers_of_their_own():
    problem = worker_of(Same(), micro_batch=2, scheme="uncoded(1)", readers=1)[1]
    first, second, again = (problem.loss(0, 0, piece) for piece in (slice(0, 2), slice(2, 4), slice(0, 2)))
    assert first == again != second


@pytest.mark.parametrize("loader", [False, True])
def test_readers_always_have_something_to_read_and_read_nothing_twice(tmp_path, loader):
    """A worker never reads by itself. Where a sampler draws the batches, those of an epoch's end come when that is over."""
    dataset = Noted(tmp_path / "notes")
    given = DataLoader(dataset, batch_size=8) if loader else dataset
    run, problem = worker_of(given, readers=3, batch_size=None if loader else 8, check=False, reduction="mean")
    expected = []
    for step in range(5):
        if loader:
            problem.hear(run._told(step))
        problem.grad(params_of(run), 0, step=step)
        steps = range(min(step + 5, 6 if loader else 99))
        expected = sorted(row for one in steps for row in range(8 * one % 48, 8 * one % 48 + 8, 2))
        until(lambda: len(notes_in(dataset.notes)) >= len(expected))  # noqa: B023
        assert sorted(row for _, row in notes_in(dataset.notes)) == expected
    readers = {pid for pid, _ in notes_in(dataset.notes)}
    assert 2 <= len(readers) <= 3 and os.getpid() not in readers


def test_only_the_next_step_stands_on_the_device(tmp_path):
    run, problem = worker_of(Noted(tmp_path / "notes"), readers=3)
    problem.grad(params_of(run), 0, step=0)
    until(lambda: len(problem._reading.ahead.done()) == 4)
    problem.prepare()
    assert list(problem._reading._here) == [(1, 0, 0)]
    assert sorted(key for key, _ in problem._reading.ahead.done()) == [(step, 0, 0) for step in (2, 3, 4)]


def losses(steps=4, **options):
    model = mlp(dropout=0.3)
    with us.torch.Coded(model, nn.CrossEntropyLoss(), **options) as run:
        optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(steps):
            optimizer.zero_grad()
            found.append(run.backward().loss)
            optimizer.step()
    return found, torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def test_processes_read_for_worker_processes_and_end_with_them(tmp_path):
    common = {"scheme": "fractional_repetition(2, s=1)", "batch_size": 8}
    plain = losses(dataset=Noisy(48), **common, **VIRTUAL)
    found = losses(dataset=Noted(tmp_path / "notes"), readers=2, engine="local", **common)
    assert found[0] == plain[0] and torch.equal(found[1], plain[1])
    readers = {pid for pid, _ in notes_in(tmp_path / "notes")} - {os.getpid()}
    assert len(readers) >= 2
    until(lambda: all(is_gone(pid) for pid in readers))


@pytest.mark.gpu
def test_processes_read_for_workers_on_a_device(tmp_path):
    """They are forked from a process that has a CUDA context, and never ask the device for anything."""
    common = {"scheme": "fractional_repetition(2, s=1)", "batch_size": 8, "device": "cuda", "engine": "local"}
    plain = losses(dataset=Noisy(48), **common)
    found = losses(dataset=Noted(tmp_path / "notes"), readers=2, **common)
    assert np.allclose(found[0], plain[0], rtol=1e-5) and torch.allclose(found[1], plain[1], atol=1e-6)
    readers = {pid for pid, _ in notes_in(tmp_path / "notes")} - {os.getpid()}
    assert len(readers) >= 2
    until(lambda: all(is_gone(pid) for pid in readers))


def test_a_worker_that_is_killed_leaves_no_reader_and_one_that_lost_its_readers_goes_on(tmp_path):
    dataset, engines = Noted(tmp_path / "notes"), []

    def local(problem):
        engines.append(Local(problem))
        return engines[0]

    options = {"scheme": "uncoded(2)", "batch_size": 8, "readers": 1, "check": False, "reduction": "mean"}
    with us.torch.Coded(mlp(), nn.CrossEntropyLoss(), dataset, engine=local, **options) as run:
        assert run.backward().exact
        readers = {pid for pid, _ in notes_in(dataset.notes)}
        for pid in readers:
            os.kill(pid, signal.SIGKILL)
        until(lambda: all(is_gone(pid) for pid in readers))
        for _ in range(4):  # some steps have been read already
            assert run.backward().exact
        others = {pid for pid, _ in notes_in(dataset.notes)} - readers
        assert len(others) >= 2
        os.kill(engines[0].pid(0), signal.SIGKILL)
        until(lambda: sum(is_gone(pid) for pid in others) == 1)
        assert run.backward().exact
        third = {pid for pid, _ in notes_in(dataset.notes)} - readers - others
    until(lambda: all(is_gone(pid) for pid in others | third))


class Held(Noted):
    """Reading the last half of the samples does not end."""

    def __getitem__(self, row):
        found = super().__getitem__(row)
        while row >= 24:
            time.sleep(0.01)
        return found


def test_readers_end_with_their_worker_also_in_the_middle_of_reading(tmp_path):
    dataset, engines = Held(tmp_path / "notes"), []

    def local(problem):
        engines.append(Local(problem, restarts=0))
        return engines[0]

    options = {"scheme": "uncoded(2)", "batch_size": 8, "shuffle": False, "readers": 3, "check": False}
    with us.torch.Coded(mlp(), nn.CrossEntropyLoss(), dataset, engine=local, reduction="mean", **options) as run:
        assert run.backward().exact
        until(lambda: len({pid for pid, row in notes_in(dataset.notes) if row >= 24}) >= 4)
        readers = {pid for pid, _ in notes_in(dataset.notes)}
        os.kill(engines[0].pid(0), signal.SIGKILL)
        until(lambda: sum(is_gone(pid) for pid in readers) >= len(readers) // 2)
    until(lambda: all(is_gone(pid) for pid in readers))


# What is asked for


class Same(Noisy):
    """Samples that differ by what is drawn."""

    def __getitem__(self, row):
        return super().__getitem__(0)


class Lines(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows, (self.inputs, self.targets) = rows, table(48)

    def __iter__(self):
        return ((self.inputs[row], self.targets[row]) for row in self.rows)


def shards():
    return us.torch.Shards([Lines(range(shard, 48, 2)) for shard in range(2)], lengths=[24] * 2)


def test_streams_are_read_by_one_process():
    found = losses(dataset=shards(), scheme="uncoded(2)", batch_size=8, readers=1, **VIRTUAL)
    plain = losses(dataset=shards(), scheme="uncoded(2)", batch_size=8, **VIRTUAL)
    assert found[0] == plain[0] and torch.equal(found[1], plain[1])


@pytest.mark.parametrize(
    ("dataset", "options", "rule"),
    [
        (Noisy(), {"readers": -1}, "an integer readers with 0 <= readers <= 256, but got readers=-1"),
        (Noisy(), {"readers": True}, "an integer readers .*, but got readers=True"),
        (Noisy(), {"readers": 2, "read_ahead": False}, "readers=2 read ahead, but read_ahead is False. Leave one of them out"),
        (table(48), {"readers": 2}, "readers=2 read the items of a dataset, but tensors lie in memory already. Leave it out"),
        (shards(), {"readers": 2}, "A stream is read in its order, .* but got readers=2. Use readers=1"),
        (Noisy(), {"read_ahead": True}, "Use readers=1"),
    ],
)
def test_what_nobody_can_read_is_refused(dataset, options, rule):
    with pytest.raises(Invalid, match=rule):
        worker_of(dataset, **options)


def test_a_loader_whose_processes_would_be_missed_says_how_to_have_them(caplog):
    def said(dataset, **options):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "unstraggle"):
            worker_of(DataLoader(dataset, batch_size=8, num_workers=2), batch_size=None, **options)
        return [record.getMessage() for record in caplog.records if "readers=" in record.getMessage()]

    (text,) = said(Noisy())
    assert text.startswith("The DataLoader reads in 2 processes.") and "Coded(readers=...)" in text
    assert said(Noisy(), readers=1) == said(Noisy(), read_ahead=False) == []
    assert said(torch.utils.data.TensorDataset(*table())) == said(Still()) == []


class Still(Dataset):
    """Samples without random numbers: a thread reads them ahead."""

    def __len__(self):
        return 24

    def __getitem__(self, row):
        return torch.full((6,), float(row)), row % 3
