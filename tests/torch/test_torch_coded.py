"""Coded training: the same numbers as one process, whoever is late, and clear words where that cannot be."""

import copy
import os
import signal
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import unstraggle as us
from unstraggle import Invalid, WorkerFailed, parse_code, work
from unstraggle.latency import ShiftedExponential
from unstraggle.runtime.payload import number_type
from unstraggle.runtime.serve import Job, Share
from unstraggle.runtime.serve import run as serve
from unstraggle.torch.batches import Dealt, Placed
from unstraggle.torch.parts import partitions
from unstraggle.torch.replica import Replica
from unstraggle.torch.seeds import seeded

from .. import torch_models
from ..torch_models import (
    FailsAt,
    Noisy,
    Residual,
    Tied,
    Unpicklable,
    Unseeded,
    coded,
    half_square,
    mlp,
    params_of,
    root_mean_square,
    table,
    weighted_mean,
)

EXACT = (
    "uncoded(4)",
    "fractional_repetition(4, s=1)",
    "cyclic_repetition(4, s=2)",
    "reed_solomon(4, s=1)",
    "reed_solomon(4, s=2, field='real')",
    "partial_stragglers(4, s=1, slowdown=2)",
    "correlated_mmc(4, load=3, order=2)",
    "uncorrelated_mmc(4, load=3, orders=[2, 3])",
    "uncoded_mmc(4, load=2)",
    "hybrid(uncorrelated_mmc(4, load=3, orders=[2, 3]))",
    "cluster(correlated_mmc(3, load=2, order=2), times=2)",
    "stack(uncoded(4), cyclic_repetition(4, s=1), shares=[0.3, 0.7])",
    "blocks([1, 2], uncoded(4), cyclic_repetition(4, s=2))",
)
ON_PROCESSES = (1, 2, 3, 6, 9)


pytestmark = pytest.mark.usefixtures("one_thread")


def alone(run, model, data, step, loss_fn=nn.functional.cross_entropy):
    """One process: partition by partition under its seed, the mean over the batch. Adds to p.grad and gives the loss."""
    total = 0.0
    for part in range(run.problem.k):
        which = torch.from_numpy(run.batches.rows(step, part))
        if not len(which):
            continue
        with seeded((run.seed, step, part), torch.device("cpu")):
            loss = loss_fn(model(data[0][which]), data[1][which]) * len(which) / run.batches.size(step)
        loss.backward()
        total += float(loss.detach())
    return total


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def difference(model, other):
    return float((flat(model) - flat(other)).norm() / flat(other).norm())


def late(code, rng):
    """Delays that make as many random workers slow as the code tolerates."""
    delays = np.zeros(len(code.messages))
    for worker in rng.permutation(code.n):
        more = delays.copy()
        more[code.messages.worker == worker] = 60.0
        if code.decoder.residual(more == 0) < 1e-9 and (code.decoder.rule is None or code.decoder.rule.met(more == 0)):
            delays = more
    return delays


# The same numbers


def test_messages_that_are_fetched_make_the_same_gradient():
    models = [mlp() for _ in range(2)]
    for model, transfer in zip(models, ("push", "pull"), strict=True):
        with coded(model, scheme="uncoded_mmc(4, load=2)", transfer=transfer) as run:
            info = run.backward()
        assert info.exact and (transfer == "push" or info.messages == 4)
    for pushed, pulled in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(pulled.grad, pushed.grad)


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("scheme", EXACT)
def test_coded_steps_equal_those_of_one_process(scheme, dtype, allowed):
    """With dropout, momentum, clipping, a schedule and an incomplete last batch; late workers are drawn."""
    data = table(dtype=dtype)
    models = [mlp(dtype, dropout=0.3) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9) for model in models]
    schedules = [torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5) for optimizer in optimizers]
    with coded(models[0], data=data, scheme=scheme) as run:
        for step in range(5):
            for optimizer in optimizers:
                optimizer.zero_grad()
            info = run.backward()
            assert info.exact
            assert info.loss == pytest.approx(alone(run, models[1], data, step), rel=10 * allowed)
            for model, optimizer, schedule in zip(models, optimizers, schedules, strict=True):
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
    assert (run.epoch, info.samples) == (1, 16)
    assert difference(*models) < allowed


