"""Lightning's Trainer with a validation behind each epoch."""

import time
from pathlib import Path

import pytorch_lightning as lightning
import torch
from images import Images, make
from torch import nn
from torch.utils.data import DataLoader


class Slow(Images):
    def __getitem__(self, index):
        time.sleep(0.004)  # planted
        return super().__getitem__(index)


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 31 * 31, 64), nn.ReLU(), nn.Linear(64, 4)
        )

    def training_step(self, batch, _):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        images, labels = batch
        self.log("valid", nn.functional.cross_entropy(self.model(images), labels))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


class Data(lightning.LightningDataModule):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def train_dataloader(self):
        return DataLoader(Slow(self.folder), batch_size=8, shuffle=True, num_workers=1, prefetch_factor=4)  # training

    def val_dataloader(self):
        return DataLoader(Images(self.folder), batch_size=32, num_workers=1)


class Clock(lightning.Callback):
    def __init__(self) -> None:
        self.epochs = []

    def on_train_epoch_start(self, *_):
        self.epochs.append([time.perf_counter()])

    def on_train_batch_start(self, *_):
        self.epochs[-1].append(time.perf_counter())

    on_train_batch_end = on_train_batch_start


def main(folder: Path) -> list[list[float]]:
    lightning.seed_everything(0, verbose=False)
    make(folder, 320)
    clock = Clock()
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        callbacks=[clock],
        enable_progress_bar=False,
    )
    trainer.fit(Classifier(), datamodule=Data(folder))
    return clock.epochs
