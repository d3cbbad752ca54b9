"""What each stage of a training cell could do alone, and what therefore holds the cell back.

A training cell's ceilings are the cells of the same run that ``mode: load``, ``copy`` and ``compute`` make of it, axes
that do not apply there dropped (differential analysis, as in DS-Analyzer, VLDB 2021). An emulated step's ceiling is
declared, not measured: batch_size ÷ step_ms.

Copies and step that share a CUDA stream take turns: what the device can reach is 1 ÷ (1/copy + 1/compute), the harmonic
sum of both, and only copies on a stream of their own can be hidden behind a step.

A step of small kernels keeps the host busy, which launches them one by one, while the device waits: then what the host
launches is the bottleneck, and no faster device helps. It shows in a host that never waits and a device that has
nothing left to do when the host is done. Where something in the step makes the host wait for the device, the two
cannot be told apart, and nothing is called launch-bound.

``au`` is MLPerf Storage's accelerator utilization. It does *not* follow that a cell could reach its ceiling: where
workers and model share the cores of a CPU, both cannot be had together, and an efficiency under 1 names no waste.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, Blocks, blocks_of, memoized
from feedrate.analysis.estimate import RATIO, Floats, as_columns, moments
from feedrate.analysis.estimates import cells, rows_of
from feedrate.schema import axes
from feedrate.schema.axes import AXES, cell_id

Row = Mapping[str, Any] | pd.Series
STAGES = axes.CEILINGS
BOUND = {"load": "loader-bound", "copy": "copy-bound", "compute": "compute-bound"}
LAUNCH_BOUND = "launch-bound"
ALONE = {"load": "loader alone", "copy": "copy alone", "compute": "compute alone"}
BALANCED_WITHIN = 1.5
"""Two smallest ceilings within this factor hold the cell back together."""
MOST = 0.5
"""Share of the wall clock from which a phase names the bottleneck where ceilings were not measured."""
COMPUTING = ("forward", "backward", "optimizer")
LAUNCHING = 0.9
"""Share of the wall clock from which a host that launches, and waits for nothing, is the bottleneck."""
WAITS: dict[str, Any] = {
    "sync_every_step": True,
    "grad_scaler": True,
    "launch_blocking": True,
    "timing": "serialized",
    "create_on": "host",
    "d2h": "pageable",
}
"""Axis to the value with which a step makes the host wait for the device, in a phase that also launches."""
ENDS = ("lo", "hi", "n")
_EFFICIENCY = ("efficiency", "efficiency_lo", "efficiency_hi", "efficiency_n")
_COLUMNS = (*(f"{stage}_ceiling" for stage in STAGES), "device_ceiling", "limit", "au", *_EFFICIENCY)
_PAIRED = {
    "limit_id": dict(zip(_EFFICIENCY, RATIO, strict=True)),
    "compute_id": {"au": "ratio"},
}
"""Id of a measured ceiling to the columns that are achieved ÷ it, paired by block: column to that of ``ratios``."""


def ceiling_ids(cell: Mapping[str, Any]) -> dict[str, str]:
    """Stage to the ``cell_id`` of a training cell's ceiling, whether the matrix or the plan asked for it."""
    values = {axis.name: axis.type(cell[axis.name]) for axis in AXES if not pd.isna(cell[axis.name])}
    return {stage: cell_id(alone) for stage, alone in axes.ceilings(values, str(cell["device"])).items()}


def _hides_copies(cell: Row) -> bool:
    """Whether a training cell can copy a batch to the device while it steps on another."""
    if cell["step"] == "emulated":  # the host sleeps, once it need not wait for the copy
        return bool(cell.get("pin_memory") and cell.get("non_blocking"))
    return bool(cell.get("prefetcher") == "stream")


def _in_turns(cell: Row, rates: Mapping[str, float]) -> float:
    """Rate of copies and step one after the other, in samples/s; NaN where they overlap or one is not known."""
    alternate = rates["copy"] > 0 and rates["compute"] > 0 and not _hides_copies(cell)
    return 1 / (1 / rates["copy"] + 1 / rates["compute"]) if alternate else math.nan


def _smallest_first(cell: Row, rates: Mapping[str, float]) -> list[tuple[float, str]]:
    """What bounds a training cell, in samples/s by stage; copies and step in turns are one bound."""
    if not (rates["load"] > 0 and rates["compute"] > 0):
        return []
    bounds = {stage: rates[stage] for stage in STAGES if rates[stage] > 0}
    if not math.isnan(turns := _in_turns(cell, rates)):
        longer = min(("copy", "compute"), key=rates.__getitem__)
        bounds = {"load": rates["load"], longer: turns}
    return sorted(((rate, stage) for stage, rate in bounds.items()), key=itemgetter(0))


