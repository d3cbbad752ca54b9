"""A training script whose costs are planted and that keeps a clock of its own; feedrate knows nothing of it.

What it writes at its end (one object of JSON) is what feedrate's report is held against: the seconds of each step and
those of them that it waited for its batch; the seconds that preparing each batch took, collation included, and those of
them in the hot line; and the seconds of the loops, of rows of feedrate's account, and of the one line of each that
costs time, which ends with ``# ROW``. To compute is to hash so many times as ``--per-ms`` says take a millisecond.

``--plan`` maps rows to milliseconds, of a step or of an epoch; rows that wait, prepare and go forward have options of
their own. With ``--turns`` it trains for so many epochs. In every other one feedrate is away: its hook is taken out of
PyTorch, and the processes that watch this one are stopped. The order within each two is random.

``make`` gives loader and step to ``feedrate tune``; ``FEEDRATE_PLANTED`` holds the options then. With ``--settings`` it
measures what a step truly takes with each of them, in blocks of random order: a window opens once the prefetched stock
is consumed and closes on a round of the workers. It writes a list a setting, of seconds a step.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import io
import json
import os
import random
import shlex
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, _utils, dataloader, default_collate

HOT_SHARE = 0.75
"""Of a sample's planted cost, the part that its hot line takes."""
WEIGHTS = 16
WARM_STEPS, LEAST_STEPS = 5, 12
"""Before and in a window."""
TENSORS = 10
"""Of a batch, for each millisecond of receiving: a fixed cost, whatever their size."""
OBJECTS, COLLECTED = 1000, 8
"""For each millisecond of garbage collection; how often Python looks for it, an epoch."""
EVALUATED = 2
"""Batches of an evaluation."""
sleep: Callable[[float], object] = time.sleep
compute = partial(pbkdf2_hmac, "sha256", b"", b"")
rows: defaultdict[str, float] = defaultdict(float)
lines: defaultdict[str, float] = defaultdict(float)
cost: defaultdict[str, Callable[[], object]] = defaultdict(lambda: int)
"""Row to what spends its time: no function of Python, so that the line that calls it is seen."""
garbage: list[list[Any]] = []
"""What Python looks through for garbage."""


@contextmanager
def clock(row: str, *clocks: defaultdict[str, float]) -> Iterator[None]:
    """Add what passes to a row's seconds."""
    begun = time.perf_counter()
    yield
    for seconds in clocks:
        seconds[row] += time.perf_counter() - begun


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

    def collate(self, samples: list[torch.Tensor]) -> tuple[list[torch.Tensor], float, float]:
        """Put samples together, with small tensors, which take long to receive.

        Behind them the seconds that preparing the batch took, and those in the hot line: workers cannot add to the
        clock of the training process.
        """
        compute(1 + int(self.options.collate_ms * self.options.per_ms))
        small = (torch.zeros(8) for _ in range(int(TENSORS * self.options.plan.get("receiving", 0))))
        batch, begun, hot = [default_collate(samples), *small], self.begun, self.hot
        self.begun, self.hot = 0.0, 0.0
        return batch, time.perf_counter() - begun, hot


class Stream(IterableDataset[torch.Tensor]):
    """The same samples without an index."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(self.samples.__getitem__, range(first, len(self.samples), step))


class Indices(Sampler[int]):
    """Indices that take time to draw, in the training process."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[int]:
        for index in range(len(self)):
            with clock("sampler", rows, lines):
                cost["sampler"]()  # sampler
            yield index


