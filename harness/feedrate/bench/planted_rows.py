"""A training script whose time goes where it is told, and that keeps a clock; feedrate knows nothing of it.

``--plan`` maps rows of feedrate's account to milliseconds, of a step or of an epoch. What it writes at its end (one
object of JSON) are the seconds of its loops, those of each planted row, and those of the row's planted line, which ends
with ``# ROW``. To compute is to hash so many times as ``--per-ms`` says take a millisecond.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import pbkdf2_hmac
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

TENSORS = 10
"""Of a batch, for each millisecond of receiving: a fixed cost, whatever their size."""
OBJECTS, COLLECTED = 1000, 8
"""For each millisecond of garbage collection; how often Python looks for it, an epoch."""
rows: defaultdict[str, float] = defaultdict(float)
lines: defaultdict[str, float] = defaultdict(float)
compute = partial(pbkdf2_hmac, "sha256", b"", b"")
options = argparse.Namespace()
cost: dict[str, Callable[[], object]] = dict.fromkeys(
    (
        *("sampler", "waiting", "here", "forward", "backward", "optimizer", "between_steps"),
        *("starting", "evaluation", "checkpoint", "between_epochs"),
    ),
    int,
)
"""Row to what spends its time."""


@contextmanager
def clock(seconds: defaultdict[str, float], row: str) -> Iterator[None]:
    """Add what passes to a row's seconds."""
    begun = time.perf_counter()
    yield
    seconds[row] += time.perf_counter() - begun


def plant() -> None:
    """Have every row cost what is planted in it; what is called is no function of Python, so that its line is seen."""
    parts = dict.fromkeys(("waiting", "here", "sampler"), options.batch) | {"evaluation": 2}
    for row, planted in options.plan.items():
        ms = planted / parts.get(row, 1)
        cost[row] = partial(compute, int(ms * options.per_ms)) if options.computes else partial(time.sleep, ms / 1000)


class Samples(Dataset[torch.Tensor]):
    """Samples that cost what is planted for those who prepare them."""

    begun = 0.0
    """When the batch began that is being prepared."""

    def __len__(self) -> int:
        return int(options.steps * options.batch)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.begun = self.begun or time.perf_counter()
        with clock(lines, "here"):
            _ = cost["waiting"](), cost["here"]()  # waiting here
        return torch.full((16,), float(index % 5))

    def collate(self, samples: list[torch.Tensor]) -> tuple[list[torch.Tensor], float, float]:
        """Put samples together; beside them many small tensors, which take long to receive.

        Behind these the seconds that preparing the batch took, and those of its planted line: workers cannot add to
        the clock of the training process.
        """
        count = int(TENSORS * options.plan.get("receiving", 0))
        batch = [torch.stack(samples), *(torch.full((8,), float(one)) for one in range(count))]
        begun, self.begun = self.begun, 0.0
        return batch, time.perf_counter() - begun, lines.pop("here")


class Indices(Sampler[int]):
    """Indices in a random order, which are drawn in the training process."""

    def __len__(self) -> int:
        return int(options.steps * options.batch)

    def __iter__(self) -> Iterator[int]:
        for index in random.Random(0).sample(range(len(self)), len(self)):
            with clock(rows, "sampler"), clock(lines, "sampler"):
                cost["sampler"]()  # sampler
            yield index


class Costly(torch.autograd.Function):
    """A function whose forward and backward pass cost what is planted."""

    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        """Copy values."""
        with clock(lines, "forward"):
            cost["forward"]()  # forward
        return values * 1

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Hand the gradient on."""
        with clock(lines, "backward"):
            cost["backward"]()  # backward
        return gradient


class Slow(torch.optim.SGD):
    """An optimizer that costs what is planted."""

    def step(self, closure: Any = None) -> Any:
        """Step as ever."""
        with clock(lines, "optimizer"):
            cost["optimizer"]()  # optimizer
        return super().step(closure)


class Disk(io.BytesIO):
    """A file that is slow to write: once a checkpoint."""

    slow = True

    def write(self, data: Any) -> int:
        """Keep it."""
        if self.slow:
            self.slow = False
            with clock(lines, "checkpoint"):
                cost["checkpoint"]()  # checkpoint
        return super().write(data)


def start(_: int) -> None:
    """What a worker does as it starts."""
    cost["starting"]()


def train() -> float:
    """Train for some epochs, and give the seconds of the loops."""
    net = torch.nn.Linear(16, 1)
    optimizer = Slow(net.parameters(), 1e-4)
    workers = {"num_workers": options.workers, "worker_init_fn": start} if options.workers else {}
    samples = Samples()
    loader = DataLoader(samples, options.batch, sampler=Indices(), collate_fn=samples.collate, **workers)
    validation = torch.utils.data.TensorDataset(torch.zeros(64, 16))
    garbage: list[list[Any]] = [[] for _ in range(int(OBJECTS * options.plan.get("garbage", 0)))]
    begun = time.perf_counter()
    for number in range(options.epochs):
        epoch(loader, net, optimizer)
        if "evaluation" in options.plan:
            with clock(rows, "evaluation"):
                for (images,) in DataLoader(validation, 32):
                    net(images)
                    with clock(lines, "evaluation"):
                        cost["evaluation"]()  # evaluation
        if "checkpoint" in options.plan:
            with clock(rows, "checkpoint"):
                torch.save(net.state_dict(), Disk())
        if number == options.epochs - 1:  # what follows the last loop is no part of the training
            break
        if garbage:
            with clock(rows, "garbage"):
                for _ in range(COLLECTED):
                    gc.collect()
        if "between_epochs" in options.plan:
            with clock(rows, "between_epochs"), clock(lines, "between_epochs"):
                cost["between_epochs"]()  # between_epochs
    return time.perf_counter() - begun


def epoch(loader: DataLoader[Any], net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train for one."""
    drawn = rows["sampler"]
    asked, first = time.perf_counter(), True
    for batch, prepared, line in loader:
        rows["prepared"] += prepared
        lines["here"] += line
        lines["waiting"] += line
        got = time.perf_counter()
        # The sampler runs within the loader; the first batch of workers is their start.
        spent, drawn = got - asked - (rows["sampler"] - drawn), rows["sampler"]
        rows["starting" if first else "waiting"] += spent
        first = False
        loss = Costly.apply(net(batch[0])).pow(2).mean()
        optimizer.zero_grad()
        done = time.perf_counter()
        rows["forward"] += done - got
        with clock(rows, "backward"):
            loss.backward()
        with clock(rows, "optimizer"):
            optimizer.step()
        with clock(rows, "between_steps"):
            with clock(lines, "between_steps"):
                cost["between_steps"]()  # between_steps
            del batch  # else its tensors go while the next batch comes
        asked = time.perf_counter()
    rows["starting"] += time.perf_counter() - asked


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=json.loads, default={})
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--per-ms", type=int, default=4000)
    parser.add_argument("--computes", action="store_true")
    parser.add_argument("--out", type=argparse.FileType("w"), default="-")
    parser.parse_args(namespace=options)
    torch.set_num_threads(1)
    # Else each tensor of a batch holds a file open.
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    plant()
    seconds = train()
    json.dump({"loops": seconds, "rows": rows, "lines": lines}, options.out)
