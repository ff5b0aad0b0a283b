"""Lightning and Accelerate: their loops with coded gradients equal one process, resume from their checkpoints, and end workers.

Both are imported by the tests that need them: importing Lightning takes seconds, and every process collects this file.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import ShiftedExponential

from ..torch_models import mlp, table
from .test_torch_coded import alone, difference, flat

SLOW = 1
"""The worker that is late in every step."""

# Lightning 2.6 makes a LeafSpec, which torch 2.13 deprecates; a small validation set needs no processes to read it.
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
]


class OneSlow:
    """All messages of one worker are a minute late."""

    def sample(self, code, rounds, rng):
        return np.tile(np.where(code.messages.worker == SLOW, 60.0, 0.0), (rounds, 1))


def with_one_slow(problem):
    return us.engines.Chaos(us.engines.Local(problem), latency=OneSlow())


VIRTUAL = {"engine": "virtual", "latency": ShiftedExponential(rate=1.0), "seed": 3}
PROCESSES = {"engine": with_one_slow, "seed": 3}
COPIES, CYCLIC = "fractional_repetition(4, s=1)", "cyclic_repetition(3, s=1)"


def one_process(run, steps, data=None):
    """The reference: as in the tests of Coded, with clipping, momentum and a schedule."""
    model, data = mlp(dropout=0.3), table() if data is None else data
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        losses.append(alone(run, model, data, step))
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    return model, losses, schedule.get_last_lr()


def pids(run):
    return [run.master.engine.pid(worker) for worker in range(run.code.n)]


# Lightning


def loader(samples=50, batch_size=16, **options):
    return DataLoader(TensorDataset(*table(samples)), batch_size=batch_size, **{"shuffle": True, **options})


def trainer(strategy, **options):
    import lightning.pytorch as pl

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return pl.Trainer(strategy=strategy, **{"accelerator": "cpu", "gradient_clip_val": 0.5, **quiet, **options})


def watcher(do):
    """A callback that does something after every batch."""
    import lightning.pytorch as pl

    class Watcher(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            do(trainer, outputs)

    return Watcher()


def test_fit_equals_one_process_with_a_worker_slow():
    """Two epochs with a validation after each, on processes."""
    from ..lightning_models import Validated

    strategy, module, seen = us.torch.CodedStrategy(CYCLIC, **PROCESSES), Validated(), []

    def note(trainer, outputs):
        seen.append((strategy.info, outputs["loss"].item(), dict(trainer.callback_metrics), pids(strategy.run)))

    fit = trainer(strategy, max_epochs=2, callbacks=[watcher(note)])
    fit.fit(module, loader(), loader(shuffle=False))
    model, losses, rate = one_process(strategy.run, 8)
    assert difference(module.net, model) < 1e-5
    assert (fit.global_step, strategy.run.step, fit.current_epoch) == (8, 8, 2)
    assert fit.optimizers[0].param_groups[0]["lr"] == rate[0]
    for (info, loss, logged, _), expected in zip(seen, losses, strict=True):
        assert info.exact and SLOW in info.late
        assert info.loss == pytest.approx(expected, rel=1e-4) and loss == pytest.approx(info.loss)
        assert logged["coded/exact"] == 1 and logged["coded/late"] == len(info.late) and logged["coded/lost"] == 0
        assert logged["coded/wait"] == pytest.approx(info.wait) and logged["coded/loss"] == pytest.approx(info.loss)
        assert logged["train_loss"] == pytest.approx(info.loss, rel=1e-5)
    assert 0 <= fit.callback_metrics["accuracy"] <= 1 and "train_loss" in fit.callback_metrics
    assert not any(map(psutil.pid_exists, seen[-1][3]))


def test_callbacks_monitor_what_a_training_step_logs(tmp_path):
    """EarlyStopping ends after the first epoch, for any loss is low enough, and ModelCheckpoint keeps the best one."""
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    from ..lightning_models import Classifier

    strategy = us.torch.CodedStrategy(COPIES, **VIRTUAL)
    early = EarlyStopping("train_loss", stopping_threshold=100.0, check_on_train_epoch_end=True)
    best = ModelCheckpoint(tmp_path, monitor="train_loss", save_on_train_epoch_end=True)
    fit = trainer(strategy, max_epochs=5, callbacks=[early, best], enable_checkpointing=True)
    fit.fit(Classifier(), loader())
    assert fit.current_epoch == 1 and early.stopped_epoch == 0
    assert float(best.best_model_score) == pytest.approx(strategy.info.loss, rel=1e-5) and list(tmp_path.glob("*.ckpt"))


def test_going_on_from_a_checkpoint_equals_not_stopping_to_the_bit(tmp_path):
    """From the middle of an epoch, and read as weights only, which leaves no room for odd types."""
    from ..lightning_models import Classifier

    def run(seed, data, callbacks=(), **options):
        strategy, module = us.torch.CodedStrategy(COPIES, **VIRTUAL), Classifier(seed)
        fit = trainer(strategy, max_steps=9, callbacks=[*callbacks])
        fit.fit(module, data, **options)
        return fit, strategy, module

    def save(trainer, outputs):
        trainer.save_checkpoint(tmp_path / f"{trainer.global_step}.ckpt")

    fit, strategy, whole = run(1, loader(), [watcher(save)])
    path = tmp_path / "3.ckpt"
    saved = torch.load(path, weights_only=True)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert saved == [{**strategy.run.state_dict(), "step": 3}]
    again, strategy, module = run(5, loader(), ckpt_path=path, weights_only=True)
    assert torch.equal(flat(module), flat(whole))
    assert (again.global_step, strategy.run.step, again.current_epoch) == (9, 9, fit.current_epoch)
    with pytest.raises(Invalid, match="The saved run has batches="):
        run(5, loader(batch_size=10), ckpt_path=path)
    again.fit_loop.epoch_loop.max_steps = 11  # the same trainer once more, without a checkpoint
    again.fit(module, loader())
    assert (again.global_step, strategy.run.step, strategy.info.step) == (11, 11, 10)


@pytest.mark.parametrize("ctrl_c", [False, True])
def test_workers_end_when_training_does_not_end_well(ctrl_c):
    from ..lightning_models import Classifier

    strategy, seen = us.torch.CodedStrategy("uncoded(2)"), []

    def stop(trainer, outputs):
        seen.extend(pids(strategy.run))
        assert all(map(psutil.pid_exists, seen))
        if ctrl_c:
            signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError

    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit if ctrl_c else ZeroDivisionError):
            trainer(strategy, max_steps=9, callbacks=[watcher(stop)]).fit(Classifier(), loader())
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning leaves it ignored
    assert len(seen) == 2 and not any(map(psutil.pid_exists, seen))


def test_steps_that_are_skipped_change_nothing():
    from ..lightning_models import Classifier

    options = {"engine_options": {"restarts": 0}, "on_shortfall": "skip"}
    strategy, module, seen = us.torch.CodedStrategy("uncoded(2)", **options), Classifier(), []

    def kill(trainer, outputs):
        seen.append((strategy.info.skipped, flat(module)))
        if len(seen) == 1:
            os.kill(pids(strategy.run)[1], signal.SIGKILL)
            while pids(strategy.run)[1] is not None:
                time.sleep(0.01)

    fit = trainer(strategy, max_steps=3, callbacks=[watcher(kill)])
    with pytest.warns(UserWarning, match="`training_step` returned `None`"):
        fit.fit(module, loader())
    assert [skipped for skipped, _ in seen] == [False, True, True] and fit.global_step == 3
    assert torch.equal(seen[2][1], seen[0][1]) and not torch.equal(seen[0][1], flat(Classifier()))


def test_hooks_mappings_and_steps_without_an_index():
    from ..lightning_models import Doubled

    strategy, module = us.torch.CodedStrategy(COPIES, **VIRTUAL), Doubled()
    trainer(strategy, max_steps=3).fit(module, loader())
    inputs, targets = table()
    assert difference(module.net, one_process(strategy.run, 3, (2 * inputs, targets))[0]) < 1e-5


def refused(module="Classifier", data=None, datamodule=None, **options):
    from .. import lightning_models

    strategy = us.torch.CodedStrategy(COPIES, **VIRTUAL)
    if options.get("precision"):
        options["gradient_clip_val"] = None
    fit = trainer(strategy, max_steps=2, **options)
    module = getattr(lightning_models, module)()
    if datamodule:
        return fit.fit(module, datamodule=getattr(lightning_models, datamodule)())
    return fit.fit(module, data or loader())


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (r"devices=1, but got 2: this process is the master", {"devices": 2}),
        (r"num_nodes=1, but got 2", {"num_nodes": 2}),
        (r"accumulate_grad_batches=1, but got 4\. Use a batch_size 4 times as large", {"accumulate_grad_batches": 4}),
        (r"precision=\"32-true\", but got 'bf16-mixed'\. Use .*autocast", {"precision": "bf16-mixed"}),
        (r"overfit_batches=0", {"overfit_batches": 1, "data": loader(shuffle=False)}),
        (r"reload_dataloaders_every_n_epochs=0", {"reload_dataloaders_every_n_epochs": 1}),
        (r"automatic_optimization=True", {"module": "Manual", "gradient_clip_val": None}),
        (r"but got LBFGS", {"module": "Newton"}),
        (r"on_after_batch_transfer in the LightningModule", {"datamodule": "Moving"}),
        (r"one train DataLoader, but got 2", {"data": [loader(), loader()]}),
        (r"needs a torch.utils.data.DataLoader for training, but got list", {"data": [1, 2, 3]}),
        (r"batch_size=None: its items are whole batches", {"data": loader(shuffle=False, batch_size=None)}),
        (r"training_step asks for trainer\.global_step, but workers have no trainer", {"module": "Annealed"}),
        (r"training_step asks for batch_idx, but workers compute parts of a batch", {"module": "Numbered"}),
    ],
)
def test_what_the_strategy_refuses(words, options):
    with pytest.raises(Invalid, match=words):
        refused(**options)


def test_accumulation_that_begins_later_is_refused_then():
    from lightning.pytorch.callbacks import GradientAccumulationScheduler

    from ..lightning_models import Classifier

    strategy = us.torch.CodedStrategy(COPIES, **VIRTUAL)
    with pytest.raises(Invalid, match="accumulate_grad_batches=1, but got 2"):
        trainer(strategy, max_epochs=2, callbacks=[GradientAccumulationScheduler({1: 2})]).fit(Classifier(), loader())
    assert strategy.run.step == 4


def test_options_of_the_data_loader_are_not_those_of_the_strategy():
    for options in ({"batch_size": 4}, {"shuffle": False}, {"dataset": table()}, {"sheme": "none"}):
        with pytest.raises(Invalid, match=f"but got {next(iter(options))}"):
            us.torch.CodedStrategy(COPIES, **options)


def test_data_loaders_say_what_they_do():
    from unstraggle.torch.loaders import loader_options

    assert loader_options(loader(shuffle=False, drop_last=True, batch_size=90)) == {
        "batch_size": 50,
        "shuffle": False,
        "drop_last": True,
        "collate": None,
    }
    assert loader_options(loader(collate_fn=tuple))["collate"] is tuple and loader_options(loader())["shuffle"]
    for sampler in (WeightedRandomSampler([0.1, 0.9] * 25, 50), RandomSampler(range(50), num_samples=20)):
        mine = loader(shuffle=None, sampler=sampler)
        assert loader_options(mine) == {"batches": mine.batch_sampler, "collate": None}


# Accelerate


@pytest.fixture
def fresh():
    """Accelerate keeps one state per process."""
    from accelerate.state import AcceleratorState, GradientState

    def reset():
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    reset()
    yield
    reset()


def prepared(seed=1, **options):
    """As in a script: what `prepare` gives."""
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True, **options), mlp(dropout=0.3, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    return accelerator, *accelerator.prepare(model, optimizer, schedule)


def steps(run, accelerator, model, optimizer, schedule, count):
    infos = []
    for _ in range(count):
        infos.append(run.backward())
        accelerator.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return infos


def test_accelerated_steps_equal_those_of_one_process_with_a_worker_slow(fresh):
    accelerator, model, *rest = prepared()
    options = {"scheme": CYCLIC, "batch_size": 16, **PROCESSES}
    with us.torch.accelerated(accelerator, model, nn.CrossEntropyLoss(), table(), **options) as run:
        infos = steps(run, accelerator, model, *rest, 6)
        workers = pids(run)
    expected, losses, rate = one_process(run, 6)
    assert difference(model, expected) < 1e-5 and rest[1].get_last_lr() == rate
    assert [info.loss for info in infos] == pytest.approx(losses, rel=1e-4)
    assert all(info.exact and SLOW in info.late for info in infos)
    assert len(workers) == 3 and not any(map(psutil.pid_exists, workers))


def test_save_state_and_load_state_equal_not_stopping_to_the_bit(fresh, tmp_path):
    options = {"scheme": COPIES, "batch_size": 16, **VIRTUAL}
    with us.torch.accelerated(*(mine := prepared())[:2], nn.CrossEntropyLoss(), table(), **options) as run:
        steps(run, *mine, 3)
        mine[0].save_state(tmp_path)
        steps(run, *mine, 6)
    with us.torch.accelerated(*(other := prepared(seed=5))[:2], nn.CrossEntropyLoss(), table(), **options) as again:
        other[0].load_state(tmp_path)
        assert again.step == 3
        steps(again, *other, 6)
    assert torch.equal(flat(other[1]), flat(mine[1])) and again.step == 9


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (r"gradient_accumulation_steps=1, but got 2\. Use batch_size= 2 times", {"gradient_accumulation_steps": 2}),
        (r'mixed_precision="no", but got "bf16"\. Use autocast', {"mixed_precision": "bf16"}),
    ],
)
def test_what_accelerated_refuses(fresh, words, options):
    accelerator, model, *_ = prepared(**options)
    with pytest.raises(Invalid, match=words):
        us.torch.accelerated(accelerator, model, nn.CrossEntropyLoss(), table(), scheme=COPIES, **VIRTUAL)
    with pytest.raises(Invalid, match=r"needs an accelerate\.Accelerator first, but got Sequential"):
        us.torch.accelerated(model, accelerator, nn.CrossEntropyLoss(), table())


def test_several_processes_are_refused(fresh, monkeypatch):
    """A group of two processes of which one is imagined: Accelerate asks torch, and torch says two."""
    from accelerate import Accelerator
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "OMP_NUM_THREADS": 1}.items():
        monkeypatch.setenv(name, str(value))
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        accelerator = Accelerator(cpu=True)
        assert accelerator.num_processes == 2
        with pytest.raises(Invalid, match=r"one process, but got num_processes=2 \(MULTI_CPU\).*Run .* with plain python"):
            us.torch.accelerated(accelerator, mlp(), nn.CrossEntropyLoss(), table(), scheme=COPIES, **VIRTUAL)
    finally:
        torch.distributed.destroy_process_group()


# Without the libraries


def test_a_missing_library_is_named_and_the_core_needs_none():
    """In a process of its own, in which neither library nor torch can be imported."""
    script = """
import sys
import unstraggle.torch

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

assert not set(sys.modules) & {"torch", "lightning", "accelerate"}
sys.meta_path.insert(0, Gone())
for Gone.names in ({"torch", "lightning", "accelerate"}, {"lightning", "accelerate"}):
    for name in ("Coded", "CodedStrategy", "accelerated"):
        try:
            getattr(unstraggle.torch, name)
        except ImportError as error:
            print(name, str(error).split("Run: ")[1])
"""
    done = subprocess.run([sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    without_torch = [("Coded", "torch"), ("CodedStrategy", "torch"), ("accelerated", "accelerate")]
    with_torch = [("CodedStrategy", "lightning"), ("accelerated", "accelerate")]
    expected = [f"{name} pip install 'unstraggle[{missing}]'" for name, missing in without_torch + with_torch]
    assert done.stdout.splitlines() == expected
