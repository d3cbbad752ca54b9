"""Hugging Face's Trainer on a small BERT, evaluated every 25 steps."""

import random
import time
from pathlib import Path

from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

WORDS, LENGTH = 200, 32


def make(folder: Path, count: int) -> None:
    """Write texts, a line each: a label, then words that depend on it."""
    chosen = random.Random(0)
    lines = []
    for _ in range(count):
        label = chosen.randrange(2)
        words = " ".join(str(chosen.randrange(2 + 60 * label, WORDS)) for _ in range(chosen.randrange(8, LENGTH)))
        lines.append(f"{label} {words}\n")
    (folder / "texts").write_text("".join(lines))


class Texts(Dataset):
    def __init__(self, folder: Path, sleep_s: float) -> None:
        self.lines, self.sleep_s = (folder / "texts").read_text().splitlines(), sleep_s

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        time.sleep(self.sleep_s)  # planted
        label, *words = map(int, self.lines[index].split())
        words += [0] * (LENGTH - len(words))
        return {"input_ids": words, "attention_mask": [int(word > 0) for word in words], "labels": label}


class Clock(TrainerCallback):
    def __init__(self) -> None:
        self.stretches = []

    def on_epoch_begin(self, *_, **__):
        self.stretches.append([time.perf_counter()])

    on_evaluate = on_epoch_begin

    def on_step_begin(self, *_, **__):
        self.stretches[-1].append(time.perf_counter())

    on_step_end = on_step_begin


def main(folder: Path) -> list[list[float]]:
    set_seed(0)
    make(folder, 320)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=32,
        eval_strategy="steps",
        eval_steps=25,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    clock = Clock()
    trainer = Trainer(
        BertForSequenceClassification(config),
        arguments,
        train_dataset=Texts(folder, 0.004),
        eval_dataset=Texts(folder, 0),
        callbacks=[clock],
    )
    trainer.train()  # training
    return clock.stretches
