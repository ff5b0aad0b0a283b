"""scheme="adaptive": training goes on as in one process, whichever code is used at the time, also where it is resumed."""

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, Dataset, SequentialSampler

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import Replay
from unstraggle.torch import Coded

from ..engines.scenarios import until

N, STEPS, BATCH = 3, 6, 24
DATA = torch.randn(60, 5, dtype=torch.float64), torch.randn(60, 1, dtype=torch.float64)
PIECES = us.codes.work_conserving(N, load=2, pieces=2)


def network(norm=False):
    torch.manual_seed(1)
    middle = nn.BatchNorm1d(8) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(5, 8), middle, nn.Linear(8, 1)).double()


def adaptive(model, **options):
    options = {"scheme": "adaptive", "workers": N, "batch_size": BATCH, "engine": "virtual"} | options
    latency = Replay(np.ones((4, N))) if options["engine"] == "virtual" else None
    return Coded(model, nn.MSELoss(), options.pop("data", DATA), latency=latency, **options)


def train(run, optimizer, steps):
    """Steps of training; gives their records."""
    infos = []
    for _ in range(steps):
        optimizer.zero_grad()
        infos.append(run.backward())
        optimizer.step()
    return infos


def adam(model):
    return torch.optim.Adam(model.parameters(), 0.05)


def alone(rows_of, steps):
    """Parameters after as many steps in one process."""
    model = network()
    optimizer = adam(model)
    for step in range(steps):
        rows = rows_of(step)
        optimizer.zero_grad()
        nn.MSELoss()(model(DATA[0][rows]), DATA[1][rows]).backward()
        optimizer.step()
    return model


def same(one, other):
    for name, value in one.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-9, atol=1e-11, msg=name)


def test_on_processes_a_change_leaves_the_training_as_it_is(tmp_path):
    model = network()
    optimizer = adam(model)
    with adaptive(model, engine="local", trace=tmp_path / "trace.jsonl") as run:
        infos = train(run, optimizer, 3)
        run.master.switch(PIECES)
        infos += train(run, optimizer, STEPS - 3)
        rows_of = run.batches.batch_of
    assert all(info.exact for info in infos)
    assert [info.code for info in infos] == ["uncoded(3)"] * 3 + [PIECES.name] * 3
    assert infos[3].switches[0]["code"] == PIECES.name and infos[3].to_dict()["switches"][0]["was"] == "uncoded(3)"
    assert infos[3].wall >= infos[3].switches[0]["switching"], "what a change takes is part of the step"
    assert us.trace.read(tmp_path / "trace.jsonl").numbers.tolist() == list(range(STEPS))
    same(model, alone(rows_of, STEPS))


class Rows(Dataset):
    """The same samples, which a thread or a process of each worker reads ahead."""

    def __len__(self):
        return len(DATA[0])

    def __getitem__(self, row):
        return DATA[0][row], DATA[1][row]


@pytest.mark.parametrize("readers", [0, 1])
def test_workers_keep_nothing_of_the_code_before(readers):
    """Each change left a model, a dataset and who reads it in every worker."""

    def there():
        """Threads of the workers, and processes that they have forked."""
        workers = [psutil.Process(run.master.engine.pid(worker)) for worker in range(N)]
        return sum(one.num_threads() + len(one.children(recursive=True)) for one in workers)

    with adaptive(network(), engine="local", readers=readers, data=Rows()) as run:
        run.backward()
        first = there()
        for code in (us.codes.cyclic_repetition(N, s=1), PIECES, us.codes.uncoded(N)):
            run.master.switch(code)
            run.backward()
        until(lambda: there() <= first)


def test_it_changes_by_itself_when_a_worker_becomes_slow():
    speeds = np.ones((60, N))
    speeds[20:, 1] = 6.0
    model = network()
    run = Coded(
        model, nn.MSELoss(), DATA, scheme="adaptive", workers=N, batch_size=BATCH, engine="virtual", latency=Replay(speeds)
    )
    with run:
        infos = train(run, adam(model), 45)
    assert infos[25].wait == 6.0 and infos[-1].wait < 2.0 and run.code.name == run.master.code.name != "uncoded(3)"
    same(model, alone(run.batches.batch_of, 45))


def test_resumed_across_a_change_it_goes_on_with_the_same_batches():
    model = network()
    optimizer = adam(model)
    with adaptive(model) as run:
        train(run, optimizer, 2)
        run.master.switch(PIECES)
        train(run, optimizer, 2)
        saved = run.state_dict()
        rows_of = run.batches.batch_of
    assert saved["step"] == 4 and saved["code"] == PIECES.name
    with adaptive(model) as again:
        again.load_state_dict(saved)
        infos = train(again, optimizer, 2)
    assert infos[0].step == 4 and infos[0].code == "uncoded(3)"
    same(model, alone(rows_of, STEPS))


def test_a_sampler_of_ones_own_goes_on_across_a_change():
    batches = BatchSampler(SequentialSampler(range(60)), 20, drop_last=False)
    model = network()
    optimizer = adam(model)
    with adaptive(model, batches=batches, batch_size=None) as run:
        train(run, optimizer, 2)
        run.master.switch(PIECES)
        train(run, optimizer, 2)
    rows = list(batches)
    same(model, alone(lambda step: rows[step % 3], 4))


def test_batch_normalisation_is_that_of_the_codes_one_after_the_other():
    changed, parted = network(norm=True), network(norm=True)
    optimizer = adam(changed)
    with adaptive(changed) as run:
        train(run, optimizer, 2)
        run.master.switch(PIECES)
        train(run, optimizer, 2)
    optimizer, state = adam(parted), None
    for scheme in ("uncoded(3)", PIECES):
        with adaptive(parted, scheme=scheme) as run:
            if state:
                run.load_state_dict(state)
            train(run, optimizer, 2)
            state = run.state_dict()
    same(changed, parted)


def test_what_was_changed_in_the_model_reaches_the_next_workers():
    """A buffer that the master sets, before and after a change of code."""
    model = network()
    model.register_buffer("scale", torch.ones(1, dtype=torch.float64))

    with adaptive(model, forward=scaled) as run:
        first = train(run, torch.optim.SGD(model.parameters(), 0.0), 1)[0]
        model.scale.fill_(0.0)
        run.master.switch(PIECES)
        second, third = train(run, torch.optim.SGD(model.parameters(), 0.0), 2)
    zero = [float((DATA[1][run.batches.batch_of(step)] ** 2).mean()) for step in (1, 2)]
    assert first.loss > 0 and [second.loss, third.loss] == pytest.approx(zero)


def scaled(model, batch):
    return model.scale * model(batch[0]), batch[1]


def test_what_an_adaptive_run_cannot_do_is_said():
    for options, why in (
        ({"parts": "random"}, "Leave parts out"),
        ({"stop": us.Count(2)}, "until the gradient is exact"),
        ({"workers": None}, "needs workers="),
    ):
        with pytest.raises(Invalid, match=why):
            adaptive(network(), **options)