class Optimizer(torch.optim.Optimizer):
    """One that costs what is planted; for its own PyTorch imports a compiler, which takes more than two CPU seconds."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    def step(self, _: Any = None) -> Any:
        """Go down the gradients."""
        with clock("optimizer", lines):
            cost["optimizer"]()  # optimizer
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data -= group["lr"] * weight.grad


class Disk(io.BytesIO):
    """A file that is slow to write: once a checkpoint."""

    slow = True

    def write(self, data: Any) -> int:
        """Keep it."""
        if self.slow:
            self.slow = False
            with clock("checkpoint", lines):
                cost["checkpoint"]()  # checkpoint
        return super().write(data)


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
    """Read the options, and plant what they say."""
    parser = argparse.ArgumentParser(description=__doc__)
    numbers: dict[str, float] = {"workers": 0, "batch": 8, "steps": 250, "epochs": 1, "turns": 0, "blocks": 1}
    numbers |= {"sample-ms": 1.0, "collate-ms": 0.0, "step-ms": 5.0, "per-ms": 4000, "floats": 16, "seconds": 1.0}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--method", default=None)
    parser.add_argument("--kind", choices=("map", "iterable"), default="map")
    parser.add_argument("--shape", choices=("constant", "heavy"), default="constant")
    parser.add_argument("--computes", type=float, default=0.0, help="share of a sample's cost that is no sleep")
    parser.add_argument("--step-computes", action="store_true", help="the step, and what --plan plants")
    parser.add_argument("--plan", type=json.loads, default={})
    parser.add_argument("--settings", type=json.loads, help="pairs of workers and prefetch factor")
    parser.add_argument("--out", type=Path, default="/dev/stdout")
    options = parser.parse_args(words)
    parts = {"sampler": options.batch, "evaluation": EVALUATED}
    for row, planted in (options.plan | {"forward": options.step_ms}).items():
        ms = planted / parts.get(row, 1)
        hashes = 1 + int(ms * options.per_ms)
        cost[row] = partial(compute, hashes) if options.step_computes else partial(sleep, ms / 1000)
    return options


def backward(gradient: torch.Tensor) -> torch.Tensor:
    """What happens as a gradient is handed on."""
    with clock("backward", lines):
        cost["backward"]()  # backward
    return gradient


def epoch(loader: DataLoader[Any], weight: torch.Tensor, optimizer: Optimizer, steps: dict[str, list[float]]) -> None:
    """Train for an epoch, and add the seconds of each step by the script's own clock."""
    asked, drawn, row = time.perf_counter(), rows["sampler"], "starting"
    for batch, prepared, hot in loader:
        got = time.perf_counter()
        # The sampler runs within the loader; the first batch of workers is their start.
        rows[row] += got - asked - (rows["sampler"] - drawn)
        drawn, row = rows["sampler"], "waiting"
        optimizer.zero_grad()
        computed = lines["forward"]
        with clock("forward", rows):
            loss = (batch[0][:, :WEIGHTS] @ weight).sum()
            loss.register_hook(backward)
            with clock("forward", lines):
                cost["forward"]()  # forward
        with clock("backward", rows):
            loss.backward()
        with clock("optimizer", rows):
            optimizer.step()
        with clock("between_steps", rows):
            with clock("between_steps", lines):
                cost["between_steps"]()  # between_steps
            del batch  # else it goes while the next one comes, and its memory is given back in that wait
        done = time.perf_counter()
        computed = lines["forward"] - computed
        for seconds, name in zip((done - asked, got - asked, prepared, hot, computed), steps, strict=True):
            steps[name].append(seconds)
        asked = done
    rows["starting"] += time.perf_counter() - asked


def train(options: argparse.Namespace) -> dict[str, list[float]]:
    """Train for some epochs, and give the seconds of each step by the script's own clock."""
    weight = torch.nn.Parameter(torch.zeros(WEIGHTS))
    optimizer, loader = Optimizer([weight], {"lr": 1e-6}), planted_loader(options, options.workers)
    steps: dict[str, list[float]] = {"walls": [], "waits": [], "prepared": [], "hot": [], "forward": []}
    garbage.extend([] for _ in range(int(OBJECTS * options.plan.get("garbage", 0))))
    with clock("loops", rows):
        for number in range(options.epochs):
            epoch(loader, weight, optimizer, steps)
            between_epochs(options, weight, last=number == options.epochs - 1)
    return steps


