"""Lightning's CombinedLoader over a slow loader and a fast one that is shorter: python combined_loader.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import torch
from images import Images, make
from lightning.pytorch.utilities import CombinedLoader
from torch import nn
from torch.utils.data import DataLoader, Subset


class Slow(Images):
    def __getitem__(self, index):
        time.sleep(0.004)  # planted
        return super().__getitem__(index)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make(folder, 400)
    labelled = DataLoader(Slow(folder), batch_size=8, shuffle=True, num_workers=1)  # training
    part = Subset(Images(folder), range(80))
    others = DataLoader(part, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 31 * 31, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    clock = []
    for _ in range(2):
        clock.append([time.perf_counter()])
        for batches, _, _ in CombinedLoader([labelled, others], "max_size_cycle"):
            clock[-1].append(time.perf_counter())
            loss = sum(nn.functional.cross_entropy(model(images), labels) for images, labels in batches)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock[-1].append(time.perf_counter())
    print(f"loss {loss.item():.6f}")
    (folder / "clock-0.json").write_text(json.dumps(clock))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
