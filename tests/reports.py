"""Scripts after what people report as a slow training: each costs time in one place, and keeps a clock of its own.

The place is marked ``# here``; what the clock counted is printed as seconds. The reports are named by their threads.
"""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """A script, and what is true of it."""

    source: str
    """Where such a training is reported."""
    row: str
    """Of the account, which takes most of what could go."""
    reason: str
    """What ``causes`` calls it."""
    script: str
    line: bool = True
    """Whether the marked line is what the report must name."""
    clocked: tuple[str, ...] = ()
    """Rows that the script's clock cannot tell from it."""


COMMON = """
import json, queue, threading, time
import torch
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
torch.set_num_threads(1)
now = time.perf_counter
spent = 0.0

class Cheap(Dataset):
    def __init__(self, length, cost_s=0.0):
        self.length, self.cost_s = length, cost_s
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        if self.cost_s:
            time.sleep(self.cost_s)
        return torch.full((8,), float(index % 7))

net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), 1e-4)

def step(batch):
    loss = net(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
END = """
print(json.dumps(spent))
"""
REPORTS = {
    "sampler": Reported(
        "pytorch/pytorch#32221, #50689: millions of indices are drawn for an epoch of a few batches",
        "sampler",
        "sampler",
        """
N = 1_000_000
loader = DataLoader(Cheap(N), 64, sampler=WeightedRandomSampler(torch.ones(N), N), num_workers=1)
for epoch in range(5):
    asked = now()
    for count, batch in enumerate(loader):
        spent += now() - asked if not count else 0
        step(batch)
        if count == 9:
            break
""",
        line=False,
    ),
    "spawn": Reported(
        "pytorch/pytorch#139792: workers are spawned in every epoch, and the data set is pickled for each",
        "starting",
        "starting",
        """
class Listed(Cheap):
    def __init__(self):
        super().__init__(64)
        self.items = [{"path": f"{number:08d}.jpg", "boxes": [number, number + 1]} for number in range(60_000)]

def main():
    global spent
    loader = DataLoader(Listed(), 8, num_workers=1, multiprocessing_context="spawn")
    for epoch in range(2):
        asked = now()
        for count, batch in enumerate(loader):  # here
            spent += now() - asked if count in (0, 8) else 0
            step(batch)
            asked = now()
        spent += now() - asked  # workers stop
    print(json.dumps(spent))

if __name__ == "__main__":
    main()
""",
    ),
    "many tensors": Reported(
        "pytorch/pytorch#22866: a batch of very many small tensors",
        "receiving",
        "receiving",
        """
class Many(Cheap):
    def __getitem__(self, index):
        return [torch.zeros(1) for _ in range(60)]

loader = DataLoader(Many(200), 4, num_workers=1, collate_fn=list, prefetch_factor=2)
asked = now()
for batch in loader:
    spent += now() - asked
    step(torch.ones(4, 8))
    asked = now()
""",
        line=False,
        clocked=("waiting", "starting", "sampler", "garbage"),
    ),
    "thread": Reported(
        "JDAI-CV/fast-reid#456: a thread takes the batches, and the training waits for it",
        "waiting",
        "reading",
        """
class Slow(Cheap):
    def __getitem__(self, index):
        time.sleep(0.02)  # here
        return torch.ones(8)

class Background(threading.Thread):
    def __init__(self, batches):
        super().__init__(daemon=True)
        self.batches, self.queue = batches, queue.Queue(2)
        self.start()
    def run(self):
        for batch in self.batches:
            self.queue.put(batch)
        self.queue.put(None)

background = Background(iter(DataLoader(Slow(300), 4, num_workers=2)))
while True:
    asked = now()
    batch = background.queue.get()
    spent += now() - asked
    if batch is None:
        break
    step(batch)
    time.sleep(0.005)
""",
    ),
    "garbage": Reported(
        "pytorch/pytorch#61947: Python looks for garbage among millions of objects",
        "garbage",
        "garbage",
        """
import gc
kept = [[number] for number in range(300_000)]
for batch in DataLoader(Cheap(320), 8):
    step(batch)
    begun = now()
    gc.collect()
    spent += now() - begun
""",
        line=False,
    ),
    "two loaders": Reported(
        "eriklindernoren/PyTorch-GAN#122: the second of two loaders that are zipped is slow",
        "waiting",
        "reading",
        """
class Remote(Cheap):
    def __getitem__(self, index):
        time.sleep(0.02)  # here
        return torch.ones(8)

first, second = DataLoader(Cheap(160), 4, num_workers=1), DataLoader(Remote(160), 4, num_workers=1)
asked = now()
for count, (left, right) in enumerate(zip(first, second)):
    spent += now() - asked if count else 0
    step(left + right)
    asked = now()
""",
    ),
}
