"""A training script whose costs are planted and that keeps a clock of its own; feedrate knows nothing of it.

What it writes at its end (one object of JSON) is what feedrate's report is held against: the seconds of each step and
those of them that it waited for its batch; the seconds that preparing each batch took, collation included, and those of
them in the hot line. To compute is to hash so many times as ``--per-ms`` says take a millisecond.

With ``--turns`` it trains for so many epochs. In every other one feedrate is away: its hook is taken out of PyTorch,
and the processes that watch this one are stopped. The order within each two is random.

``make`` gives loader and step to ``feedrate tune``, ``get_workload`` to loadtune; ``FEEDRATE_PLANTED`` holds the
options then. With ``--settings`` it measures what a step truly takes with each of them, in blocks of random order: a
window opens once the prefetched stock is consumed and closes on a round of the workers. It writes a list a setting, of
seconds a step.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import random
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import pbkdf2_hmac
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils, dataloader, default_collate, get_worker_info

HOT_SHARE = 0.75
"""Of a sample's planted cost, the part that its hot line takes."""
WEIGHTS = 16
WARM_STEPS, LEAST_STEPS = 5, 12
"""Before and in a window."""
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
        return torch.full((self.options.floats,), float(index))

    def collate(self, samples: list[torch.Tensor]) -> tuple[Any, float, float]:
        """Put samples together to a batch; beside it the seconds that it took, and those of them in the hot line."""
        compute(1 + int(self.options.collate_ms * self.options.per_ms))
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
        return map(self.samples.__getitem__, range(first, len(self.samples), step))


HOOKED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (dataloader.DataLoader, ("__init__",)),
    (dataloader._BaseDataLoaderIter, ("__init__", "_reset", "__next__", "_next_index")),
    (dataloader._SingleProcessDataLoaderIter, ("__init__",)),
    (dataloader._MultiProcessingDataLoaderIter, ("__init__",)),
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
    kept = [dict(registered) for registered in hooks]
    parent = psutil.Process(os.getppid())
    watching = [parent.pid, *(child.pid for child in parent.children() if child.name() == "py-spy")]
    for owner, name, function in wrapped:
        setattr(owner, name, inspect.unwrap(function))
    for registered in hooks:
        registered.clear()
    for pid in watching:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in watching:
            os.kill(pid, signal.SIGCONT)
        for registered, before in zip(hooks, kept, strict=True):
            registered.update(before)
        for owner, name, function in wrapped:
            setattr(owner, name, function)


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options: what is planted, and what is to be done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--method", default=None)
    parser.add_argument("--kind", choices=("map", "iterable"), default="map")
    parser.add_argument("--shape", choices=("constant", "heavy"), default="constant")
    parser.add_argument("--computes", type=float, default=0.0, help="share of a sample's cost that is no sleep")
    parser.add_argument("--sample-ms", type=float, default=1.0)
    parser.add_argument("--collate-ms", type=float, default=0.0, help="computing, a batch")
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--step-computes", action="store_true")
    parser.add_argument("--per-ms", type=int, default=4000, help="hashes a millisecond")
    parser.add_argument("--floats", type=int, default=16, help="of a sample")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--settings", type=json.loads, help="pairs of workers and prefetch factor")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a window")
    parser.add_argument("--out", type=Path, default="/dev/stdout")
    return parser.parse_args(words)


def train(loader: DataLoader[Any], step: Callable[[], object]) -> dict[str, list[float]]:
    """Train for an epoch, and give the seconds of each step by the script's own clock."""
    weight = torch.nn.Parameter(torch.zeros(WEIGHTS))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    clock: dict[str, list[float]] = {"walls": [], "waits": [], "prepared": [], "hot": []}
    asked = time.perf_counter()
    for batch, prepared, hot in loader:
        got = time.perf_counter()
        optimizer.zero_grad()
        loss = (batch[:, :WEIGHTS] @ weight).sum()
        step()  # as a forward pass: behind the gradients it would be what lies between steps
        loss.backward()
        optimizer.step()
        del batch  # else it goes while the next one comes, and its memory is given back in that wait
        done = time.perf_counter()
        for seconds, name in zip((done - asked, got - asked, prepared, hot), clock, strict=True):
            clock[name].append(seconds)
        asked = done
    return clock


def planted_step(options: argparse.Namespace) -> Callable[[], object]:
    """What a step does beside training."""
    if options.step_computes:
        return partial(compute, int(options.step_ms * options.per_ms))
    return partial(sleep, options.step_ms / 1000)


def planted_loader(options: argparse.Namespace, workers: int, prefetch: int | None = 2, **more: Any) -> DataLoader[Any]:
    """The loader with some settings."""
    samples = Samples(options)
    return DataLoader(
        samples if options.kind == "map" else Stream(samples),
        batch_size=options.batch,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        multiprocessing_context=options.method if workers else None,
        collate_fn=samples.collate,
        **more,
    )


def make() -> tuple[DataLoader[Any], Callable[[Any], object]]:
    """What ``feedrate tune`` takes."""
    options = parsed(shlex.split(os.environ["FEEDRATE_PLANTED"]))
    step = planted_step(options)
    return planted_loader(options, options.workers, shuffle=True), lambda _: step()


def get_workload() -> Any:
    """What loadtune takes: it makes the loader itself."""
    options = parsed(shlex.split(os.environ["FEEDRATE_PLANTED"]))
    samples, step = Samples(options), planted_step(options)
    return import_module("loadtune").Workload(
        name="planted",
        make_dataset=lambda: samples,
        make_model=lambda: torch.nn.Linear(1, 1),
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=1e-6),
        train_step=lambda *_: step() or 0.0,
        default_batch_size=options.batch,
        collate_fn=samples.collate,
    )


def window(options: argparse.Namespace, workers: int, prefetch: int | None) -> float:
    """Seconds that a step takes with some settings."""
    batches, turn = iter(planted_loader(options, workers, prefetch, shuffle=True)), max(1, workers)
    step = planted_step(options)
    for _ in range(max(WARM_STEPS, workers * ((prefetch or 0) + 1))):
        next(batches)
        step()
    begun, steps = time.perf_counter(), 0
    while steps % turn or steps < LEAST_STEPS or time.perf_counter() - begun < options.seconds:
        next(batches)
        step()
        steps += 1
    return (time.perf_counter() - begun) / steps


def truth(options: argparse.Namespace) -> list[list[float]]:
    """What a step takes with each of the settings that are asked for, block by block."""
    torch.set_num_threads(1)
    taken: list[list[float]] = [[] for _ in options.settings]
    for block in range(options.blocks):
        for at in random.Random(block).sample(range(len(taken)), len(taken)):
            taken[at].append(window(options, *options.settings[at]))
    return taken


def turns(options: argparse.Namespace) -> list[dict[str, list[float]]]:
    """Train with feedrate and without: seconds of the steps of each two epochs."""
    step, walls = planted_step(options), []
    for _ in range(options.turns // 2):
        pair = {}
        for way in random.sample(("with", "without"), 2):
            with nullcontext() if way == "with" else alone():
                pair[way] = train(planted_loader(options, options.workers), step)["walls"]
        walls.append(pair)
    return walls


def main() -> None:
    """Do what the options say, and write what the script's own clock says."""
    options = parsed()
    if options.settings:
        seconds: object = truth(options)
    elif options.turns:
        seconds = turns(options)
    else:
        seconds = train(planted_loader(options, options.workers), planted_step(options))
    options.out.write_text(json.dumps(seconds) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
