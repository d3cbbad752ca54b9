"""timm's loader that keeps one iterator for all epochs, with its PrefetchLoader, and a model of timm's."""

import time
from pathlib import Path

import timm
import torch
from images import make
from timm.data import ImageDataset, create_loader


class Slow(ImageDataset):
    def __getitem__(self, index):
        time.sleep(0.008)  # planted
        return super().__getitem__(index)


def main(folder: Path) -> list[list[float]]:
    torch.manual_seed(0)
    make(folder, 320, "train")
    make(folder, 32, "valid")
    options = {"input_size": (3, 64, 64), "device": torch.device("cpu"), "use_multi_epochs_loader": True}
    images = Slow(str(folder / "train"))
    train = create_loader(images, batch_size=8, is_training=True, num_workers=2, **options)  # training
    images = ImageDataset(str(folder / "valid"))
    valid = create_loader(images, batch_size=16, num_workers=1, **options)
    model = timm.create_model("test_resnet", num_classes=4)
    clock = []
    for _ in range(2):
        model.train()
        clock.append([time.perf_counter()])
        for images, labels in train:
            clock[-1].append(time.perf_counter())
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            model.zero_grad()
            loss.backward()
            clock[-1].append(time.perf_counter())
        model.eval()
        with torch.inference_mode():
            for images, _ in valid:
                model(images)
    return clock
