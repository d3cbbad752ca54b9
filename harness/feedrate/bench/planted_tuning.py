"""A workload whose costs are planted, as tuners take one; started by itself it measures what settings truly take.

``FEEDRATE_PLANTED`` holds the costs (an object of JSON). ``make`` gives loader and step to ``feedrate tune``,
``get_workload`` gives the same to loadtune. Epochs are so long that their starts do not count.

Started by itself it reads from its standard input which settings to measure, in how many blocks, and for how long each.
Every block runs every setting once, in a random order: a window opens once the prefetched stock is consumed and closes
on a round of the workers. Seconds a step come out, a list a setting.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from hashlib import pbkdf2_hmac
from importlib import import_module
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

COSTS: dict[str, Any] = {
    "batch": 8,
    "read_ms": 0.0,
    "decode_ms": 0.0,
    "collate_ms": 0.0,
    "tail": 0.0,
    "step_ms": 5.0,
    "step_computes": False,
    "num_workers": 0,
    "per_ms": 4000,
} | json.loads(os.environ.get("FEEDRATE_PLANTED", "{}"))
"""Of a sample, a batch and a step; ``tail``: how much samples differ (log sd), ``num_workers``: at present."""
SAMPLES = 200_000
WARM_STEPS, LEAST_STEPS = 5, 12
compute = partial(pbkdf2_hmac, "sha256", b"", b"")


def busy(ms: float) -> None:
    """Compute for so many milliseconds of a free core."""
    if ms:
        compute(1 + int(ms * COSTS["per_ms"]))


class Samples(Dataset[torch.Tensor]):
    """Samples that are read (sleep) and decoded (compute)."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        tail = COSTS["tail"]
        times = random.Random(index).lognormvariate(-(tail**2) / 2, tail) if tail else 1.0
        if COSTS["read_ms"]:
            time.sleep(COSTS["read_ms"] * times / 1000)
        busy(COSTS["decode_ms"] * times)
        return torch.full((256,), float(index))


def collate(samples: list[torch.Tensor]) -> Any:
    """Put a batch together, at a cost."""
    busy(COSTS["collate_ms"])
    return default_collate(samples)


def step(_: Any) -> None:
    """Train on a batch: sleep or compute."""
    if COSTS["step_computes"]:
        busy(COSTS["step_ms"])
    else:
        time.sleep(COSTS["step_ms"] / 1000)


def loader(num_workers: int, prefetch_factor: int | None) -> DataLoader[torch.Tensor]:
    """The loader with some settings."""
    return DataLoader(
        Samples(),
        batch_size=COSTS["batch"],
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
    )


def make() -> tuple[DataLoader[torch.Tensor], Callable[[Any], None]]:
    """What ``feedrate tune`` takes."""
    return loader(COSTS["num_workers"], 2 if COSTS["num_workers"] else None), step


def get_workload() -> Any:
    """What loadtune takes."""

    def train_step(_model: Any, _optimizer: Any, batch: Any, _device: Any) -> float:
        step(batch)
        return 0.0

    return import_module("loadtune").Workload(
        name="planted",
        make_dataset=Samples,
        make_model=lambda: torch.nn.Linear(1, 1),
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        train_step=train_step,
        default_batch_size=COSTS["batch"],
        collate_fn=collate,
    )


def window(num_workers: int, prefetch_factor: int | None, seconds: float) -> float:
    """Seconds that a step takes with some settings."""
    batches, turn = iter(loader(num_workers, prefetch_factor)), max(1, num_workers)

    def go_on() -> None:
        step(next(batches))

    for _ in range(max(WARM_STEPS, num_workers * ((prefetch_factor or 0) + 1))):
        go_on()
    begun, steps = time.perf_counter(), 0
    while steps % turn or steps < LEAST_STEPS or time.perf_counter() - begun < seconds:
        go_on()
        steps += 1
    return (time.perf_counter() - begun) / steps


def main() -> None:
    """Measure what is asked for."""
    torch.set_num_threads(1)
    asked = json.load(sys.stdin)
    taken: list[list[float]] = [[] for _ in asked["settings"]]
    for block in range(asked["blocks"]):
        order = list(range(len(taken)))
        random.Random(block).shuffle(order)
        for place in order:
            workers, prefetch = asked["settings"][place]
            taken[place].append(window(workers, prefetch, asked["seconds"]))
    json.dump(taken, sys.stdout)


if __name__ == "__main__":
    main()
