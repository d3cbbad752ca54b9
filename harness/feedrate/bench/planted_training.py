"""A training script whose costs are planted and that keeps a clock of its own; ``feedrate run`` knows nothing of it.

What it writes at its end (one object of JSON) is what feedrate's report is held against: the seconds of each step and
those of them that it waited for its batch; the seconds that preparing each batch took, collation included, and those of
them in the hot line. To compute is to hash so many times as ``--per-ms`` says take a millisecond.

With ``--turns`` it trains for so many epochs. In every other one feedrate is away: its hook is taken out of PyTorch,
and the processes that watch this one are stopped. The order within each two is random.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils, dataloader, default_collate, get_worker_info

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


HOOKED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (dataloader.DataLoader, ("__init__",)),
    (dataloader._BaseDataLoaderIter, ("__init__", "_reset", "__next__")),
    (_utils.fetch._BaseDatasetFetcher, ("__init__",)),
    (_utils.fetch._MapDatasetFetcher, ("fetch",)),
    (_utils.fetch._IterableDatasetFetcher, ("fetch",)),
    (_utils.worker, ("_worker_loop",)),
    (torch.autograd, ("backward",)),
)
"""What feedrate's hook wraps."""


@contextmanager
def alone() -> Iterator[None]:
    """Keep feedrate away for a while."""
    wrapped = [(owner, name, getattr(owner, name)) for owner, names in HOOKED for name in names]
    hooks: Any = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
    kept = [dict(each) for each in hooks]
    parent = psutil.Process(os.getppid())
    watching = [parent.pid, *(each.pid for each in parent.children() if each.name() == "py-spy")]
    for owner, name, function in wrapped:
        setattr(owner, name, inspect.unwrap(function))
    for each in hooks:
        each.clear()
    for pid in watching:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in watching:
            os.kill(pid, signal.SIGCONT)
        for each, before in zip(hooks, kept, strict=True):
            each.update(before)
        for owner, name, function in wrapped:
            setattr(owner, name, function)


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
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--out", type=Path, default="/dev/stdout")
    options = parser.parse_args()
    samples = Samples(options)
    weight = torch.nn.Parameter(torch.zeros(16))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    step = (
        partial(compute, int(options.step_ms * options.per_ms))
        if options.step_computes
        else partial(sleep, options.step_ms / 1000)
    )

    def epoch() -> dict[str, list[float]]:
        told: dict[str, list[float]] = {"walls": [], "waits": [], "prepared": [], "hot": []}
        loader = DataLoader(
            samples if options.kind == "map" else Stream(samples),
            batch_size=options.batch,
            num_workers=options.workers,
            prefetch_factor=options.prefetch if options.workers else None,
            multiprocessing_context=options.method if options.workers else None,
            collate_fn=samples.collate,
        )
        asked = time.perf_counter()
        for batch, prepared, hot in loader:
            got = time.perf_counter()
            optimizer.zero_grad()
            (batch @ weight).sum().backward()
            optimizer.step()
            step()
            done = time.perf_counter()
            for seconds, name in zip((done - asked, got - asked, prepared, hot), told, strict=True):
                told[name].append(seconds)
            asked = done
        return told

    def turn() -> dict[str, list[float]]:
        walls = {}
        for way in random.sample(("with", "without"), 2):
            with nullcontext() if way == "with" else alone():
                walls[way] = epoch()["walls"]
        return walls

    told = [turn() for _ in range(options.turns // 2)] if options.turns else epoch()
    options.out.write_text(json.dumps(told) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
