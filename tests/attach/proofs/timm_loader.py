"""timm's loader, with its PrefetchLoader, and a model of timm's: python timm_loader.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import timm
import torch
from images import make
from timm.data import ImageDataset, create_loader
from timm.optim import create_optimizer_v2


class Slow(ImageDataset):
    def __getitem__(self, index):
        time.sleep(0.008)  # planted
        return super().__getitem__(index)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make(folder, 320, "train")
    make(folder, 96, "valid")
    options = {"input_size": (3, 64, 64), "device": torch.device("cpu")}
    images = Slow(str(folder / "train"))
    train = create_loader(images, batch_size=8, is_training=True, num_workers=2, **options)  # training
    images = ImageDataset(str(folder / "valid"))
    valid = create_loader(images, batch_size=16, num_workers=1, use_multi_epochs_loader=True, **options)
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
            right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in valid)
        print(f"loss {loss.item():.4f}, {right} right")
    (folder / "clock-0.json").write_text(json.dumps(clock))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
