"""The cells of a made-up run: those that a small suite asks for, and the ceilings that come with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import fake_claims
import fake_storage
from fake_kind import HOSTILE, Fake

from feedrate.schema.axes import AXES, Value, applicable, ceilings, cell_id


def _planted() -> list[dict[str, Sequence[Value]]]:
    """Costs as the suite calibration plants them."""
    data: dict[str, Sequence[Value]] = {"workload": ("synthetic",), "storage_format": ("lmdb",)}
    data |= {"patch_size": (16,), "batch_size": (8, 16)}
    load: dict[str, Sequence[Value]] = {**data, "mode": ("load",), "replica": (0, 1)}
    step: dict[str, Sequence[Value]] = {**data, "mode": ("train",), "step": ("emulated",), "num_workers": (0, 1, 2)}
    return [
        load,
        {**load, "read_us": (1000, 2000), "num_workers": (0, 1)},
        {**load, "decode_us": (2000, 2020, 2100)},
        {**load, "collate_us": (10_000,)},
        {**step, "read_us": (2000,), "step_ms": (5.0, 20.0)},
    ]


def _loader(fake: Fake, workload: str) -> list[dict[str, Sequence[Value]]]:
    """What a small suite about loading asks for; a sleep stands in for the model where there is no GPU."""
    common: dict[str, Sequence[Value]] = {
        "batch_size": fake.batches,
        "num_workers": fake.workers,
        "storage_format": ("png", "lmdb"),
        "workload": (workload,),
    }
    wanted: list[dict[str, Sequence[Value]]] = [
        {**common, "mode": ("train",), "patch_size": (16,), "pin_memory": (False, True), "non_blocking": (False, True)},
        {**common, "mode": ("train",), "step": ("emulated",), "patch_size": (64,)},
        {**common, "mode": ("load",), "workload": ("div2k_standin", "synthetic"), "batch_size": (32,)},
        {"mode": ("compute",), "workload": ("div2k_standin",), "patch_size": (16,), "batch_size": fake.batches},
    ]
    if fake.device == "cuda":
        del wanted[1]
    return wanted


def cells(fake: Fake) -> list[dict[str, Value]]:
    """List the cells that the run's suite asks for."""
    if fake.claims:
        return list({cell_id(cell): cell for cell in fake_claims.cells(fake.device, fake.claims)}.values())
    workload = HOSTILE if fake.hostile else "div2k_standin"
    if fake.formats:
        wanted = fake_storage.slices(workload, fake.workers, fake.formats, fake.states)
    else:
        wanted = _planted() if fake.plants else _loader(fake, workload)
    found: dict[str, dict[str, Value]] = {}
    defaults = {axis.name: axis.default for axis in AXES}
    for part in wanted:
        for values in product(*part.values()):
            cell, _ = applicable({**defaults, **dict(zip(part, values, strict=True))}, fake.device)
            found[cell_id(cell)] = cell
    return list(found.values())


def added(fake: Fake) -> list[dict[str, Value]]:
    """List the ceilings of the training cells that the suite does not ask for itself."""
    if fake.claims:
        return []
    asked = cells(fake)
    found = {
        cell_id(alone): alone
        for cell in asked
        if cell["mode"] == "train"
        for alone in ceilings(cell, fake.device).values()
    }
    for cell in asked:
        found.pop(cell_id(cell), None)
    return [] if fake.asked_only else list(found.values())
