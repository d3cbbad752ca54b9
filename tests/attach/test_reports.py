"""What people report as a slow training is blamed on the right place.

Each script costs time in one place, marked ``# here``, and prints the seconds that its own clock counted there.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from feedrate.attach import run
from feedrate.bench import accounted

pytestmark = pytest.mark.slow


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
    def __init__(self, length):
        self.length = length
    def __len__(self):
        return self.length
    def __getitem__(self, index):
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
for epoch in range(3):
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
        self.items = [{"path": f"{number:08d}.jpg", "boxes": [number, number + 1]} for number in range(20_000)]

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
for batch in DataLoader(Cheap(160), 8):
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


@pytest.mark.parametrize("name", REPORTS)
def test_the_time_is_blamed_on_the_place_that_costs_it(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The largest row that could go and its line are the true ones, as long as the script's clock says."""
    expected = REPORTS[name]
    script = tmp_path / "train.py"
    script.write_text(COMMON + expected.script + ("" if "__main__" in expected.script else END))
    ended = run.run([sys.executable, str(script)])
    out, err = capfd.readouterr()
    assert ended.returncode == 0, err
    account, cause, lines = ended.report.account, ended.report.cause, ended.report.lines
    assert account is not None
    assert cause is not None
    assert sum(account.rows.values()) == pytest.approx(account.wall_ns, rel=0.01)
    assert abs(account.rows.get("rest", 0)) < 0.01 * account.wall_ns
    assert (cause.row, cause.name) == (expected.row, expected.reason), account
    clocked = sum(account.rows.get(row, 0) for row in (expected.row, *expected.clocked))
    assert clocked / account.wall_ns == pytest.approx(1e9 * json.loads(out) / account.wall_ns, abs=0.04), account
    if expected.line:
        hottest = lines[expected.row][0]
        assert (Path(hottest.file), hottest.code[-6:]) == (script, "# here"), lines


def test_time_in_many_rows_is_told_apart(tmp_path: Path) -> None:
    """What is planted in four rows of one script is in each of them, and on its line."""
    source = Path(shutil.copy(accounted.SOURCE, tmp_path))
    plan = {"between_steps": 6.0, "checkpoint": 300.0, "evaluation": 300.0, "between_epochs": 300.0}
    script = accounted.watch(source, plan, computes=False, steps=150)
    assert script.largest == script.cause == "between_steps"
    assert script.rest_share < 0.01
    for row in script.rows.values():
        assert row.said == pytest.approx(row.truth, abs=0.03)
    assert min(line.said for line in script.lines.values()) > 0.5
