"""Two ranks: torchrun --standalone --nproc-per-node 2 ddp.py FOLDER."""

import json
import sys
import time
from pathlib import Path

import torch
from images import Images, make
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler


class Slow(Images):
    def __getitem__(self, index):
        time.sleep(0.004)  # planted
        return super().__getitem__(index)


def main(folder: Path) -> None:
    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = distributed.get_rank()
    if rank == 0:
        make(folder, 640)
    distributed.barrier()
    data = Slow(folder)
    sampler = DistributedSampler(data)
    train = DataLoader(data, batch_size=8, sampler=sampler, num_workers=1)  # training
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 31 * 31, 4))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    clock = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        clock.append([time.perf_counter()])
        for images, labels in train:
            clock[-1].append(time.perf_counter())
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            clock[-1].append(time.perf_counter())
    if rank == 0:
        print(f"loss {loss.item():.6f}")
    (folder / f"clock-{rank}.json").write_text(json.dumps(clock))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
