"""Hugging Face's Trainer on a small BERT, evaluated every 25 steps: python hf_trainer.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

WORDS, LENGTH = 200, 32


class Texts(Dataset):
    def __init__(self, sleep_s: float) -> None:
        self.sleep_s = sleep_s

    def __len__(self):
        return 320

    def __getitem__(self, index):
        time.sleep(self.sleep_s)  # planted
        words = [(index + place) % WORDS for place in range(LENGTH)]
        return {"input_ids": words, "attention_mask": [1] * LENGTH, "labels": index % 2}


class Clock(TrainerCallback):
    def __init__(self) -> None:
        self.stretches = []

    def on_epoch_begin(self, *_, **__):
        self.stretches.append([time.perf_counter()])

    on_evaluate = on_epoch_begin

    def on_step_begin(self, *_, **__):
        self.stretches[-1].append(time.perf_counter())

    on_step_end = on_step_begin


def main(folder: Path) -> None:
    torch.set_num_threads(1)
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
        train_dataset=Texts(0.004),
        eval_dataset=Texts(0),
        callbacks=[clock],
    )
    trainer.train()  # training
    (folder / "clock-0.json").write_text(json.dumps(clock.stretches))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