@pytest.mark.parametrize("scheme", [EXACT[number] for number in ON_PROCESSES])
def test_the_same_on_processes_with_any_workers_slow(scheme):
    data, models, rng = table(), [mlp(dropout=0.3) for _ in range(2)], np.random.default_rng(0)
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.02) for model in models]
    with coded(models[0], data=data, scheme=scheme, engine="local") as run:
        for step in range(5):
            delays = late(run.code, rng)
            for optimizer in optimizers:
                optimizer.zero_grad()
            info = run.backward(delays=delays)
            assert info.loss == pytest.approx(alone(run, models[1], data, step), rel=1e-5)
            for optimizer in optimizers:
                optimizer.step()
            assert info.exact
            assert set(run.code.messages.worker[delays > 0]) <= set(info.late)
    assert difference(*models) < 1e-5


def test_a_slow_optimiser_shows_in_the_wall_clock_and_not_in_the_wait():
    with coded(engine="local") as run:
        infos = []
        for _ in range(3):
            infos.append(run.backward())
            time.sleep(0.2)  # an optimiser that takes its time
    for info in infos[1:]:
        assert info.wall >= info.wait + 0.2 and info.split.outside >= 0.2 and info.idle >= 0.2
        assert sum(vars(info.split).values()) == pytest.approx(info.wall)
    assert infos[0].split.outside == 0
    assert infos[0].to_dict().keys() == us.Step(step=0, wall=0.0, wait=0.0, exact=True).to_dict().keys() | {
        "loss",
        "samples",
        "epoch",
        "metrics",
    }


def test_one_batch_over_all_partitions_is_the_batch_of_one_process():
    """Without dropout nothing depends on partitions: plain autograd on the union of their samples, for a mean and for a sum."""
    data = table()
    for loss_fn, plain in ((nn.CrossEntropyLoss(), nn.CrossEntropyLoss()), (half_square, half_square)):
        model = mlp()
        with coded(model, loss_fn, data, scheme="cyclic_repetition(4, s=1)", batch_size=13) as run:
            which = np.concatenate([run.batches.rows(0, part) for part in range(4)])
            info = run.backward()
        other = mlp()
        loss = plain(other(data[0][which]), data[1][which])
        loss.backward()
        assert len(which) == 13 and info.loss == pytest.approx(float(loss.detach()), rel=1e-5)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


def test_gradients_add_up_as_in_torch():
    model = mlp()
    with coded(model, batch_size=None) as run:
        run.backward()
        once = [p.grad.clone() for p in model.parameters()]
        run.backward()
    for p, first in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * first)


def test_augmentation_is_the_same_on_every_worker():
    """Noise from torch, numpy and random, in samples that two workers read."""
    found = []
    for scheme in ("uncoded(4)", "cyclic_repetition(4, s=3)"):
        model = mlp()
        with coded(model, data=Noisy(), scheme=scheme, batch_size=8) as run:
            run.backward()
        found.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    with seeded((0, 1, 2), torch.device("cpu")):
        torch.rand(1), np.random.rand()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[0]) and np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002


def test_tied_frozen_and_unused_parameters():
    model, data = Tied(), table()
    other = copy.deepcopy(model)
    with coded(model, data=data, scheme="cyclic_repetition(4, s=2)") as run:
        assert run.layout.dim == 2 + 36 + 42 + 42
        assert run.layout.names[-1] == "unused.weight" or run.layout.names[-1] == "unused.bias"
        run.backward()
        alone(run, other, data, 0)
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None) == ("frozen" in name or "unused" in name)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
    assert run.layout.names.index("middle.weight") < run.layout.names.index("first.weight")


