"""CodedTrainer: the losses of a Trainer, with means over all tokens of a batch. The real Trainer runs in test_adopted.py, where
transformers is installed; here a stand-in calls the same hooks."""

import pytest
import torch

import unstraggle as us
from unstraggle import Invalid
from unstraggle.latency import ShiftedExponential

from . import small_transformers as small

VIRTUAL = {"engine": "virtual", "latency": ShiftedExponential(rate=1.0), "scheme": "fractional_repetition(4, s=1)"}


@pytest.fixture(autouse=True)
def transformers(monkeypatch):
    with small.installed(monkeypatch):
        yield


def given(**values):
    args = {"train_dataset": small.rows(), "data_collator": small.collate, "args": small.TrainingArguments(**values)}
    return {"model": small.Tagger(), **args}


@pytest.mark.parametrize("options", [{}, {"micro_batch": 1}])
def test_losses_and_parameters_are_those_of_the_trainer(options):
    plain, coded = small.Trainer(**given()), us.torch.CodedTrainer(**given(), **VIRTUAL, **options)
    assert plain.train() == coded.train() == 8
    torch.testing.assert_close(coded.losses, plain.losses)
    for mine, other in zip(coded.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    assert coded.info.exact and coded.run is None


def test_a_compute_loss_of_ones_own_runs_on_the_workers():
    class Twice(us.torch.CodedTrainer):
        def compute_loss(self, *args, **kwargs):
            return 2 * super().compute_loss(*args, **kwargs)

    plain, twice = us.torch.CodedTrainer(**given(), **VIRTUAL), Twice(**given(), **VIRTUAL)
    plain.train()
    twice.train()
    assert twice.losses[0] == pytest.approx(2 * plain.losses[0])


def test_what_does_not_fit_is_refused():
    for words, values, resume in (
        ("per_device_train_batch_size 4 times", {"gradient_accumulation_steps": 4}, None),
        ("autocast=torch.bfloat16", {"bf16": True}, None),
        ("plain python", {"world_size": 2}, None),
        ("resume_from_checkpoint=None", {}, "checkpoint-500"),
    ):
        with pytest.raises(Invalid, match=words):
            us.torch.CodedTrainer(**given(**values), **VIRTUAL).train(resume)


def test_a_mean_over_tokens_that_is_not_counted_is_refused(monkeypatch):
    monkeypatch.setattr(small.Tagger, "counts", False)
    with pytest.raises(Invalid, match=r"neither the sum nor mean"):
        us.torch.CodedTrainer(**given(), **VIRTUAL).train()
