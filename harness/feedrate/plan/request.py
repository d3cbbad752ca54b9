"""A plan for this machine: the matrix that options name, what is known of the machine; and the plan as text."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from feedrate import __version__
from feedrate.machine import accelerators, limits, read_ahead
from feedrate.machine.identity import Machine, Software, describe, environment, software
from feedrate.machine.linux import NONE, images
from feedrate.machine.probes import gpu, procfs
from feedrate.plan import cells, matrix, schedule, tuning
from feedrate.plan.options import SweepOptions
from feedrate.plan.search import GRID_BLOCKS
from feedrate.plan.stopping import ORDERING
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.store import location
from feedrate.store.manifest import Membership, Protocol, Spread

_ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables besides ``identity.environment`` that change what is measured: a run is not resumed under others.

TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is none of them: a trial sets what it would change.
"""


@dataclass(frozen=True, slots=True)
class NodePart:
    """A node's part in a sweep of many nodes."""

    membership: Membership
    label: str
    """What stands for the node's name (``Machine.node``)."""
    meets_at: str = ""
    """URL at which the nodes meet before every trial; empty where each sweeps by itself."""


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """This machine and what is planned on it."""

    options: SweepOptions
    machine: Machine
    software: Software
    plan: schedule.Plan
    node_part: NodePart | None = None
    """In the sweep of many nodes; None of a sweep by itself."""

    def source(self, workload: str) -> str | None:
        """The folder of photographs that a workload reads, if it reads one."""
        if workload in ("folder", "imagefolder"):
            return str(self.options.data)
        if workload == "div2k":
            return str(self.plan.host.div2k)
        return str(self.options.data_root / schedule.PETS_FOLDER) if workload == "pets" else None

    def key(self) -> str:
        """Identify what would be measured: an unfinished run with the same key can be resumed."""
        parts = {
            "cells": sorted(cell.cell_id for cell in self.plan.all_cells),
            "device": self.plan.host.device,
            "protocol": self.plan.matrix.protocol.model_dump(),
            "budget": self.plan.matrix.budget_s,
            "version": __version__,
            "protocol_version": PROTOCOL_VERSION,
            "software": self.software.model_dump(),
            "source": [self.source("folder"), str(self.options.data_root)],
            "seed": self.options.seed,
            "sweep": self.node_part and self.node_part.membership.sweep,
            "tune": self.options.tune,
            "order": [
                ORDERING,
                *(
                    (claim.id, *(sorted(effect.weights.items()) for effect in claim.effects))
                    for claim in self.plan.claims
                ),
            ],
            "environment": {name: os.environ.get(name) for name in _ENVIRONMENT} | environment(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def make(options: SweepOptions, node_part: NodePart | None = None) -> LocalPlan:
    """Plan for this machine, by itself or as one of many nodes.

    Raises:
        FeedrateError: the matrix or an option cannot be used, or PyTorch would compute on what is not measured.
    """
    if options.data is not None:
        _require_photographs(options.data)
    device = _device()
    wanted = matrix.load(options.matrix, options.profile, options.suite, options.budget, device)
    # The nearest folder above one that is not there yet lies on the same disk.
    nearest = next(path for path in (options.data_root, *options.data_root.absolute().parents) if _is_folder(path))
    read_ahead.restore(nearest)
    machine = describe(gpu.installed(), nearest).model_copy(update={"node": node_part.label if node_part else None})
    asked = {axis for suite_slice in wanted.slices for axis in suite_slice.axes}
    seconds, spread = _earlier(options.results, machine.machine_id, device, wanted.protocol)
    problems: dict[str, Callable[[], str | None]] = {
        "read_ahead_kib": partial(read_ahead.problem, nearest),
        "memory_limit_mib": limits.missing,
        "disk_mib_s": partial(limits.missing, nearest),
    }
    host = schedule.Host(
        device=device,
        data_root=options.data_root,
        data=options.data,
        in_memory=machine.storage is not None and machine.storage.device_class == "memory",
        read_ahead_bytes=machine.storage.read_ahead_bytes if machine.storage else None,
        unable={axis: why for axis, problem in problems.items() if axis in asked and (why := problem())},
        shm_bytes=procfs.free_shared_memory(),
        seconds=seconds,
        spread=spread,
        gpus=gpu.count(),
        cores=machine.cores_logical,
        nodes=node_part.membership.nodes if node_part and node_part.membership.together else 1,
        one_machine=options.on == "local",
    )
    plan = cells.expand(wanted, host, yes=options.yes)
    return LocalPlan(options, machine, software(), tuning.narrowed(plan) if options.tune else plan, node_part)


def _device() -> Literal["cuda", "cpu"]:
    """The device that is measured: an NVIDIA GPU, else the CPU, beside another accelerator only if the user says so."""
    device = gpu.device()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if device == "cpu" and not chosen and (accelerator := accelerators.unmeasured()):
        raise EnvironmentFault(
            f"{accelerator}; expected an NVIDIA GPU or none: feedrate measures NVIDIA GPUs and CPUs. Set "
            "CUDA_VISIBLE_DEVICES= (to nothing) to measure the CPU"
        )
    return device


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - pathlib raises where a folder above cannot be entered


def _require_photographs(data: Path) -> None:
    """Refuse a folder without a photograph before anything takes its time."""
    if not _is_folder(data):
        raise InputError(f"--data {data}: no folder that can be read; expected one of photographs (PNG, JPEG, WebP)")
    try:
        first = next(images(data), None)
    except OSError as error:
        raise InputError(
            f"--data {data}: {error.filename}: {error.strerror}; expected files that can be read"
        ) from error
    if first is None:
        raise InputError(f"--data {data}: {NONE}")


def _earlier(
    results: Path, machine_id: str, device: str, protocol: Protocol
) -> tuple[dict[str, float], dict[str, Spread]]:
    """Seconds and spread of each cell in earlier runs here, on the same device and protocol; the newest counts."""
    seconds: dict[str, float] = {}
    spread: dict[str, Spread] = {}
    paths = sorted(location.glob(results, f"{machine_id}/*/run.json"))
    for text in location.contents(paths):
        try:
            run = json.loads(text)
            if (run["device"], Protocol(**run["protocol"])) == (device, protocol):
                seconds |= run["cell_seconds"]
                spread |= {cell: Spread(**values) for cell, values in run.get("cell_spread", {}).items()}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return seconds, spread


def show(local: LocalPlan, console: Console) -> None:
    """Print a plan: cells, merged and excluded combinations with reasons, time for a block, blocks, what to cut."""
    say = partial(console.print, highlight=False, markup=False)
    plan, machine = local.plan, local.machine
    device = machine.gpu_name if plan.host.device == "cuda" else f"{machine.cores_logical} cores, no NVIDIA GPU"
    say(f"{machine.machine_id}: {machine.cpu_model}, {device}")
    say(
        f"{plan.matrix.path}, profile {plan.matrix.profile}: {plan.combinations:,} combinations → "
        f"{len(plan.cells):,} settings on this machine",
        style="bold",
    )
    for counted in plan.merged:
        say(f"  − {counted.count:,} merged: {counted.reason}")
    for counted in plan.excluded:
        say(f"  − {counted.count:,} left out: {counted.reason}")
    if plan.ceilings:
        say(f"  + {len(plan.ceilings):,} added: stages of the training settings, each alone (their limits)")
    table = Table(box=None, padding=(0, 2), show_header=False)
    for axis in AXES:
        values = [cell.axes[axis.name] for cell in plan.cells if axis.name in cell.axes]
        if len(set(values)) > 1:
            table.add_row(axis.name, ", ".join(f"{value} ({values.count(value)})" for value in dict.fromkeys(values)))
    console.print(table)
    for line in plan.substitutions:
        say(f"  {line}")
    if local.options.tune:
        say(_search(plan))
    else:
        _show_blocks(plan, say)


def _show_blocks(plan: schedule.Plan, say: Callable[..., None]) -> None:
    """Print how long a block takes, how many blocks answer the questions, and what to cut where too few fit."""
    say(_time(plan))
    if outlook := _outlook(plan):
        say(outlook)
    if cuts := plan.cuts():
        enough = words.show(plan.block_s * schedule.BLOCKS_WANTED)
        say(
            f"Fewer than {schedule.BLOCKS_WANTED} repetitions decide little. Raise --budget to {enough}, or leave out:",
            style="yellow",
        )
        for cut in cuts:
            say(f"  {cut}", style="yellow")


def _search(plan: schedule.Plan) -> str:
    """How many settings a tuned sweep chooses among, and what measuring all of them would take."""
    tasks = tuning.tasks(plan.cells)
    grid = words.show(plan.block_s * GRID_BLOCKS)
    limit = "no budget" if plan.matrix.budget_s is None else f"budget {words.show(plan.matrix.budget_s)}"
    return (
        f"{words.plural(len(tasks), 'task')} to tune, {words.plural(len(plan.cells), 'setting')} to choose from: those "
        f"are measured that may be the best; {limit}. All of them in {GRID_BLOCKS} repetitions would take about {grid}."
    )


def _time(plan: schedule.Plan) -> str:
    measured = sum(cell.cell_id in plan.host.seconds for cell in plan.all_cells) / len(plan.all_cells)
    basis = "as measured here before" if measured > 0.9 else "estimated; the first run here will tell"
    limit = "no budget" if plan.matrix.budget_s is None else f"budget {words.show(plan.matrix.budget_s)}"
    return (
        f"A repetition (every setting once, in random order) takes about {words.show(plan.block_s)} ({basis}); "
        f"{limit}: about {words.plural(plan.blocks, 'repetition')}, {words.show(plan.blocks * plan.block_s)}."
    )


def _outlook(plan: schedule.Plan) -> str | None:
    """How many blocks the contrasts will take, and whether longer windows would make them fewer."""
    outlook = plan.outlook()
    if outlook is None:
        return None
    # The prediction goes no further than the protocol's most blocks.
    half, most = (f"{n} or more" if n == plan.rule.most else str(n) for n in (outlook.half, outlook.most))
    longer = "longer windows (protocol.window_s) help"
    advice = longer if outlook.within > 0.5 else "more repetitions help, longer windows do not"
    return (
        f"At the spread seen here before, half of the comparisons reach ±{plan.matrix.protocol.ci_target_pct:g} % "
        f"after {half} repetitions, nine in ten after {most}; {outlook.within:.0%} of that spread arises within "
        f"windows: {advice}."
    )


def show_axes(console: Console) -> None:
    """Print the table of axes."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("option", "default", "values", "what it is"):
        table.add_column(heading, no_wrap=heading in ("option", "default"))
    for axis in AXES:
        least = f"≥ {axis.least or 0:g}"
        kind = {bool: "false, true", int: f"whole numbers {least}", float: f"numbers {least}", str: "a name"}
        values = ", ".join(axis.choices()) if axis.choices else kind[axis.type]
        default = str(axis.default).lower() if axis.type is bool else str(axis.default)
        table.add_row(axis.name, default, values, axis.doc)
    console.print(table)
