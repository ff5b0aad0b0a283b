"""Reading ahead: samples of the next step, in a thread, and the same as if they were read when they are needed."""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import ShiftedExponential
from unstraggle.torch.ahead import Ahead, Found, Here
from unstraggle.torch.batches import KEPT, Dealt
from unstraggle.torch.how import How
from unstraggle.torch.reading import Reading
from unstraggle.torch.samplers import Sampled

from ..engines.scenarios import until
from ..torch_models import Noisy, mlp, params_of, table

VIRTUAL = {"engine": "virtual", "latency": ShiftedExponential(rate=1.0)}


class Slow(Dataset):
    """Samples whose reading is noted, by row; some cannot be read."""

    def __init__(self, samples=24, missing=()):
        self.inputs, self.targets = table(samples)
        self.missing, self.read, self.hold = missing, [], None

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        if self.hold is not None:
            self.hold.wait()
        self.read.append(row)
        if row in self.missing:
            raise FileNotFoundError(f"no such file: {row}.png")
        return self.inputs[row], self.targets[row]


def worker_of(dataset, scheme="uncoded(2)", worker=0, **options):
    """A run, and a problem as one of its workers has it, with the same dataset."""
    given = {"scheme": scheme, "batch_size": 8, "shuffle": False, **VIRTUAL, **options}
    run = us.torch.Coded(mlp(), nn.CrossEntropyLoss(), dataset, **given)
    run.close()
    return run, run.problem.share(worker, [worker])


def rows(run, step, part=0):
    return run.batches.rows(step, part).tolist()


def test_what_was_asked_for_is_there_once_and_errors_come_when_it_is_taken():
    read = []
    ahead = Ahead([Here(lambda part, places: read.append(places.tolist()) or 1 / places)])
    ahead.ask((1, 0, 0), np.array([1]))
    ahead.ask((1, 0, 0), np.array([1]))  # is being read
    assert ahead.take((1, 0, 0), np.array([1])).batch == 1 and read == [[1]]
    with np.errstate(divide="raise"):
        failing = Ahead([Here(lambda part, places: [][0])])
    failing.ask((2, 0, 0), np.array([0]))
    with pytest.raises(IndexError):
        failing.take((2, 0, 0), np.array([0]))
    ahead.ask((3, 0, 0), np.array([2]))
    until(lambda: [2] in read)
    assert ahead.take((3, 0, 0), np.array([4])).batch == 0.25  # other samples than were asked for
    assert read == [[1], [2], [4]]


def test_what_is_waited_for_is_read_first_and_what_is_over_is_not_read():
    read, go = [], threading.Event()
    ahead = Ahead([Here(lambda part, places: (go.wait(), read.append(places.tolist()))[1])])
    ahead.ask((0, 0, 0), np.array([0]))  # is begun, and waits
    until(lambda: ahead._desk.asked[0, 0, 0][1].running())
    for step, row in ((1, 1), (6, 6), (7, 7)):
        ahead.ask((step, 0, 0), np.array([row]))
    threading.Thread(target=lambda: (until(lambda: ahead._desk.urgent is not None), go.set())).start()
    ahead.take((6, 1, 0), np.array([9]))  # rounds were skipped
    assert read[:2] == [[0], [9]]
    ahead.take((7, 0, 0), np.array([7]))
    assert [1] not in read


def test_the_thread_ends_with_what_asked_it():
    before = set(threading.enumerate())
    ahead = Ahead([Here(lambda part, places: places)])
    (thread,) = set(threading.enumerate()) - before
    del ahead
    gc.collect()
    until(lambda: not thread.is_alive())


@pytest.mark.parametrize("micro", [None, 3])
def test_samples_of_the_next_step_are_read_before_this_one_ends_and_none_twice(micro):
    dataset = Slow()
    run, problem = worker_of(dataset, micro_batch=micro)
    params = params_of(run)
    dataset.read.clear()
    for step in range(3):
        problem.grad(params, 0, step=step)
        until(lambda: len(dataset.read) == len(rows(run, 0)) * (step + 2))  # noqa: B023
        expected = [row for one in range(step + 2) for row in rows(run, one)]
        assert dataset.read == expected if micro is None else sorted(dataset.read) == sorted(expected)


def test_a_problem_that_reads_ahead_computes_the_same_also_after_a_jump():
    run, problem = worker_of(Slow())
    plain, params = worker_of(Slow(), read_ahead=False)[1], params_of(run)
    problem.prepare()  # nothing to do yet
    for step in (0, 1, 5, 2, 2, 3):
        assert np.array_equal(problem.grad(params, 0, step=step), plain.grad(params, 0, step=step))
        until(lambda: problem._reading.ahead.done())
        problem.prepare()
        assert list(problem._reading._here) == [(step + 1, 0, 0)]  # moved before it is asked for
    assert problem._reading.ahead is not None and plain._reading.ahead is None


