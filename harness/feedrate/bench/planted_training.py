"""A training script whose costs are planted and that keeps a clock of its own; ``feedrate run`` knows nothing of it.

What it writes at its end, or when SIGTERM ends it, is what feedrate's report is held against, one object of JSON: the
seconds of each step, those of them that it waited for its batch, and when it was done; the seconds that preparing each
batch took, collation included, and those of them in the hot line. To compute is to hash so many times as ``--per-ms``
says take a millisecond.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

HOT_SHARE = 0.75
"""Of a sample's planted cost, the part that its hot line takes."""
sleep: Callable[[float], object] = time.sleep
compute = partial(pbkdf2_hmac, "sha256", b"", b"")


class Samples(Dataset[torch.Tensor]):
    """Samples that cost so many milliseconds, of which one line takes three quarters."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begun, self.hot = 0.0, 0.0
        """Of the batch that is being prepared: when that began, and the seconds in its hot line."""

    def __len__(self) -> int:
        return int(self.options.steps * self.options.batch)

    def __getitem__(self, index: int) -> torch.Tensor:
        self.begun = self.begun or time.perf_counter()
        ms = self.options.sample_ms
        if self.options.shape == "heavy":
            ms *= random.Random(index).lognormvariate(-0.5, 1.0)
        hashes, seconds = self.options.computes * ms * self.options.per_ms, (1 - self.options.computes) * ms / 1000
        _ = seconds and sleep((1 - HOT_SHARE) * seconds), compute(1 + int((1 - HOT_SHARE) * hashes))
        begun = time.perf_counter()
        _ = seconds and sleep(HOT_SHARE * seconds), compute(1 + int(HOT_SHARE * hashes))  # the hot line
        self.hot += time.perf_counter() - begun
        return torch.full((16,), float(index))

    def collate(self, samples: list[torch.Tensor]) -> tuple[Any, float, float]:
        """Put samples together to a batch; beside it the seconds that it took, and those of them in the hot line."""
        batch, begun, hot = default_collate(samples), self.begun, self.hot
        self.begun, self.hot = 0.0, 0.0
        return batch, time.perf_counter() - begun, hot


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
    """Train, and write what the script's own clock says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--method", default=None)
    parser.add_argument("--kind", choices=("map", "iterable"), default="map")
    parser.add_argument("--shape", choices=("constant", "heavy"), default="constant")
    parser.add_argument("--computes", type=float, default=0.0, help="share of a sample's cost that is no sleep")
    parser.add_argument("--sample-ms", type=float, default=1.0)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--step-computes", action="store_true")
    parser.add_argument("--per-ms", type=int, default=4000, help="hashes a millisecond")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--out", type=Path, default="/dev/stdout")
    options = parser.parse_args()
    samples = Samples(options)
    loader = DataLoader(
        samples if options.kind == "map" else Stream(samples),
        batch_size=options.batch,
        num_workers=options.workers,
        prefetch_factor=options.prefetch if options.workers else None,
        multiprocessing_context=options.method if options.workers else None,
        collate_fn=samples.collate,
    )
    weight = torch.nn.Parameter(torch.zeros(16))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    step = (
        partial(compute, int(options.step_ms * options.per_ms))
        if options.step_computes
        else partial(sleep, options.step_ms / 1000)
    )
    rows: list[tuple[float, ...]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    asked = time.perf_counter()
    try:
        for batch, prepared, hot in loader:
            got = time.perf_counter()
            optimizer.zero_grad()
            (batch @ weight).sum().backward()
            optimizer.step()
            step()
            done = time.perf_counter()
            rows.append((done - asked, got - asked, done, prepared, hot))
            asked = done
    finally:
        names = ("walls", "waits", "done", "prepared", "hot")
        options.out.write_text(json.dumps(dict(zip(names, zip(*rows, strict=True), strict=True))), encoding="utf-8")


if __name__ == "__main__":
    main()