def test_freezing_later_needs_another_run():
    model = mlp()
    with coded(model) as run:
        next(model.parameters()).requires_grad_(False)
        with pytest.raises(Invalid, match=r"changed: \['0.weight'\]"):
            run.backward()


def test_lower_precision_on_the_worker():
    model, exact = mlp(), mlp()
    with coded(model, autocast=torch.bfloat16) as run, coded(exact) as other:
        assert run.backward().loss == pytest.approx(other.backward().loss, rel=0.02)
    for p, q in zip(model.parameters(), exact.parameters(), strict=True):
        assert p.grad.dtype == torch.float32 and not torch.equal(p.grad, q.grad)
        torch.testing.assert_close(p.grad, q.grad, rtol=0.1, atol=0.02)


def test_running_statistics_are_the_mean_over_partitions():
    """The gradient is that of one forward pass per partition; the statistics are decoded with it."""
    model, data = Residual(nn.BatchNorm1d, depth=2), table()
    other = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
    with coded(model, data=data, scheme="cyclic_repetition(4, s=2)", drop_last=True) as run:
        for step in range(4):
            starts = copy.deepcopy(dict(other.named_buffers()))
            means = {name: torch.zeros_like(b, dtype=torch.float32) for name, b in starts.items()}
            for optimizer in optimizers:
                optimizer.zero_grad()
            run.backward()
            for part in range(4):
                for name, buffer in other.named_buffers():
                    buffer.data.copy_(starts[name])
                which = torch.from_numpy(run.batches.rows(step, part))
                with seeded((run.seed, step, part), torch.device("cpu")):
                    loss = nn.functional.cross_entropy(other(data[0][which]), data[1][which], reduction="sum")
                (loss / run.batches.size(step)).backward()
                for name, buffer in other.named_buffers():
                    means[name] += buffer / 4
            for name, buffer in other.named_buffers():
                buffer.data.copy_(means[name])
            for optimizer in optimizers:
                optimizer.step()
    assert difference(model, other) < 1e-5
    for (name, buffer), expected in zip(model.named_buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, rtol=1e-4, atol=1e-6, msg=name)
    assert int(model.layers[0][0].num_batches_tracked) == 4


def test_running_statistics_can_be_left_alone():
    model = Residual(nn.BatchNorm1d, depth=1)
    before = copy.deepcopy(dict(model.named_buffers()))
    with coded(model, statistics="discard", scheme="quantize(fractional_repetition(4, s=1), bits=8)") as run:
        assert run.backward().loss is None
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())
    with pytest.raises(Invalid, match="too coarse for the running statistics"):
        coded(model, scheme="quantize(fractional_repetition(4, s=1), bits=8)")
    model.layers[0][0].momentum = None
    with pytest.raises(Invalid, match="momentum=None"):
        coded(model)


# Batches


@pytest.mark.parametrize(("sizes", "batch"), [((10, 10, 10), 6), ((5, 2, 9), 4), ((1, 100), 7), ((3, 3), 1), ((4, 4), 8)])
def test_an_epoch_uses_every_sample_once(sizes, batch):
    batches = Placed(sizes, batch, seed=1)
    for epoch in range(2):
        steps = range(epoch * batches.steps, (epoch + 1) * batches.steps)
        for part, size in enumerate(sizes):
            rows = [batches.rows(step, part) for step in steps]
            assert sorted(np.concatenate(rows).tolist()) == list(range(size))
            share = batch * size / sum(sizes)
            assert all(abs(len(r) - share) < 2 for r in rows[:-1])
        assert [sum(len(batches.rows(step, part)) for part in range(len(sizes))) for step in steps] == [
            batches.size(step) for step in steps
        ]
    assert Placed(sizes, batch, seed=1, drop_last=True).steps == sum(sizes) // batch
    other = Placed(sizes, batch, seed=2)
    if max(sizes) > 8:
        big = int(np.argmax(sizes))
        assert other._order(0, big).tolist() != batches._order(0, big).tolist() != batches._order(1, big).tolist()


