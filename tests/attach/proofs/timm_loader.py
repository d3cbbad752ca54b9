"""timm's loader, with its PrefetchLoader, and a model of timm's: python timm_loader.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from timm.data import ImageDataset, create_loader
from timm.optim import create_optimizer_v2


class Slow(ImageDataset):
    def __getitem__(self, index):
        time.sleep(0.008)  # planted
        return super().__getitem__(index)


def make(folder: Path, count: int) -> None:
    """Write JPEGs of random pixels to ``FOLDER/KIND/NUMBER.jpg``."""
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / str(number % 4) / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (64, 64, 3), np.uint8)).save(path)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    make(folder / "train", 320)
    make(folder / "valid", 96)
    # Its iterators are made once, and never end.
    options = {"input_size": (3, 64, 64), "device": torch.device("cpu"), "use_multi_epochs_loader": True}
    images = Slow(str(folder / "train"))
    train = create_loader(images, batch_size=8, is_training=True, num_workers=2, **options)  # training
    valid = create_loader(ImageDataset(str(folder / "valid")), batch_size=16, num_workers=1, **options)
    model = timm.create_model("test_resnet", num_classes=4)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    clock = []
    for _ in range(2):
        model.train()
        clock.append([time.perf_counter()])
        for images, labels in train:
            clock[-1].append(time.perf_counter())
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock[-1].append(time.perf_counter())
        model.eval()
        with torch.inference_mode():
            for images, _ in valid:
                model(images)
    (folder / "clock-0.json").write_text(json.dumps(clock))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
