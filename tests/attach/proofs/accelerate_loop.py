"""A loop of one's own with Hugging Face's Accelerate, evaluated behind each epoch: python accelerate_loop.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from images import Images, make
from torch import nn
from torch.utils.data import DataLoader


class Slow(Images):
    def __getitem__(self, index):
        time.sleep(0.004)  # planted
        return super().__getitem__(index)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make(folder, 400)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 31 * 31, 4))
    train, valid = (DataLoader(of(folder), batch_size=8, shuffle=True, num_workers=1) for of in (Slow, Images))
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)  # training
    clock = []
    for _ in range(2):
        clock.append([time.perf_counter()])
        for images, labels in train:
            clock[-1].append(time.perf_counter())
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            clock[-1].append(time.perf_counter())
        with torch.no_grad():
            right = sum((model(images).argmax(1) == labels).sum().item() for images, labels in valid)
    print(f"loss {loss.item():.6f}, {right} right")
    (folder / "clock-0.json").write_text(json.dumps(clock))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