def test_partitions_follow_the_shares_of_the_code():
    code = parse_code("stack(uncoded(2), cyclic_repetition(2, s=1), shares=[0.2, 0.8])")
    assert partitions(100, None, code.shares, seed=0) is None
    rows = partitions(100, "contiguous", code.shares, seed=0)
    assert np.concatenate(rows).tolist() == list(range(100))
    np.testing.assert_allclose([len(r) for r in rows], 100 * code.shares, atol=2)
    assert [len(r) for r in partitions(4, "contiguous", np.array([0.97, 0.01, 0.01, 0.01]), seed=0)] == [1, 1, 1, 1]


def test_partitions_of_ones_own():
    mine = [np.arange(part, 50, 4) for part in range(4)]
    with coded(parts=mine, scheme="uncoded(4)") as run:
        assert run.batches.sizes == (13, 13, 12, 12)
        assert run.backward().exact
    with pytest.raises(Invalid, match=r"k=4 partitions, none empty"):
        coded(parts=mine[:3])
    with pytest.raises(Invalid, match="k=4 partitions, but got parts=5"):
        coded(parts=5)
    with pytest.raises(Invalid, match='parts is "random", "contiguous" or a list'):
        coded(parts="shuffled")


def test_a_worker_gets_the_rows_of_its_partitions_where_they_are_fixed():
    for parts, most in ((None, 50), ("random", 13), ("contiguous", 13)):
        with coded(parts=parts, scheme="uncoded(4)") as run:
            data = run.problem.share(0, [0]).data
            assert len(data.tensors[0]) in (most, most - 1)
            seen = np.concatenate([run.problem.which(step, part) for step in range(4) for part in range(4)])
            assert sorted(seen.tolist()) == list(range(50))
            assert run.backward().exact


def test_batches_do_not_depend_on_the_code():
    """Losses of three schemes on the same script are equal to rounding; those of placed partitions are of other batches."""
    found = {}
    for scheme in ("uncoded(2)", "fractional_repetition(6, s=1)", "cyclic_repetition(5, s=2)"):
        for parts in (None, "random"):
            model = mlp()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
            with coded(model, scheme=scheme, parts=parts) as run:
                found[scheme, parts] = train(run, optimizer, 6)
    dealt = [losses for (_, parts), losses in found.items() if parts is None]
    np.testing.assert_allclose(dealt[1:], dealt[:-1], rtol=1e-5)
    assert abs(np.subtract(found["uncoded(2)", "random"], found["cyclic_repetition(5, s=2)", "random"])).max() > 0.01


def test_a_batch_is_dealt_by_shares():
    shares = parse_code("stack(uncoded(2), cyclic_repetition(2, s=1), shares=[0.2, 0.8])").shares
    batches = Dealt(103, shares, 20, seed=1)
    for step in range(2 * batches.steps):
        rows = [batches.rows(step, part) for part in range(batches.k)]
        np.testing.assert_allclose([len(r) for r in rows], batches.size(step) * shares, atol=1)
        assert sorted(np.concatenate(rows).tolist()) == sorted(batches.batch_of(step).tolist())
    epoch = [sorted(np.concatenate([batches.batch_of(step + e) for step in range(6)]).tolist()) for e in (0, 6)]
    assert epoch == [list(range(103))] * 2 and batches.batch_of(0).tolist() != batches.batch_of(6).tolist()


