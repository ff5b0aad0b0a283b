"""A stand-in for transformers, where that is not installed: a Trainer with the hooks that `CodedTrainer` takes, called as the
real one calls them, and a model whose loss is a mean over tokens. It shows what this package does with them, no more.
"""

import contextlib
import importlib.util
import sys
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader


class TrainingArguments(SimpleNamespace):
    def __init__(self, **values):
        usual = {"batch": 6, "epochs": 2, "gradient_accumulation_steps": 1, "fp16": False, "bf16": False, "past_index": -1}
        more = {"world_size": 1, "n_gpu": 0, "device": torch.device("cpu"), "average_tokens_across_devices": True}
        super().__init__(**(usual | more | values))


class Trainer:
    def __init__(self, model, args, train_dataset, data_collator, compute_loss_func=None):
        self.model, self.args, self.train_dataset, self.data_collator = model, args, train_dataset, data_collator
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration

        self.compute_loss_func, self.label_smoother = compute_loss_func, None
        self.model_accepts_loss_kwargs = getattr(model, "counts", True)
        self.accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
        self.optimizer, self.losses = torch.optim.SGD(model.parameters(), lr=0.5), []

    def get_train_dataloader(self):
        loader = DataLoader(self.train_dataset, batch_size=self.args.batch, shuffle=True, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)

    def get_batch_samples(self, iterator, count):
        batches = [next(iterator) for _ in range(count)]
        counted = "labels" in batches[0] and self.model_accepts_loss_kwargs
        return batches, sum(batch["labels"].ne(-100).sum() for batch in batches) if counted else None

    def train(self, resume_from_checkpoint=None):
        loader, model = self.get_train_dataloader(), self.accelerator.prepare(self.model)
        for epoch in range(self.args.epochs):
            loader.set_epoch(epoch)
            batches = iter(loader)
            for _ in range(len(loader)):
                (inputs,), items = self.get_batch_samples(batches, 1)
                self.losses.append(float(self.training_step(model, inputs, items)))
                self.floating_point_ops(inputs)
                self.optimizer.step()
                model.zero_grad()
        return len(self.losses)

    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        more = {} if num_items_in_batch is None else {"num_items_in_batch": num_items_in_batch}
        outputs = model(**inputs, **more)
        loss = outputs["loss"] * (self.accelerator.num_processes if self.args.average_tokens_across_devices else 1)
        return (loss, outputs) if return_outputs else loss

    def floating_point_ops(self, inputs):
        return inputs["input_ids"].numel()


class Tagger(nn.Module):
    """A mean over the labels that count, or over `num_items_in_batch`."""

    counts = True

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.say = nn.Embedding(9, 6), nn.Linear(6, 9)

    def forward(self, input_ids, labels, num_items_in_batch=None):
        logits = self.say(self.embed(input_ids)).flatten(0, 1)
        total = nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum")
        return {"loss": total / (labels.ne(-100).sum() if num_items_in_batch is None else num_items_in_batch)}


def collate(rows):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
    return {"input_ids": ids.clamp(min=0), "labels": ids}


def rows():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 9, (2 + row % 5,), generator=generator) for row in range(22)]


@contextlib.contextmanager
def installed(patch):
    """This module as `transformers`."""
    patch.setitem(sys.modules, "transformers", SimpleNamespace(Trainer=Trainer))
    patch.delitem(sys.modules, "unstraggle.torch.trainer", raising=False)
    yield
    sys.modules.pop("unstraggle.torch.trainer", None)


def unless_there(patch):
    """The same where transformers is not installed, for tests of all public names."""
    return installed(patch) if importlib.util.find_spec("transformers") is None else contextlib.nullcontext()
