"""Scripts after what people report as a slow training: each costs time in few places, and keeps a clock of its own.

A place is marked ``# here: ROW``. What the clock counted is written beside the script: when it began and ended, and
seconds by row of the account, or by several that a clock within the script cannot tell apart.
"""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """A script, and what the report must say."""

    cause: str
    """What ``causes`` calls the reason."""
    script: str


COMMON = """
import collections, contextlib, gc, io, json, queue, threading, time
import torch
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
torch.set_num_threads(1)
now = time.perf_counter
clock = collections.Counter()

@contextlib.contextmanager
def timed(rows):
    begun = now()
    yield
    clock[rows] += now() - begun

class Cheap(Dataset):
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return torch.full((8,), float(index % 7))

net = torch.nn.Linear(8, 1)

def step(batch):
    loss = net(batch).pow(2).mean()
    loss.backward()
    for weight in net.parameters():
        weight.data -= 1e-4 * weight.grad
        weight.grad = None
    return loss

begun_ns = time.perf_counter_ns()
"""
"""No optimizer: PyTorch imports its compiler for the first of them, which takes as long as all else."""
REPORTS = {
    # meta-pytorch/torchtune#522: saving between steps, and the loader is blamed;
    # thuml/Time-Series-Library#324: validation by single samples takes longer than training;
    # kohya-ss/sd-scripts#120: the data set is built anew in every epoch;
    # EugenHotaj/pytorch-generative#10: a metric over all that was seen, in every step;
    # pytorch/pytorch#61947: Python looks for garbage among millions of objects
    "beside the steps": Reported(
        "evaluation",
        """
gc.disable()
kept = [[number] for number in range(300_000)]
# Checkpoints go to memory, as a disk may be slow today.
state, history = {"weights": torch.randn(2_000_000)}, []
check = DataLoader(Cheap(4000), 1)

def built():
    table = [[float(column * row % 11) for column in range(8)] for row in range(2_500)]
    samples = torch.tensor(table * 10)[:256]  # here: between_epochs
    return DataLoader(samples, 8)

loader = built()
for epoch in range(8):
    for count, batch in enumerate(loader):
        history.append(step(batch).detach())
        with timed("between_steps"):
            means = [sum(loss.item() for loss in history) / len(history) for _ in range(32)]  # here: between_steps
        if count % 2:
            with timed("checkpoint"):
                torch.save(state, io.BytesIO())  # here: checkpoint
        if count == 31 and epoch % 4 == 0:
            with timed("garbage"):
                gc.collect()
    with timed("evaluation"), torch.no_grad():
        for batch in check:
            net(batch).pow(2).mean().item()
    if epoch < 7:  # behind the last pass it would be of the end
        with timed("between_epochs"):
            loader = built()
""",
    ),
    # pytorch/pytorch#32221, #50689: millions of indices are drawn for an epoch of a few batches
    "sampler": Reported(
        "sampler",
        """
class Timed(WeightedRandomSampler):
    def __iter__(self):
        with timed("sampler"):
            indices = super().__iter__()
            first = next(indices)
        yield first
        yield from indices

N = 1_000_000
loader = DataLoader(Cheap(N), 64, sampler=Timed(torch.ones(N), N), num_workers=1)
for epoch in range(4):
    for count, batch in enumerate(loader):
        step(batch)
        if count == 9:
            break
""",
    ),
    # pytorch/pytorch#139792: workers are spawned, and the data set is pickled for each;
    # discuss.pytorch.org/t/10541: what decodes is slow
    "spawn": Reported(
        "starting",
        """
class Listed(Cheap):
    def __init__(self):
        super().__init__(400)
        self.items = [{"path": f"{number:08d}.jpg", "boxes": [number, number + 1]} for number in range(60_000)]
    def __getitem__(self, index):
        time.sleep(0.002)  # here: waiting
        return super().__getitem__(index)

if __name__ == "__main__":
    loader = DataLoader(Listed(), 8, num_workers=1, multiprocessing_context="spawn")
    asked = now()
    for count, batch in enumerate(loader):  # here: starting
        clock["waiting receiving" if count else "starting"] += now() - asked
        step(batch)
        asked = now()
    clock["starting"] += now() - asked  # workers stop
""",
    ),
    # pytorch/pytorch#22866: a batch of very many small tensors
    "many tensors": Reported(
        "receiving",
        """
class Many(Cheap):
    def __getitem__(self, index):
        return [torch.zeros(1) for _ in range(60)]

asked = now()
for batch in DataLoader(Many(80), 4, num_workers=1, collate_fn=list, prefetch_factor=2):
    clock["receiving waiting starting sampler garbage"] += now() - asked
    step(torch.ones(4, 8))
    asked = now()
""",
    ),
    # JDAI-CV/fast-reid#456: a thread takes the batches, and the training waits for it
    "thread": Reported(
        "reading",
        """
class Slow(Cheap):
    def __getitem__(self, index):
        time.sleep(0.04)  # here: waiting
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

background = Background(iter(DataLoader(Slow(160), 4, num_workers=2)))
asked = now()
while (batch := background.queue.get()) is not None:  # what follows the last batch is the shut-down
    clock["waiting starting"] += now() - asked
    step(batch)
    time.sleep(0.005)
    asked = now()
""",
    ),
    # pytorch/pytorch#13018: each read of a network file system takes a moment;
    # eriklindernoren/PyTorch-GAN#122: of two loaders that are zipped one is slow, here the first
    "two loaders": Reported(
        "reading",
        """
class Remote(Cheap):
    def __getitem__(self, index):
        time.sleep(0.04)  # here: waiting
        return torch.ones(8)

first, second = DataLoader(Remote(112), 4, num_workers=1), DataLoader(Cheap(112), 4, num_workers=1)
asked = now()
for count, (left, right) in enumerate(zip(first, second)):
    clock["waiting receiving"] += now() - asked if count else 0
    step(left + right)
    asked = now()
""",
    ),
}
END = """
if __name__ == "__main__":
    with open(__file__ + ".json", "w") as file:
        json.dump([begun_ns, time.perf_counter_ns(), clock], file)
"""
TOGETHER = "import runpy, sys; [runpy.run_path(path, run_name='__main__') for path in sys.argv[1:]]"
"""Runs scripts one after the other: PyTorch takes longer to import than some of them. The last may leave garbage."""