def _ceilings(cell: Mapping[str, Any], rate_of: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """A training cell's ceilings in samples/s, and the ids of those that were measured."""
    ids = ceiling_ids(cell)
    rates = {stage: rate_of.get((cell["run_id"], ids.get(stage, "")), math.nan) for stage in STAGES}
    if cell["step"] in axes.EMULATED_STEPS and cell["step_ms"] > 0:
        rates["compute"] = 1000 * cell["batch_size"] / cell["step_ms"]
    rate, limit = next(iter(_smallest_first(cell, rates)), (math.nan, None))
    return {
        "run_id": cell["run_id"],
        "cell_id": cell["cell_id"],
        **{f"{stage}_ceiling": rates[stage] for stage in STAGES},
        "device_ceiling": _in_turns(cell, rates),
        "limit": limit,
        "au": cell["samples_per_s"] / rates["compute"],
        **dict(
            zip(_EFFICIENCY, (*(cell[name] / rate for name in ("samples_per_s", "lo", "hi")), cell["n"]), strict=True)
        ),
        "limit_id": ids.get(limit) if limit else None,
        "compute_id": ids.get("compute") if rates["compute"] > 0 else None,
        "copy_id": ids.get("copy"),
    }


def _turns_by_block(blocks: Blocks, cells: pd.DataFrame) -> tuple[Floats, Floats]:
    """Log rates of copies and step in turns, and of the step alone, which may be declared (float64, cells × blocks)."""
    copies = blocks.logs(list(cells["run_id"]), list(cells["copy_id"]))
    steps = np.tile(np.log(cells["compute_ceiling"].to_numpy(dtype=np.float64))[:, None], copies.shape[1])
    measured = cells["compute_id"].notna().to_numpy(dtype=bool)
    subset = cells[measured]
    steps[measured] = blocks.logs(list(subset["run_id"]), list(subset["compute_id"]))
    return -np.log(np.exp(-copies) + np.exp(-steps)), steps


@memoized
def cells_with_ceilings(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every cell, with its ceilings and what holds it back.

    Returns:
        A row a cell: all columns of ``cells``; for cells of mode train ``<stage>_ceiling`` (samples/s), ``limit`` (the
        stage of the smallest, of copies and step in turns the longer), ``device_ceiling`` (of both in turns; NaN where
        they overlap), ``au``, ``efficiency`` (achieved ÷ smallest ceiling, paired by block where that was measured)
        with ``_lo``, ``_hi`` and ``_n``; and ``bottleneck``.
    """
    estimates = cells(trials)
    rows = rows_of(estimates)
    rate_of = {(row["run_id"], row["cell_id"]): row["samples_per_s"] for row in rows}
    ceilings = [_ceilings(row, rate_of) for row in rows if row["mode"] == "train"]
    table = pd.DataFrame(ceilings, columns=[*KEYS, *_COLUMNS, *_PAIRED, "copy_id"])
    for ids, shares in _PAIRED.items():
        subset = table[table[ids].notna()]
        if len(subset):
            ratios = blocks_of(trials).ratios(list(subset["run_id"]), list(subset[ids]), list(subset["cell_id"]))
            for column, source in shares.items():
                table.loc[subset.index, column] = ratios[source].to_numpy()
    subset = table[table["device_ceiling"].notna() & table["limit"].isin(("copy", "compute"))]
    if len(subset):
        blocks = blocks_of(trials)
        achieved = blocks.logs(list(subset["run_id"]), list(subset["cell_id"]))
        in_turns = moments(achieved - _turns_by_block(blocks, subset)[0])
        for column, values in as_columns(_EFFICIENCY, in_turns).items():
            table.loc[subset.index, column] = values
    result = estimates.merge(table.drop(columns=[*_PAIRED, "copy_id"]), on=KEYS, how="left")
    return result.assign(bottleneck=[bottleneck(row) for row in rows_of(result)])


def bottleneck(row: Mapping[str, Any] | pd.Series) -> str:
    """Say in words what holds a cell back.

    Ceilings decide where loading and computing are both known: the smallest, or ``balanced`` when the two smallest lie
    within a factor of 1.5. Else a phase with half of the wall clock or more decides; when none has it: ``balanced``.
    Where neither ceilings name another stage nor the host waits for anything: ``launch-bound``.
    """
    if row["mode"] != "train":
        return ALONE[row["mode"]]
    if pd.isna(row["samples_per_s"]):
        return "unknown"
    rates = {stage: float(row.get(f"{stage}_ceiling", math.nan)) for stage in STAGES}
    if bounds := _smallest_first(row, rates):
        (first, stage), (second, _) = bounds[:2]
        word = "balanced" if second <= BALANCED_WITHIN * first else BOUND[stage]
    else:
        word = _longest_phase(row)
    if (not bounds or word == BOUND["compute"]) and _launches(row):
        return LAUNCH_BOUND
    return "emulated-step-bound" if word == BOUND["compute"] and row["step"] in axes.EMULATED_STEPS else word


def _share(row: Row, *names: str) -> float:
    return sum(0.0 if pd.isna(value := row.get(f"{name}_share")) else float(value) for name in names)


def _launches(row: Row) -> bool:
    """Whether the host launches all the time, and the device is done with a step before the host is with the next."""
    drained = row.get("drained_steps")
    if row["step"] != "real" or row.get("device") != "cuda" or pd.isna(drained) or drained >= 1:
        return False
    if any(row.get(axis) == value for axis, value in WAITS.items()) or row.get("debug") not in (None, "off"):
        return False
    # A copy that the host waits for waits for the step before it as well.
    asynchronous = row.get("pin_memory") and row.get("non_blocking")
    return _share(row, *COMPUTING, "other", *(("h2d",) if asynchronous else ())) >= LAUNCHING


def _longest_phase(row: Row) -> str:
    if pd.isna(row.get("fetch_share")):
        return "unknown"
    waits, copies, computes = (_share(row, *names) for names in (("fetch",), ("h2d",), COMPUTING))
    if row.get("device") == "cuda" and not pd.isna(row.get("device_idle_share")):
        # The host runs ahead of the device: its waiting counts only while the device is idle too.
        waits, copies = min(waits, _share(row, "device_idle")), _share(row, "device_h2d_exposed")
        computes = _share(row, *(f"device_{phase}" for phase in COMPUTING))
    most = max(((waits, "load"), (copies, "copy"), (computes, "compute")))
    return BOUND[most[1]] if most[0] >= MOST else "balanced"
