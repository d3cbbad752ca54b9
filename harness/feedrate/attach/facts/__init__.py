"""Facts of a script's loader that are true or not, whatever the clock says: one file each, found by its name.

A fact is seen in what the hook wrote, at no cost to the script. Its file has one function, ``check(evidence)``, which
gives a sentence and what to do, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from feedrate.attach.account import Account
from feedrate.attach.blame import handing, shared
from feedrate.attach.causes import Cause
from feedrate.attach.profiler import Stack
from feedrate.attach.records import Loader, Pass, Process
from feedrate.machine.probes.procfs import Footprint
from feedrate.schema import plugins


class Fact(NamedTuple):
    """What is so."""

    text: str
    remedy: str
    explains: str = ""
    """The row of the account whose time goes there: what to do is this, then."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What was seen of a script's processes from outside."""

    cores: float
    """That it may use."""
    written: Sequence[tuple[int, int]] = ()
    """Clock (ns), and bytes that all its processes have written to in memory of their own."""
    footprints: Mapping[int, tuple[Footprint, Footprint]] = field(default_factory=dict)
    """Process to its memory as it was first and last seen."""
    read: Sequence[tuple[int, int]] = ()
    """Clock (ns), and bytes that they had read from storage."""
    shm_bytes: int = 0
    """Size of /dev/shm; 0 where there is none."""
    given: int = 0
    """Cores that it was started with, by affinity."""
    allowed: int = 0
    """Those that it may use once its loop has begun; 0 where it did not say."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a fact is seen in."""

    loader: Loader
    """That of the training loop."""
    account: Account
    passes: Sequence[Pass]
    """Over the loader, in one process."""
    workers: Sequence[Sequence[Process]]
    """The worker processes of each pass."""
    batch: Mapping[str, Any]
    """``objects`` and ``bytes`` of a batch; empty where none was looked at."""
    cuda: bool
    """Whether the script used CUDA."""
    outside: Outside
    loaders: int = 1
    """Objects that the line which makes it has made."""
    activity: Mapping[str, float] = field(default_factory=dict)
    """What those did who prepare batches (``loop.activity``); empty of a loop too short to be measured."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """What workers did while a batch was waited for (``waits.split``)."""
    handing: float = 0.0
    """Share of the time that receiving takes in which a worker was waited for to hand a tensor over."""
    shared: float = 0.0
    """Share of the time of preparing in which workers wait for what they share."""
    cause: str = ""
    """What holds the training back by name; a fact says nothing of it again."""

    @property
    def num_workers(self) -> int:
        """Worker processes of the loader; 0 where batches are prepared in the training process."""
        return int(self.loader.settings.get("num_workers") or 0)

    @property
    def stock(self) -> int:
        """Batches that workers may prepare before they are asked for."""
        return self.num_workers * int(self.loader.settings.get("prefetch_factor") or 0)


def evidence(
    loader: Loader,
    account: Account,
    process: Process,
    processes: Sequence[Process],
    outside: Outside,
    cause: Cause | None,
    by_row: Mapping[str, Sequence[Stack]],
) -> Evidence:
    """Gather what facts are seen in; ``cause`` is None of a loop too short to be measured."""
    iterators = [line for line in process.said if line["what"] == "iterator"]
    lines = [line for line in iterators if line["made"] == loader.settings["made"]]
    numbers = {line["iterator"] for line in lines} - account.evaluating
    seen = [line for line in process.said if line["what"] == "batch" and line["iterator"] in numbers]
    return Evidence(
        loader=loader,
        account=account,
        passes=[one for one in account.passes if one.iterator in numbers],
        workers=[
            [one for one in processes if one.pid in line["workers"] and one.began_ns >= line["begun_ns"]]
            for line in lines
            if line["iterator"] in numbers
        ],
        loaders=len({line.get("loader") for line in lines if line["iterator"] in numbers}),
        batch=seen[0] if seen else {},
        cuda=bool(loader.steps["cuda"].any()),
        outside=outside,
        activity=cause.numbers if cause else {},
        waits=cause.waits if cause else {},
        handing=handing(by_row.get("receiving", ())),
        shared=shared(by_row.get("waiting", ())),
        cause=cause.name if cause else "",
    )


def every(seen: Evidence) -> tuple[Fact, ...]:
    """All that is so, in the order of the files' names."""
    package = __name__
    facts = (plugins.load(package, name).check(seen) for name in plugins.names(package))
    return tuple(fact for fact in facts if fact is not None)
