"""torchdata's StatefulDataLoader, whose state is saved now and then."""

import time
from pathlib import Path

import torch
from images import Images, make
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader


class Slow(Images):
    def __getitem__(self, index):
        time.sleep(0.004)  # planted
        return super().__getitem__(index)


def main(folder: Path) -> list[list[float]]:
    torch.manual_seed(0)
    make(folder, 400)
    train = StatefulDataLoader(Slow(folder), batch_size=8, shuffle=True, num_workers=2)  # training
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 31 * 31, 4))
    clock = []
    for _ in range(2):
        clock.append([time.perf_counter()])
        for step, (images, labels) in enumerate(train):
            clock[-1].append(time.perf_counter())
            loss = nn.functional.cross_entropy(model(images), labels)
            model.zero_grad()
            loss.backward()
            if step % 20 == 19:
                torch.save({"model": model.state_dict(), "loader": train.state_dict()}, folder / "checkpoint.pt")
            clock[-1].append(time.perf_counter())
    return clock
