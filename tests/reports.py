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
import json, os, queue, sys, tempfile, threading, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler
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
    "checkpoint": Reported(
        "meta-pytorch/torchtune#522: saving between steps, and the loader is blamed",
        "checkpoint",
        "checkpoint",
        """
state = {"weights": torch.randn(2_000_000)}
file = tempfile.mktemp()
for count, batch in enumerate(DataLoader(Cheap(1200), 8, num_workers=1)):
    step(batch)
    begun = now()
    torch.save(state, file)  # here
    spent += now() - begun
os.unlink(file)
""",
    ),
    "evaluation": Reported(
        "thuml/Time-Series-Library#324: validation by single samples takes longer than training",
        "evaluation",
        "evaluation",
        """
def loader_of(length, size):
    return DataLoader(Cheap(length), size, num_workers=0)

train, check = loader_of(1600, 8), loader_of(4000, 1)
for epoch in range(4):
    for batch in train:
        step(batch)
    begun = now()
    with torch.no_grad():
        for batch in check:
            net(batch).pow(2).mean().item()  # here
    spent += now() - begun
""",
        line=False,  # loading for it takes as long
    ),
    "recreated": Reported(
        "kohya-ss/sd-scripts#120: the data set is built anew in every epoch",
        "between_epochs",
        "between_epochs",
        """
import gc
gc.disable()

def built():
    table = [[float(column * row % 11) for column in range(8)] for row in range(40_000)]
    samples = torch.tensor(table)[:256]  # here
    return DataLoader(samples, 8, num_workers=0)

for epoch in range(12):
    begun = now()
    loader = built()
    spent += (now() - begun) if epoch else 0  # the first is start-up
    for batch in loader:
        step(batch)
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
        clocked=("starting",),
    ),
    "metrics": Reported(
        "EugenHotaj/pytorch-generative#10: a metric over all that was seen, in every step",
        "between_steps",
        "between_steps",
        """
history = []
for batch in DataLoader(Cheap(2400), 2):
    history.append(step(batch).detach())
    begun = now()
    means = [sum(loss.item() for loss in history) / len(history) for _ in range(8)]  # here
    spent += now() - begun
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
    "no workers": Reported(
        "discuss.pytorch.org/t/10541: everything is decoded in the training process",
        "here",
        "here",
        """
class Decoding(Cheap):
    def __getitem__(self, index):
        return torch.tensor(sum(number % 3 for number in range(20_000))) * torch.ones(8)  # here

asked = now()
for batch in DataLoader(Decoding(400), 4):
    spent += now() - asked
    step(batch)
    asked = now()
""",
    ),
    "storage": Reported(
        "pytorch/pytorch#13018: each read of a network file system takes a moment",
        "waiting",
        "reading",
        """
class Remote(Cheap):
    def __getitem__(self, index):
        time.sleep(0.01)  # here
        return torch.ones(8)

asked = now()
for count, batch in enumerate(DataLoader(Remote(600), 4, num_workers=2)):
    spent += now() - asked if count else 0
    step(batch)
    asked = now()
""",
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