@pytest.mark.parametrize(("parts", "low", "high"), [(None, 0.9, 1.0), ("contiguous", 0.0, 0.6)])
def test_data_sorted_by_class_with_batch_normalisation(parts, low, high):
    """A contiguous partition holds one class, and normalising over it takes away what tells the classes apart."""
    torch.manual_seed(0)
    targets = torch.arange(8).repeat_interleave(40)
    inputs = 2 * torch.randn(8, 6)[targets] + torch.randn(320, 6)
    model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with coded(model, data=(inputs, targets), scheme="uncoded(8)", batch_size=160, parts=parts) as run:
        train(run, optimizer, 40)
    accuracy = float((model.eval()(inputs).argmax(1) == targets).float().mean())
    assert low <= accuracy <= high


def test_datasets_and_forward_functions_of_ones_own():
    inputs, targets = table()
    found = []
    for data, options in (
        ((inputs, targets), {}),
        (TensorDataset(inputs, targets), {}),
        ([(x, y) for x, y in zip(inputs, targets, strict=True)], {}),
        (
            [{"x": x, "y": y} for x, y in zip(inputs, targets, strict=True)],
            {"forward": lambda model, b: (model(b["x"]), b["y"])},
        ),
        (torch.cat([inputs, targets[:, None].float()], 1), {"forward": torch_models.next_token}),
    ):
        with coded(data=data, **options) as run:
            found.append(run.backward().loss)
    assert found == pytest.approx([found[0]] * 5, rel=1e-6)
    with pytest.raises(Invalid, match="A batch is"):
        coded(data=inputs)


# Schemes and engines


def test_schemes(tmp_path):
    with coded(scheme="none", workers=3) as run:
        assert run.code.name == "uncoded(3)"
        assert run.backward().used == (0, 1, 2)
    for latency, helps in ((ShiftedExponential(rate=100, shift=1), False), (ShiftedExponential(rate=1, shift=0.01), True)):
        seen = latency.speeds(4, 80, np.random.default_rng(0))  # so many rounds cost the planner little
        with coded(scheme="auto", workers=4, latency=us.trace.from_seconds(seen)) as run:
            assert (run.code.name != "uncoded(4)") == helps and run.backward().exact
    assert [us.torch.scheme.by_rule(n).name for n in (2, 5)] == ["fractional_repetition(2, s=1)", "cyclic_repetition(5, s=1)"]
    plan = us.plan.redundancy(ShiftedExponential(rate=10, shift=0.01), n=4)
    with coded(scheme=plan, workers=4) as run:
        assert run.backward().exact
    for options, words in (
        ({"workers": 5}, "n=4 workers, but got workers=5"),
        ({"scheme": "auto"}, "needs workers="),
        ({"scheme": 7}, "scheme is a code"),
        ({"scheme": "lagrange(4, load=2)"}, "encoded data"),
        ({"scheme": "cyclic(4)"}, "Unknown code"),
        ({"engine": "carrier pigeon"}, "engine is"),
        ({"latency": None}, "needs latency="),
        ({"seed": -1}, "seed"),
        ({"batch_size": 51}, "1 to 50"),
    ):
        with pytest.raises(Invalid, match=words):
            coded(**options)


def test_a_trace_is_recorded_and_planned_with(tmp_path):
    path = tmp_path / "trace.jsonl"
    with coded(scheme="none", workers=3, engine="local", trace=path) as run:
        for _ in range(24):
            run.backward(delays=np.random.default_rng(run.step).exponential(0.03, 3))
    assert len(us.trace.read(path)) == 24
    with coded(scheme="auto", workers=3, latency=path) as run:
        assert run.backward().exact


def test_two_tracks_and_approximate_codes():
    code = us.codes.optimally_structured([0.1, 0.2, 0.3, 0.4])
    model, seen = mlp(), []
    optimizer = us.torch.TwoTrackAdam(model.parameters())
    scheme = us.plan.two_track(code, [0.1, 0.2, 0.3, 0.4])
    with coded(model, scheme=scheme, stop=us.Deadline(1.0), callbacks=[seen.append]) as run:
        info = run.backward()
        optimizer.step(second=run.second(optimizer))
    assert seen == [info] and info.to_dict()["step"] == 0
    assert not torch.equal(run.second(optimizer)[0], next(model.parameters()).grad)
    with coded() as plain:
        plain.backward()
        assert plain.second(optimizer) is None