def test_errors_of_reading_are_those_of_the_step_that_needs_the_samples():
    dataset = Slow()
    run, problem = worker_of(dataset)
    params = params_of(run)
    dataset.missing = rows(run, 1)[:1]
    problem.grad(params, 0, step=0)
    until(lambda: set(dataset.missing) <= set(dataset.read))
    problem.prepare()
    problem.grad(params, 0, step=0)
    with pytest.raises(Invalid, match=r"Step 1, partition 0, worker 0: the samples cannot be read: FileNotFoundError"):
        problem.grad(params, 0, step=1)


def test_the_master_draws_one_batch_ahead_within_an_epoch():
    loader = DataLoader(Slow(), batch_size=8, shuffle=True)
    options = {"batch_size": None, "shuffle": True}
    run, problem = worker_of(loader, **options)
    torch.manual_seed(5)
    drawn = [run.batches.draw(step).tolist() for step in range(6)]
    again, _ = worker_of(loader, **options)
    torch.manual_seed(5)
    for step in range(6):
        problem.hear(again._told(step))
        assert problem.batches._told.tolist() == drawn[step]
        following = problem.batches.following(0).tolist() + problem.batches.following(1).tolist()
        assert sorted(following) == (sorted(drawn[step + 1]) if step % 3 < 2 else [])
    state = again.batches.state()
    again.batches.load(state)
    assert again.batches.draw(5).tolist() == drawn[5]


def test_a_sampler_gives_the_same_batches_however_far_they_are_drawn_ahead():
    drawn = {}
    for count in (0, 1, 3, 9):
        torch.manual_seed(5)
        batches = Sampled(RandomSampler(range(10)), 10, (1.0,), batch=3)  # four steps an epoch
        drawn[count], coming = [], []
        for step in range(9):
            drawn[count].append(batches.draw(step).tolist())
            coming.append([rows.tolist() for rows in batches.ahead(count)])
        for step, some in enumerate(coming[:4]):
            assert some == drawn[count][step + 1 : min(step + count, 3) + 1]
        state = batches.state()
        again = Sampled(RandomSampler(range(10)), 10, (1.0,), batch=3)
        again.load(state)
        assert again.draw(8).tolist() == drawn[count][8]
    assert drawn[0] == drawn[1] == drawn[3] == drawn[9]


def test_what_draws_random_numbers_or_lies_in_memory_is_not_read_ahead():
    assert not worker_of(Noisy())[0].problem.how.ahead and not worker_of(table())[0].problem.how.ahead
    assert worker_of(Slow())[0].problem.how.ahead and not worker_of(Slow(), check=False)[0].problem.how.ahead
    with pytest.raises(Invalid, match="draws random numbers"):
        worker_of(Noisy(), read_ahead=True)
    with pytest.raises(Invalid, match="read_ahead is True, False or None"):
        worker_of(Slow(), read_ahead="yes")


ENDING = """
import time
import numpy as np
import torch
from unstraggle.torch.ahead import Ahead, Here

torch.set_num_threads(1)
big, begun = torch.randn(600, 600), []

def read(part, places):
    begun.append(part)
    found = big
    for _ in range(40):
        found = found @ big
    return found

ahead = Ahead([Here(read)])
ahead.ask((1, 0, 0), np.arange(3))
while not begun:
    time.sleep(0.001)
"""
"""A program that ends while its thread is inside torch."""


def test_a_process_that_ends_while_samples_are_read_ends_well():
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_tensors_are_read_ahead_when_the_device_has_been_asked_for_everything(monkeypatch):
    """Items at once, for they may take as long as the pass; see `Reading.ask_ahead`."""
    monkeypatch.setattr(Reading, "_worth", lambda reading: True)
    for dataset, at_once in ((table(24), False), (Slow(), True)):
        run, problem = worker_of(dataset)
        asked, reading = [], Reading(problem.data, problem.batches, 0, torch.device("cpu"), How(seed=0, ahead=True))
        monkeypatch.setattr(reading.ahead, "ask", lambda key, places, asked=asked: asked.append((key, places.tolist())))
        monkeypatch.setattr(reading, "_taken", lambda key, places, ahead: Found(None))
        reading.read(0, 0)
        assert bool(asked) is at_once
        reading.ask_ahead()
        assert asked == [((1, 0, 0), rows(run, 1))]
        reading.ask_ahead()
        assert len(asked) == 1


def test_a_pass_asks_for_the_next_samples_before_it_waits_for_the_device(monkeypatch):
    run, problem = worker_of(table(24))
    problem._open()
    seen = []
    monkeypatch.setattr(problem._reading, "ask_ahead", lambda: seen.append("ask"))
    monkeypatch.setattr(problem._passes, "look_at_losses", lambda: seen.append("wait"))
    problem.accumulate(params_of(run), 0, slice(None), 0, 1.0, None)
    assert seen == ["ask", "wait"]


def test_batches_are_dealt_once_a_step_and_anew_for_other_partitions():
    batches = Dealt(10, np.full(2, 0.5), batch=4, seed=0)
    first = batches.rows(0, 1)
    assert batches.rows(0, 1) is first
    batches.deal_to(np.full(4, 0.25))
    assert len(batches.rows(0, 1)) == 1
    for step in range(200):
        batches.rows(step, 0)
    assert len(batches._dealt) <= KEPT