def between_epochs(options: argparse.Namespace, weight: torch.Tensor, *, last: bool) -> None:
    """Spend what is planted once an epoch; what follows the last loop is no part of the training."""
    if "evaluation" in options.plan:
        with clock("evaluation", rows):
            evaluate(weight)
    if "checkpoint" in options.plan:
        with clock("checkpoint", rows):
            torch.save(weight, Disk())
    if "garbage" in options.plan and not last:
        with clock("garbage", rows):
            for _ in range(COLLECTED):
                gc.collect()
    if "between_epochs" in options.plan and not last:
        with clock("between_epochs", rows, lines):
            cost["between_epochs"]()  # between_epochs


def evaluate(weight: torch.Tensor) -> None:
    """Look at some batches."""
    for values in DataLoader([torch.zeros(WEIGHTS)] * EVALUATED):  # type: ignore[arg-type]
        _ = values @ weight
        with clock("evaluation", lines):
            cost["evaluation"]()  # evaluation


def start(_: int) -> None:
    """What a worker does as it starts."""
    cost["starting"]()


def planted_loader(options: argparse.Namespace, workers: int, prefetch: int | None = 2, **more: Any) -> DataLoader[Any]:
    """The loader with some settings."""
    samples = Samples(options)
    return DataLoader(
        samples if options.kind == "map" else Stream(samples),
        batch_size=options.batch,
        sampler=Indices(samples) if "sampler" in options.plan else None,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        multiprocessing_context=options.method if workers else None,
        worker_init_fn=start if "starting" in options.plan else None,
        collate_fn=samples.collate,
        **more,
    )


def make() -> tuple[DataLoader[Any], Callable[[Any], object]]:
    """What ``feedrate tune`` takes."""
    options = parsed(shlex.split(os.environ["FEEDRATE_PLANTED"]))
    return planted_loader(options, options.workers, shuffle=True), lambda _: cost["forward"]()


def window(options: argparse.Namespace, workers: int, prefetch: int | None) -> float:
    """Seconds that a step takes with some settings."""
    batches, turn = iter(planted_loader(options, workers, prefetch, shuffle=True)), max(1, workers)
    for _ in range(max(WARM_STEPS, workers * ((prefetch or 0) + 1))):
        next(batches)
        cost["forward"]()
    begun, steps = time.perf_counter(), 0
    while steps % turn or steps < LEAST_STEPS or time.perf_counter() - begun < options.seconds:
        next(batches)
        cost["forward"]()
        steps += 1
    return (time.perf_counter() - begun) / steps


def truth(options: argparse.Namespace) -> list[list[float]]:
    """What a step takes with each of the settings that are asked for, block by block."""
    taken: list[list[float]] = [[] for _ in options.settings]
    for block in range(options.blocks):
        for at in random.Random(block).sample(range(len(taken)), len(taken)):
            taken[at].append(window(options, *options.settings[at]))
    return taken


def turns(options: argparse.Namespace) -> list[dict[str, dict[str, list[float]]]]:
    """Train with feedrate and without: seconds of the steps of each two epochs, and of the forward pass in them."""
    pairs = []
    for _ in range(options.turns // 2):
        pair = {}
        for way in random.sample(("with", "without"), 2):
            with nullcontext() if way == "with" else alone():
                steps = train(options)
                pair[way] = {name: steps[name] for name in ("walls", "forward")}
        pairs.append(pair)
    return pairs


def main() -> None:
    """Do what the options say, and write what the script's own clock says."""
    options = parsed()
    if options.settings or options.plan:
        torch.set_num_threads(1)
    if "receiving" in options.plan:  # else each tensor of a batch holds a file open
        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    if options.settings or options.turns:
        written: object = truth(options) if options.settings else turns(options)
    else:
        written = {**train(options), "rows": rows, "lines": lines}
    options.out.write_text(json.dumps(written) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
