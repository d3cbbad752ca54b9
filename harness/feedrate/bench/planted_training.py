"""A training script whose costs are planted and that keeps a clock of its own; ``feedrate run`` knows nothing of it.

What it prints at its end (one line of JSON) is what feedrate's report is held against: the seconds of each step and
those of them that it waited for its batch. The hot line takes ``HOT_SHARE`` of a sample's preparation.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

HOT_SHARE = 0.75


def spin(seconds: float) -> None:
    """Compute for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Samples(Dataset[torch.Tensor]):
    """Samples that cost so many milliseconds, of which one line takes three quarters."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def __len__(self) -> int:
        return int(self.options.steps * self.options.batch)

    def __getitem__(self, index: int) -> torch.Tensor:
        seconds = self.options.sample_ms / 1000
        if self.options.shape == "heavy":
            seconds *= random.Random(index).lognormvariate(-0.5, 1.0)
        if self.options.computes:
            spin((1 - HOT_SHARE) * seconds)
            spin(HOT_SHARE * seconds)  # the hot line
        else:
            time.sleep((1 - HOT_SHARE) * seconds)
            time.sleep(HOT_SHARE * seconds)  # the hot line
        return torch.full((16,), float(index))


class Stream(IterableDataset[torch.Tensor]):
    """The same samples without an index."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for index in range(first, len(self.samples), step):
            yield self.samples[index]


def main() -> None:
    """Train, and print what the script's own clock says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--method", default=None)
    parser.add_argument("--kind", choices=("map", "iterable"), default="map")
    parser.add_argument("--shape", choices=("constant", "heavy"), default="constant")
    parser.add_argument("--computes", action="store_true")
    parser.add_argument("--sample-ms", type=float, default=1.0)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    samples = Samples(options)
    loader = DataLoader(
        samples if options.kind == "map" else Stream(samples),
        batch_size=options.batch,
        num_workers=options.workers,
        prefetch_factor=options.prefetch if options.workers else None,
        multiprocessing_context=options.method if options.workers else None,
    )
    weight = torch.nn.Parameter(torch.zeros(16))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    asked, waits, walls = time.perf_counter(), [], []
    for batch in loader:
        got = time.perf_counter()
        optimizer.zero_grad()
        (batch @ weight).sum().backward()
        optimizer.step()
        time.sleep(max(0.0, options.step_ms / 1000 - (time.perf_counter() - got)))
        done = time.perf_counter()
        waits.append(got - asked)
        walls.append(done - asked)
        asked = done
    sys.stdout.write(json.dumps({"waits": waits, "walls": walls, "weight": float(weight.detach().sum())}) + "\n")


if __name__ == "__main__":
    main()
