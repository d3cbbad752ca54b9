"""What each stage of a training cell could do alone, and what therefore holds the cell back.

A training cell's ceilings are the cells of the same run that ``mode: load``, ``copy`` and ``compute`` make of it, axes
that do not apply there dropped (differential analysis, as in DS-Analyzer, VLDB 2021). An emulated step's ceiling is
declared, not measured: batch_size ÷ step_ms. On a machine whose workers and model share cores, the ceilings cannot be
reached together: an efficiency under 1 then names no waste.

How far a training cell stays below its roof: what feeds it, what its step could compute, and what it achieved.

The roofline model bounds a kernel by the smaller of what memory delivers and what the processor computes (S. Williams,
A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009). A training loop is bounded in the same way, by the smaller of
what feeds it (its loader, and its copies to the device, each alone) and what its step does alone on a resident batch.
Divided by the latter, cells of any task share one picture::

    headroom = feed / compute        au = achieved / compute <= min(1, headroom)

``au`` is MLPerf Storage's accelerator utilization. It does *not* follow that a cell could reach its roof: where workers
and model share the cores of a CPU, both ceilings cannot be had together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, Blocks, Floats, blocks_of, memoized
from feedrate.analysis.estimates import cells, rows_of
from feedrate.schema import axes
from feedrate.schema.axes import AXES, cell_id

STAGES = axes.CEILINGS
BOUND = {"load": "loader-bound", "copy": "copy-bound", "compute": "compute-bound"}
ALONE = {"load": "loader alone", "copy": "copy alone", "compute": "compute alone"}
BALANCED_WITHIN = 1.5
"""Two smallest ceilings within this factor hold the cell back together."""
MOST = 0.5
"""Share of the wall clock from which a phase names the bottleneck where ceilings were not measured."""
COLUMNS = (
    "load_ceiling",
    "copy_ceiling",
    "compute_ceiling",
    "limit",
    "au",
    "efficiency",
    "efficiency_lo",
    "efficiency_hi",
    "efficiency_n",
)


_PAIRED = {
    "limit_id": {"efficiency": "ratio", "efficiency_lo": "lo", "efficiency_hi": "hi", "efficiency_n": "n"},
    "compute_id": {"au": "ratio"},
}
"""Ceiling to what is achieved ÷ it, paired by block where the ceiling was measured: column to that of ``ratios``."""


def ceiling_ids(cell: Mapping[str, Any]) -> dict[str, str]:
    """Name the cells that are a training cell's ceilings, whether the matrix or the plan asked for them.

    Args:
        cell: a row of ``cells``: its axes and ``device``.

    Returns:
        Stage to ``cell_id``, as ``axes.ceilings`` has them.
    """
    own = {axis.name: axis.type(cell[axis.name]) for axis in AXES if not pd.isna(cell[axis.name])}
    return {stage: cell_id(alone) for stage, alone in axes.ceilings(own, str(cell["device"])).items()}


def _decidable(rates: Mapping[str, float]) -> bool:
    """Whether loading and computing are both known; copying is none on a CPU, and seldom the smallest elsewhere."""
    return rates["load"] > 0 and rates["compute"] > 0


def _smallest(rates: Mapping[str, float]) -> list[str]:
    return sorted((stage for stage in STAGES if rates[stage] > 0), key=lambda stage: rates[stage])


def _limits(cell: Mapping[str, Any], known: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    """A training cell's ceilings in samples/s and the cell_id of the smallest (None: declared)."""
    ids = ceiling_ids(cell)
    rates = {stage: known.get((cell["run_id"], name), {}).get("samples_per_s", math.nan) for stage, name in ids.items()}
    if cell["step"] == "emulated" and cell["step_ms"] > 0:
        rates["compute"] = 1000 * cell["batch_size"] / cell["step_ms"]
    rates = {stage: rates.get(stage, math.nan) for stage in STAGES}
    limit = _smallest(rates)[0] if _decidable(rates) else None
    return {
        "run_id": cell["run_id"],
        "cell_id": cell["cell_id"],
        **{f"{stage}_ceiling": rates[stage] for stage in STAGES},
        "limit": limit,
        "limit_id": ids.get(limit) if limit else None,
        "compute_id": ids.get("compute") if rates["compute"] > 0 else None,
        "au": cell["samples_per_s"] / rates["compute"],
        "efficiency": cell["samples_per_s"] / rates[limit] if limit else math.nan,
        "efficiency_lo": cell["lo"] / rates[limit] if limit else math.nan,
        "efficiency_hi": cell["hi"] / rates[limit] if limit else math.nan,
        "efficiency_n": cell["n"],
    }


