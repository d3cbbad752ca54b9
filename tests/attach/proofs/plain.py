"""A plain loop of PyTorch, two epochs with a validation behind each: python plain.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import torch
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
    train = DataLoader(Slow(folder), batch_size=8, shuffle=True, num_workers=2, prefetch_factor=3)  # training
    valid = DataLoader(Images(folder), batch_size=64)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
    )
    model(torch.zeros(1, 3, 64, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    clock = []
    for _ in range(2):
        clock.append([time.perf_counter()])
        for images, labels in train:
            clock[-1].append(time.perf_counter())
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock[-1].append(time.perf_counter())
        with torch.no_grad():
            right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in valid)
        print(f"loss {loss.item():.6f}, {right} of {len(valid.dataset)} right")
    (folder / "clock-0.json").write_text(json.dumps(clock))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
