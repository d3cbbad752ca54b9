"""The settings of a DataLoader that ``feedrate tune`` chooses among, and what each takes of a machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from feedrate.schema.axes import BY_NAME
from feedrate.schema.errors import InputError
from feedrate.schema.window import warm_up_steps

WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
PREFETCH = (2, 4, 8)
MOST_WORKERS = 16
"""More are tried only where there are so many cores: workers that wait for storage share a core."""
SHORT = 4
"""Epochs of fewer steps than this, times those of a warm-up, are measured whole."""
ROOM = 0.8
"""Of free memory, and of free shared memory, what a setting may take."""


class Setting(NamedTuple):
    """What a loader is given; None where it does not apply, or stays the script's own."""

    num_workers: int
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    pin_memory: bool = False
    start_method: str | None = None
    batch_size: int | None = None
    non_blocking: bool | None = None
    """Of copies to the device; None where none were seen."""

    def arguments(self) -> dict[str, Any]:
        """As arguments of a DataLoader, those that differ from PyTorch's defaults, and ``num_workers``."""
        given = {
            "prefetch_factor": self.num_workers and self.prefetch_factor != 2 and self.prefetch_factor,
            "persistent_workers": self.persistent_workers,
            "pin_memory": self.pin_memory,
            "multiprocessing_context": self.start_method,
            "batch_size": self.batch_size,
        }
        return {"num_workers": self.num_workers} | {name: value for name, value in given.items() if value}

    def given(self) -> dict[str, Any]:
        """The same, and what copies are given."""
        return self.arguments() | ({"non_blocking": True} if self.non_blocking else {})

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.given().items())

    def knobs(self) -> Iterator[tuple[str, object]]:
        """Names and values of what was set."""
        return ((name, value) for name, value in self._asdict().items() if value is not None)

    @property
    def unmodelled(self) -> Setting:
        """What the pipeline model does not know of a setting; its trials tell of those alone that share it."""
        return self._replace(num_workers=0, prefetch_factor=None, persistent_workers=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """What may be changed beside workers, prefetching, pinning and how long workers live."""

    batch_sizes: tuple[int, ...] = ()
    start_methods: tuple[str, ...] = ()
    most_workers: int = 0
    """0: as many as there are cores, or ``MOST_WORKERS``."""


def asked(batch_sizes: str, start_methods: str, most_workers: int) -> Asked:
    """Read what the command line asks for.

    Raises:
        InputError: a batch size or a start method is none.
    """
    sizes = [size.strip() for size in batch_sizes.split(",") if size.strip()]
    methods = [method.strip() for method in start_methods.split(",") if method.strip()]
    if wrong := [size for size in sizes if not size.isdecimal() or not int(size)]:
        raise InputError(f"tune: --batch-size: got {wrong[0]!r}; expected numbers by commas, such as 32,64,128")
    for method in methods:
        BY_NAME["start_method"].checked(method, "tune: --start-method")
    return Asked(tuple(map(int, sizes)), tuple(methods), most_workers)


@dataclass(slots=True)
class Machine:
    """What settings must fit in."""

    cores: float
    memory_bytes: int | None
    """Memory that the script and its workers may take beside what it takes now; None where it is not known."""
    shm_bytes: int | None
    worker_bytes: int = 0
    """What a worker has of its own; 0 before one was seen."""
    batch_bytes: int = 0
    epoch_steps: int = 0
    """0: not known, or without end."""

    def short(self, setting: Setting) -> bool:
        """Whether epochs are so short that they are measured whole, their starts included."""
        return 0 < self.epoch_steps < SHORT * warm_up_steps(setting.num_workers, setting.prefetch_factor or 0)

    def trial_of(self, setting: Setting) -> Setting:
        """Give the setting whose trial shows another one's, too: workers that live on save an epoch's start alone."""
        return setting if self.short(setting) else setting._replace(persistent_workers=False)

    def too_large(self, setting: Setting, size: int) -> str | None:
        """Say why a setting does not fit, if it does not."""
        workers, (memory, shared) = setting.num_workers, self.takes(setting, size)
        if not workers:
            return None
        batches = f"{workers} workers × {setting.prefetch_factor} batches of {gib(self.batch_bytes * size)}"
        if self.shm_bytes is not None and shared > ROOM * self.shm_bytes:
            return f"{batches} do not fit in /dev/shm, of which {gib(self.shm_bytes)} are free"
        if self.memory_bytes is not None and memory > ROOM * self.memory_bytes:
            return (
                f"{batches} and {gib(workers * self.worker_bytes)} of their own do not fit in memory, of which "
                f"{gib(self.memory_bytes)} are free"
            )
        return None

    def takes(self, setting: Setting, size: int = 1) -> tuple[int, int]:
        """Bytes of memory, and of it of shared memory, that workers take; a batch is ``size`` of those seen."""
        workers, prefetch = setting.num_workers, setting.prefetch_factor or 0
        shared = (workers * prefetch + 1) * self.batch_bytes * size if workers else 0
        return shared + workers * self.worker_bytes, shared


def gib(size: float) -> str:
    """Say a size of memory."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def settings(present: Setting, asked: Asked, machine: Machine, *, cuda: bool) -> list[Setting]:
    """List every setting to choose among, cheapest first: fewest workers, then the smallest stock."""
    most = max(asked.most_workers or max(MOST_WORKERS, math.ceil(machine.cores)), present.num_workers)
    workers = sorted({*(count for count in WORKERS if count <= most), present.num_workers})
    prefetch = sorted({*PREFETCH, present.prefetch_factor or 2})
    lives = (False, True) if machine.epoch_steps else (present.persistent_workers,)
    methods = asked.start_methods or (present.start_method,)
    chosen = {present}
    pins = (False, True) if cuda else (present.pin_memory,)
    blocking = (present.non_blocking,) if present.non_blocking is None else (False, True)
    for size, pin, copies, count in product(asked.batch_sizes or (present.batch_size,), pins, blocking, workers):
        if copies and not pin:  # what is not pinned is copied before the call returns
            continue
        if not count:
            chosen.add(Setting(0, pin_memory=pin, batch_size=size, non_blocking=copies))
            continue
        for stock, lasting, method in product(prefetch, lives, methods):
            chosen.add(Setting(count, stock, lasting, pin, method, size, copies))
    return sorted(chosen, key=cost)


def cost(setting: Setting) -> tuple[Any, ...]:
    """Order settings by what they take: processes, batches in memory, workers that live on, pinned memory."""
    stock = (setting.prefetch_factor or 0) * (setting.batch_size or 1)
    return setting.num_workers, stock, setting.persistent_workers, setting.pin_memory, setting.start_method or ""


def fitting(all_settings: Sequence[Setting], machine: Machine, present: Setting) -> Iterator[tuple[Setting, str]]:
    """Name the settings that do not fit the machine, and why."""
    for setting in all_settings:
        size = (setting.batch_size or 1) / (present.batch_size or setting.batch_size or 1)
        if setting != present and (reason := machine.too_large(setting, max(1, math.ceil(size)))):
            yield setting, reason