def ceilings(trials: pd.DataFrame) -> pd.DataFrame:
    """Find the ceilings of every training cell.

    A ceiling is found by its ``cell_id``: that the plan added it (role ceiling) or that the matrix asked for it is one.
    """
    rows = rows_of(cells(trials))
    known = {(row["run_id"], row["cell_id"]): row for row in rows}
    found = [_limits(row, known) for row in rows if row["mode"] == "train"]
    result = pd.DataFrame(found, columns=[*KEYS, *COLUMNS, *_PAIRED])
    if found:
        _pair(result, blocks_of(trials))
    return result.drop(columns=list(_PAIRED))


def _pair(result: pd.DataFrame, blocks: Blocks) -> None:
    """Hold cells against ceilings that were measured, block by block."""
    for ids, columns in _PAIRED.items():
        paired = np.flatnonzero(result[ids].notna().to_numpy())
        part = result.iloc[paired]
        ratios = blocks.ratios(list(part["run_id"]), list(part[ids]), list(part["cell_id"]))
        for column, source in columns.items() if len(paired) else ():
            result.loc[result.index[paired], column] = ratios[source].to_numpy()


@memoized
def cells_with_ceilings(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every cell and say what holds it back: ``cells``, ``ceilings`` and ``bottleneck`` in one table.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        One row per (run_id, cell_id): all columns of ``cells``, then those of ``ceilings`` (null where the cell is not
        of mode train) and ``bottleneck``.
    """
    result = cells(trials).merge(ceilings(trials), on=KEYS, how="left")
    return result.assign(bottleneck=[bottleneck(row) for row in rows_of(result)])


def _by_ceilings(row: Mapping[str, Any]) -> str | None:
    rates = {stage: float(row.get(f"{stage}_ceiling", math.nan)) for stage in STAGES}
    if not _decidable(rates):
        return None
    first, second = _smallest(rates)[:2]
    return "balanced" if rates[second] <= BALANCED_WITHIN * rates[first] else BOUND[first]


def _by_shares(row: Mapping[str, Any]) -> str:
    def share(*names: str) -> float:
        return sum(0.0 if pd.isna(value := row.get(f"{name}_share")) else float(value) for name in names)

    if pd.isna(row.get("fetch_share")):
        return "unknown"
    waits, copies, computes = share("fetch"), share("h2d"), share("forward", "backward", "optimizer")
    if row.get("device") == "cuda" and not pd.isna(row.get("device_idle_share")):
        # The host runs ahead of the device: its waiting counts only while the device is idle too.
        waits, copies = min(waits, share("device_idle")), share("device_h2d_exposed")
        computes = share("device_forward", "device_backward", "device_optimizer")
    most = max(((waits, "load"), (copies, "copy"), (computes, "compute")))
    return BOUND[most[1]] if most[0] >= MOST else "balanced"


def bottleneck(row: Mapping[str, Any] | pd.Series) -> str:
    """Say in words what holds a cell back.

    Ceilings decide where loading and computing are both known: the smallest, or ``balanced`` when the two smallest lie
    within a factor of 1.5. Else a phase with half of the wall clock or more decides; when none has it: ``balanced``.
    """
    cell: dict[str, Any] = {str(name): value for name, value in row.items()}
    if cell["mode"] != "train":
        return ALONE[cell["mode"]]
    word = "unknown" if pd.isna(cell["samples_per_s"]) else _by_ceilings(cell) or _by_shares(cell)
    return "emulated-step-bound" if word == BOUND["compute"] and cell["step"] == "emulated" else word


ENDS = ("lo", "hi", "n")
ADDED = (
    *(f"{stage}_{end}" for stage in STAGES for end in ENDS),
    "feed",
    "feed_ceiling",
    *("headroom", "headroom_lo", "headroom_hi", "headroom_n"),
    *("au", "au_lo", "au_hi", "au_n"),
    "roof",
)
"""Columns that :func:`roofline` adds to those of ``ceilings.cells_with_ceilings``; ``au`` is paired by block here."""


def roofline(trials: pd.DataFrame) -> pd.DataFrame:
    """Place every training cell under its roof.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        The rows of ``judged`` of mode train whose loader and step are both known alone, and for them
        ``<stage>_lo``, ``<stage>_hi`` and ``<stage>_n`` (95 % interval of ``<stage>_ceiling`` and its blocks; NaN and 0
        where it is declared or not known), ``feed`` (``load`` or ``copy``, whichever is slower), ``feed_ceiling``
        (samples/s), ``headroom`` (feed ÷ compute ceiling), ``au_lo`` and ``au_hi`` beside ``au``, both paired by block
        where the compute ceiling was measured, with ``headroom_n`` and ``au_n`` blocks, and ``roof``, the most that
        ``au`` could be.
    """
    table = cells_with_ceilings(trials)
    known = table["load_ceiling"].gt(0) & table["compute_ceiling"].gt(0) & table["samples_per_s"].gt(0)
    found = table[known.fillna(False)].reset_index(drop=True)
    if not len(found):
        return found.reindex(columns=list(dict.fromkeys([*table.columns, *ADDED])))
    ids = [ceiling_ids(row) for row in rows_of(found)]
    columns = _own(table, found, ids)
    copied = found["copy_ceiling"].lt(found["load_ceiling"]).fillna(False).to_numpy(dtype=bool)
    columns["feed"] = np.where(copied, "copy", "load")
    columns["feed_ceiling"] = np.where(copied, found["copy_ceiling"], found["load_ceiling"]).astype(np.float64)
    for end in ENDS:
        columns[f"feed_{end}"] = np.where(copied, columns[f"copy_{end}"], columns[f"load_{end}"]).astype(np.float64)
    columns |= _over_compute(blocks_of(trials), found, ids, columns)
    columns["roof"] = np.minimum(1.0, columns["headroom"])
    kept = found.drop(columns="au")
    return pd.concat([kept, pd.DataFrame(columns, index=found.index)[list(ADDED)]], axis=1)


def _own(table: pd.DataFrame, found: pd.DataFrame, ids: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The ceilings' own intervals."""
    own = table.set_index(KEYS)[list(ENDS)].astype("float64")
    columns: dict[str, Any] = {}
    for stage in STAGES:
        places = pd.MultiIndex.from_arrays([found["run_id"], [names.get(stage, "") for names in ids]], names=KEYS)
        part = own.reindex(places)
        columns |= {f"{stage}_{end}": part[end].to_numpy() for end in ("lo", "hi")}
        columns[f"{stage}_n"] = part["n"].fillna(0).to_numpy().astype(np.int64)
    return columns


def _over_compute(
    blocks: Blocks, found: pd.DataFrame, ids: Sequence[Mapping[str, str]], known: Mapping[str, Any]
) -> dict[str, Floats]:
    """Feed and achieved throughput ÷ compute ceiling, with intervals: paired by block where both were measured."""
    compute = found["compute_ceiling"].to_numpy(dtype=np.float64)
    achieved = found[["samples_per_s", "lo", "hi", "n"]].astype("float64")
    columns = {
        "headroom": known["feed_ceiling"] / compute,
        "headroom_lo": known["feed_lo"] / compute,
        "headroom_hi": known["feed_hi"] / compute,
        "headroom_n": known["feed_n"],
        "au": achieved["samples_per_s"].to_numpy() / compute,
        "au_lo": achieved["lo"].to_numpy() / compute,
        "au_hi": achieved["hi"].to_numpy() / compute,
        "au_n": achieved["n"].to_numpy(copy=True),
    }
    fed = [names.get(feed) for names, feed in zip(ids, known["feed"], strict=True)]
    alone = [names.get("compute") for names in ids]
    rows = [at for at, (below, above) in enumerate(zip(alone, fed, strict=True)) if below and above]
    runs, below = [str(found["run_id"].iloc[at]) for at in rows], [str(alone[at]) for at in rows]
    for name, above in (
        ("headroom", [str(fed[at]) for at in rows]),
        ("au", [str(found["cell_id"].iloc[at]) for at in rows]),
    ):
        ratios = blocks.ratios(runs, below, above)
        paired = ratios["n"].to_numpy() > 0
        for column, source in ((name, "ratio"), (f"{name}_lo", "lo"), (f"{name}_hi", "hi"), (f"{name}_n", "n")):
            columns[column][np.array(rows, dtype=np.intp)[paired]] = ratios[source].to_numpy()[paired]
    return columns