def test_a_step_that_is_skipped_leaves_gradients_alone():
    model = mlp()
    with coded(model, engine="local", engine_options={"restarts": 0}, on_shortfall="skip", scheme="uncoded(2)") as run:
        run.backward()
        model.zero_grad()
        os.kill(run.master.engine.pid(1), signal.SIGKILL)
        info = run.backward(delays=np.array([0.0, 60.0]))
    assert info.skipped and info.loss is None and info.lost == (1,)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("engine", ["virtual", "local"])
def test_a_run_that_was_closed_says_so(engine):
    run = coded(mlp(), scheme="uncoded(2)", engine=engine)
    run.backward()
    for _ in range(2):
        run.close()
    with pytest.raises(Invalid, match=r"This run was closed, .* load the state_dict of this one"):
        run.backward()
    assert run.state_dict()["step"] == 1
    with pytest.raises(Invalid, match="This master was closed"):
        run.master.gradient(np.zeros(run.problem.dim))


def test_a_launcher_of_several_processes_is_refused(monkeypatch):
    for size, rank in (("WORLD_SIZE", "RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE",) * 2):
        with monkeypatch.context() as started:
            started.setenv(size, "3")
            started.setenv(rank, "0" if rank != size else "3")
            if rank == size:
                started.setenv("OMPI_COMM_WORLD_RANK", "1")
            with pytest.raises(Invalid, match=f"started 3 times .{size}=3"):
                coded(engine="local")
            started.setenv(size, "1")
            with coded(engine=lambda problem: us.engines.Virtual(problem, ShiftedExponential(rate=1.0), rng=0)) as run:
                assert run.backward().exact


def test_an_older_trace_is_replaced_unless_told(tmp_path):
    path = tmp_path / "trace.jsonl"
    for append, rounds in ((False, 2), (False, 2), (True, 4)):
        with coded(trace=path, append=append) as run:
            run.backward(), run.backward()
        assert len(us.trace.read(path)) == rounds


# Workers die, runs go on


def test_a_worker_killed_in_the_middle_changes_nothing():
    data, models = table(), [mlp(dropout=0.2) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.2) for model in models]
    dead = []
    with coded(models[0], data=data, scheme="fractional_repetition(4, s=1)", engine="local") as run:
        for step in range(8):
            if step == 3:
                os.kill(run.master.engine.pid(2), signal.SIGKILL)
                while run.master.engine.pid(2) is not None:
                    time.sleep(0.01)
            for optimizer in optimizers:
                optimizer.zero_grad()
            info = run.backward()
            dead += info.lost
            alone(run, models[1], data, step)
            for optimizer in optimizers:
                optimizer.step()
            assert info.exact
    assert 2 in dead
    assert difference(*models) < 1e-5


