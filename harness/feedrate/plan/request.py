"""A plan for this machine: options, the matrix that they name, and what is known of the machine."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from feedrate import __version__
from feedrate.machine.identity import Machine, Software, describe, software
from feedrate.machine.linux import NONE, images
from feedrate.machine.probes import gpu
from feedrate.plan import cells, matrix, schedule
from feedrate.plan.stopping import ORDERING
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import InputError
from feedrate.store import runs
from feedrate.store.manifest import Protocol, Spread

_ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE")
"""Variables that change what is measured: a run is not resumed under others.

TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is none of them: a trial sets what it would change.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks of a plan or a sweep."""

    matrix: Path = Path("matrix.yaml")
    profile: str = "quick"
    suite: str = ""
    """One suite in place of the profile's; empty is none."""
    budget: str = ""
    data: Path | None = None
    data_root: Path = Path("data")
    results: Path = runs.RESULTS
    yes: bool = False
    fresh: bool = False
    seed: int | None = None
    wait_quiet: str = ""
    """How long to wait at most until the machine is quiet; empty does not wait."""

    def command(self) -> str:
        """The command that repeats the run; folders of the user's are named by their variable alone."""
        given = {
            f"PROFILE={shlex.quote(self.profile)}": self.profile != "quick",
            f"SUITE={self.suite}": self.suite,
            f"BUDGET={self.budget}": self.budget,
            f"MATRIX={shlex.quote(self.matrix.name)}": self.matrix != Path("matrix.yaml"),
            "DATA=DIR": self.data,
            "DATA_ROOT=DIR": self.data_root != Path("data"),
        }
        return " ".join(["make sweep", *(word for word, wanted in given.items() if wanted)])


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """This machine and what is planned on it."""

    options: Options
    machine: Machine
    software: Software
    plan: schedule.Plan

    def source(self, workload: str) -> str | None:
        """The folder of photographs that a workload reads, if it reads one."""
        if workload == "folder":
            return str(self.options.data)
        if workload == "div2k":
            return str(self.plan.place.div2k)
        return str(self.options.data_root / schedule.PETS_FOLDER) if workload == "pets" else None

    def key(self) -> str:
        """Identify what would be measured: an unfinished run with the same key can be resumed."""
        parts = {
            "cells": sorted(cell.cell_id for cell in self.plan.all_cells),
            "device": self.plan.place.device,
            "protocol": self.plan.matrix.protocol.model_dump(),
            "budget": self.plan.matrix.budget_s,
            "version": __version__,
            "protocol_version": PROTOCOL_VERSION,
            "software": self.software.model_dump(),
            "source": [self.source("folder"), str(self.options.data_root)],
            "seed": self.options.seed,
            "order": [ORDERING, *((claim.id, sorted(claim.weights.items())) for claim in self.plan.claims)],
            "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def make(options: Options) -> LocalPlan:
    """Plan for this machine.

    Raises:
        InputError: the matrix or an option cannot be used.
    """
    if options.data is not None:
        _require_photographs(options.data)
    device = gpu.device()
    wanted = matrix.load(options.matrix, options.profile, options.suite, options.budget, device)
    # The nearest folder above one that is not there yet lies on the same disk.
    nearest = (path for path in (options.data_root, *options.data_root.absolute().parents) if not _no_folder(path))
    machine = describe(gpu.installed(), next(nearest))
    seconds, spread = _earlier(options.results, machine.machine_id, device, wanted.protocol)
    place = schedule.Place(
        device=device,
        data_root=options.data_root,
        data=options.data,
        in_memory=machine.storage is not None and machine.storage.device_class == "memory",
        shm_bytes=_free_shared_memory(),
        seconds=seconds,
        spread=spread,
        gpus=gpu.count(),
        cores=machine.cores_logical,
    )
    return LocalPlan(options, machine, software(), cells.expand(wanted, place, yes=options.yes))


def _no_folder(path: Path) -> str | None:
    """Why a path is no folder that can be read, or None."""
    try:
        return None if path.is_dir() else "a file" if path.exists() else "not there"
    except OSError as error:
        return error.strerror or str(error)


def _require_photographs(data: Path) -> None:
    """Refuse a folder without a photograph before anything takes its time."""
    if problem := _no_folder(data):
        raise InputError(f"DATA={data}: {problem}; expected a folder of photographs (PNG, JPEG)")
    try:
        first = next(images(data), None)
    except OSError as error:
        raise InputError(f"DATA={data}: {error.filename}: {error.strerror}; expected files that can be read") from error
    if first is None:
        raise InputError(f"DATA={data}: {NONE}")


def _free_shared_memory() -> int | None:
    """Bytes free under /dev/shm, or None where it is not mounted."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - asked, not written
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _earlier(
    results: Path, machine_id: str, device: str, protocol: Protocol
) -> tuple[dict[str, float], dict[str, Spread]]:
    """Seconds and spread of each cell in earlier runs here, on the same device and protocol; the newest counts."""
    seconds: dict[str, float] = {}
    spread: dict[str, Spread] = {}
    for path in sorted(results.glob(f"{machine_id}/*/run.json")):
        try:
            run = json.loads(path.read_text(encoding="utf-8"))
            if (run["device"], Protocol(**run["protocol"])) == (device, protocol):
                seconds |= run["cell_seconds"]
                spread |= {cell: Spread(**values) for cell, values in run.get("cell_spread", {}).items()}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return seconds, spread
