"""A language model with the Trainer of Hugging Face transformers, on token lists of different lengths. Needs transformers."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

WORDS = 24


def samples(count=32):
    generator = torch.Generator().manual_seed(0)
    for row in range(count):
        yield {"input_ids": torch.randint(0, WORDS, (4 + row % 5,), generator=generator)}


def collate(rows):
    """Padded to the longest; padding has no label."""
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True, padding_value=-100)
    return {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long(), "labels": ids}


class Remember(TrainerCallback):
    def __init__(self):
        self.losses = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.losses += [logs["loss"]] if "loss" in logs else []


def main(folder="out/trainer", epochs=2):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=WORDS, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model, remember = GPT2LMHeadModel(config), Remember()
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=8,
        num_train_epochs=epochs,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=list(samples()),
        data_collator=collate,
        callbacks=[remember],
    )
    trainer.train()
    return remember.losses, model


if __name__ == "__main__":
    main()