def train(run, optimizer, steps, rng=None):
    """rng: messages leave in random order."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(run.backward(delays=None if rng is None else 0.02 * rng.random(len(run.code.messages))).loss)
        optimizer.step()
    return losses


@pytest.mark.parametrize("scheme", ["uncoded(4)", "fractional_repetition(4, s=1)", "uncoded_mmc(3, load=2)"])
def test_resuming_equals_not_stopping_to_the_bit(scheme):
    """Whoever comes first, and whichever copy is used."""
    models = [mlp(dropout=0.3) for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in models]
    options, rng = {"engine": "local", "scheme": scheme}, np.random.default_rng(0)
    with coded(models[0], **options) as run:
        whole = train(run, optimizers[0], 9, rng)
    with coded(models[1], **options) as run:
        losses = train(run, optimizers[1], 4, rng)
        state = [copy.deepcopy(one.state_dict()) for one in (run, models[1], optimizers[1])]
    model = mlp(dropout=0.3, seed=9)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with coded(model, **options) as run:
        for one, saved in zip((run, model, optimizer), state, strict=True):
            one.load_state_dict(saved)
        losses += train(run, optimizer, 5, rng)
    assert losses == whole
    assert torch.equal(flat(model), flat(models[0]))


def test_a_state_of_other_batches_is_refused():
    with coded() as run, coded(batch_size=10) as other, coded(seed=4) as third:
        run.backward()
        with pytest.raises(Invalid, match="batches="):
            other.load_state_dict(run.state_dict())
        with pytest.raises(Invalid, match="seed=3"):
            third.load_state_dict(run.state_dict())
        run.load_state_dict({**run.state_dict(), "step": 7})
        assert run.backward().step == 7


# Errors


@pytest.mark.parametrize("loss_fn", [root_mean_square, weighted_mean])
def test_a_loss_that_is_no_sum_or_mean_over_samples(loss_fn):
    with pytest.raises(Invalid, match=r"Step 0, partition 0, before the start: .*neither the sum nor mean"):
        coded(loss_fn=loss_fn)


def test_reductions_are_found_or_declared():
    with coded(loss_fn=half_square) as run:
        assert not run.problem.how.mean
    with coded(loss_fn=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.1]), reduction="sum")) as run:
        assert not run.problem.how.mean
    with coded(loss_fn=half_square, reduction="sum", check=False) as run:
        assert not run.problem.how.mean
    with pytest.raises(Invalid, match="is a sum over the samples"):
        coded(loss_fn=half_square, reduction="mean")
    with pytest.raises(Invalid, match='"mean", "sum" or "ratio"'):
        coded(reduction="none")
    with pytest.raises(Invalid, match=r"must be one number, but has shape"):
        coded(loss_fn=nn.CrossEntropyLoss(reduction="none"))


def test_a_model_that_is_random_in_spite_of_the_seed():
    with pytest.raises(Invalid, match=r"Step 0, partition 0, before the start: two evaluations with the same seed differ by"):
        coded(Unseeded())
    with coded(Unseeded(), check=False) as run:
        assert run.backward().exact


def test_nan_losses_and_missing_samples_name_step_partition_and_worker():
    inputs, targets = table(8)
    targets[:] = torch.tensor([0, 1, 0, 1, 0, 1, 2, 2])
    options = {"batch_size": 8, "engine": "local", "check": False, "parts": "contiguous"}
    with (
        coded(loss_fn=FailsAt(), data=(inputs, targets), scheme="uncoded(4)", **options) as run,
        pytest.raises(WorkerFailed, match=r"Worker 3 failed: .*Step 0, partition 3, worker 3: the loss is nan"),
    ):
        run.backward()
    with (
        coded(data=Noisy(8, missing=5), scheme="uncoded(2)", **options) as run,
        pytest.raises(
            WorkerFailed, match=r"Step 0, partition 1, worker 1: the samples cannot be read: FileNotFoundError.*5.png"
        ),
    ):
        run.backward()


def test_what_the_model_itself_refuses_names_step_and_partition():
    """The last batch of an epoch has 2 samples for 4 partitions, too few for batch normalisation."""
    with coded(Residual(nn.BatchNorm1d, depth=1)) as run:
        run.load_state_dict({**run.state_dict(), "step": 3})
        with pytest.raises(
            us.UnstraggleError, match=r"Step 3, partition \d, .*ValueError: Expected more than 1 value per channel"
        ):
            run.backward()


def test_a_dataset_that_cannot_be_sent(monkeypatch):
    with pytest.raises(Invalid, match="The dataset cannot be sent to workers: an open file handle"):
        coded(data=Unpicklable(), engine="local")
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(Invalid, match="The loss_fn cannot be sent to workers"):
        coded(loss_fn=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets), engine="local")


def test_layers_with_sparse_gradients_are_refused():
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Flatten())
    with pytest.raises(Invalid, match="0 was made with sparse=True, but messages and decoded gradients are dense"):
        coded(model)


def test_too_little_data_and_data_without_a_length():
    with pytest.raises(Invalid, match="3 samples, fewer than the 4 partitions"):
        coded(data=table(3))
    with pytest.raises(Invalid, match="needs a length and items"):
        coded(data=iter([]))
    with pytest.raises(Invalid, match=r"lengths \[3, 2\]"):
        coded(data=(torch.zeros(3), torch.zeros(2)))
    with pytest.raises(Invalid, match="no parameter that requires a gradient"):
        coded(mlp().requires_grad_(False))
    with pytest.raises(Invalid, match="all be float32 or all float64"):
        coded(mlp(torch.bfloat16))


# Memory and accelerators


class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the largest memory that any operation makes, but for that at known addresses."""

    def __init__(self, known):
        super().__init__()
        self.known, self.largest = known, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        memory = out.untyped_storage() if isinstance(out, torch.Tensor) else None
        if memory is not None and memory.data_ptr() not in self.known():
            self.largest = max(self.largest, memory.nbytes() // 4)
        return out


@pytest.mark.parametrize("scheme", ["cyclic_repetition(4, s=3)", "fractional_repetition(4, s=3)"])
def test_a_worker_needs_one_vector_of_gradients_whatever_its_load(scheme, monkeypatch):
    """The backward pass adds into the message itself: no operation makes anything of the size of the gradient."""
    made = []
    zeros = Replica.zeros
    monkeypatch.setattr(Replica, "zeros", lambda self: made.append(zeros(self)) or made[-1])
    with coded(nn.Sequential(*(nn.Linear(6, 6) for _ in range(20)), nn.Linear(6, 3)), scheme=scheme) as run:
        problem, params, sent = run.problem, params_of(run), []
        everything = slice(0, problem.dim)
        problem._load(params)
        whole = [problem.grad(params, part, everything, 0) for part in range(4)]
        made.clear()
        with Sizes(lambda: {problem.replica.flat.data_ptr(), *(vector.ctypes.data for vector in made)}) as sizes:
            work(
                run.code.program(1),
                lambda part, block: pytest.fail("a partial gradient was made"),
                lambda message, payload: sent.append((message, payload)),
                accumulate=lambda part, block, coef, total: problem.accumulate(params, part, everything, 0, coef, total),
            )
    message, payload = sent[0]
    assert len(made) == len(sent) == 1 and len(message.pairs) == 4 and payload is made[0]
    assert sizes.largest < problem.dim / 4
    expected = sum(coef * whole[part] for (part, _), coef in zip(message.pairs, message.coef, strict=True))
    np.testing.assert_allclose(payload, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheme", [EXACT[2], EXACT[3], EXACT[6], "quantize(fractional_repetition(4, s=1), bits=8)"])
def test_messages_may_be_made_of_tensors_as_on_an_accelerator(scheme, monkeypatch):
    found = []
    for tensors in (False, True):
        if tensors:
            monkeypatch.setattr(Replica, "zeros", lambda self: torch.zeros_like(self.flat))
        model, sent = mlp(), []
        with coded(model, scheme=scheme) as run:
            run.backward()
            share = Share(
                run.code.program(0), run.problem, (slice(0, run.problem.dim),), number_type(run.code, run.layout.dtype)
            )
            job = Job(0, 0, params_of(run), time.monotonic())
            serve(
                share,
                job,
                lambda message, payload, *_, sent=sent: sent.append(payload.copy()),
                lambda: False,
                lambda until: None,
            )
        found.append((torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy(), np.concatenate(sent)))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-4, atol=1e-6)
    assert found[0][1].shape == found[1][1].shape and np.mean(found[0][1] != found[1][1]) < 0.2
