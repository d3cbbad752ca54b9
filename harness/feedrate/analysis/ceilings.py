"""What each stage of a training cell could do alone, and what therefore holds the cell back.

A training cell's ceilings are the cells of the same run that ``mode: load``, ``copy`` and ``compute`` make of it, axes
that do not apply there dropped (differential analysis, as in DS-Analyzer, VLDB 2021). An emulated step's ceiling is
declared, not measured: batch_size ÷ step_ms.

The roofline model bounds a kernel by the smaller of what memory delivers and what the processor computes (S. Williams,
A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009). A training loop is bounded in the same way, by the smaller of
what feeds it (its loader, and its copies to the device, each alone) and what its step does alone on a resident batch.
Divided by the latter, cells of any task share one picture::

    headroom = feed / compute        au = achieved / compute <= min(1, headroom)

``au`` is MLPerf Storage's accelerator utilization. It does *not* follow that a cell could reach its roof: where workers
and model share the cores of a CPU, both ceilings cannot be had together, and an efficiency under 1 names no waste.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, blocks_of, memoized
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
ENDS = ("lo", "hi", "n")
_EFFICIENCY = ("efficiency", "efficiency_lo", "efficiency_hi", "efficiency_n")
_COLUMNS = (*(f"{stage}_ceiling" for stage in STAGES), "limit", "au", *_EFFICIENCY)
_PAIRED = {
    "limit_id": dict(zip(_EFFICIENCY, ("ratio", *ENDS), strict=True)),
    "compute_id": {"au": "ratio"},
}
"""Id of a measured ceiling to the columns that are achieved ÷ it, paired by block: column to that of ``ratios``."""


def ceiling_ids(cell: Mapping[str, Any]) -> dict[str, str]:
    """Stage to the ``cell_id`` of a training cell's ceiling, whether the matrix or the plan asked for it."""
    own = {axis.name: axis.type(cell[axis.name]) for axis in AXES if not pd.isna(cell[axis.name])}
    return {stage: cell_id(alone) for stage, alone in axes.ceilings(own, str(cell["device"])).items()}


def _smallest_first(rates: Mapping[str, float]) -> list[str]:
    """Stages by rate where loading and computing are both known; copying is none on a CPU, and seldom the smallest."""
    if not (rates["load"] > 0 and rates["compute"] > 0):
        return []
    return sorted((stage for stage in STAGES if rates[stage] > 0), key=lambda stage: rates[stage])


def _ceilings(cell: Mapping[str, Any], rate_of: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """A training cell's ceilings in samples/s, and the ids of those that were measured."""
    ids = ceiling_ids(cell)
    rates = {stage: rate_of.get((cell["run_id"], ids.get(stage, "")), math.nan) for stage in STAGES}
    if cell["step"] == "emulated" and cell["step_ms"] > 0:
        rates["compute"] = 1000 * cell["batch_size"] / cell["step_ms"]
    limit = next(iter(_smallest_first(rates)), None)
    achieved = (cell[name] / rates[limit] if limit else math.nan for name in ("samples_per_s", "lo", "hi"))
    return {
        "run_id": cell["run_id"],
        "cell_id": cell["cell_id"],
        **{f"{stage}_ceiling": rates[stage] for stage in STAGES},
        "limit": limit,
        "au": cell["samples_per_s"] / rates["compute"],
        **dict(zip(_EFFICIENCY, (*achieved, cell["n"]), strict=True)),
        "limit_id": ids.get(limit) if limit else None,
        "compute_id": ids.get("compute") if rates["compute"] > 0 else None,
    }


@memoized
def cells_with_ceilings(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every cell, with its ceilings and what holds it back.

    Returns:
        A row a cell: all columns of ``cells``; for cells of mode train ``<stage>_ceiling`` (samples/s), ``limit`` (the
        stage of the smallest), ``au``, ``efficiency`` (achieved ÷ smallest ceiling, paired by block where that was
        measured) with ``_lo``, ``_hi`` and ``_n``; and ``bottleneck``.
    """
    estimates = cells(trials)
    rows = rows_of(estimates)
    rate_of = {(row["run_id"], row["cell_id"]): row["samples_per_s"] for row in rows}
    found = [_ceilings(row, rate_of) for row in rows if row["mode"] == "train"]
    table = pd.DataFrame(found, columns=[*KEYS, *_COLUMNS, *_PAIRED])
    for ids, columns in _PAIRED.items():
        part = table[table[ids].notna()]
        if len(part):
            ratios = blocks_of(trials).ratios(list(part["run_id"]), list(part[ids]), list(part["cell_id"]))
            for column, source in columns.items():
                table.loc[part.index, column] = ratios[source].to_numpy()
    result = estimates.merge(table.drop(columns=list(_PAIRED)), on=KEYS, how="left")
    return result.assign(bottleneck=[bottleneck(row) for row in rows_of(result)])


def bottleneck(row: Mapping[str, Any] | pd.Series) -> str:
    """Say in words what holds a cell back.

    Ceilings decide where loading and computing are both known: the smallest, or ``balanced`` when the two smallest lie
    within a factor of 1.5. Else a phase with half of the wall clock or more decides; when none has it: ``balanced``.
    """
    if row["mode"] != "train":
        return ALONE[row["mode"]]
    if pd.isna(row["samples_per_s"]):
        return "unknown"
    rates = {stage: float(row.get(f"{stage}_ceiling", math.nan)) for stage in STAGES}
    if order := _smallest_first(rates):
        first, second = order[:2]
        word = "balanced" if rates[second] <= BALANCED_WITHIN * rates[first] else BOUND[first]
    else:
        word = _longest_phase(row)
    return "emulated-step-bound" if word == BOUND["compute"] and row["step"] == "emulated" else word


def _longest_phase(row: Mapping[str, Any] | pd.Series) -> str:
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


ROOFLINE_COLUMNS = (
    *(f"{stage}_{end}" for stage in STAGES for end in ENDS),
    "feed",
    "feed_ceiling",
    *("headroom", "headroom_lo", "headroom_hi", "headroom_n"),
    *("au", "au_lo", "au_hi", "au_n"),
    "roof",
)


def roofline(trials: pd.DataFrame) -> pd.DataFrame:
    """Place every training cell under its roof.

    Returns:
        The rows of ``cells_with_ceilings`` of mode train whose loader and step are both known alone, and for them
        ``ROOFLINE_COLUMNS``: ``<stage>_lo``, ``<stage>_hi`` and ``<stage>_n`` (95 % interval of ``<stage>_ceiling`` and
        its blocks; NaN and 0 where it is declared or not known), ``feed`` (``load`` or ``copy``, whichever is slower),
        ``feed_ceiling`` (samples/s), ``headroom`` (feed ÷ compute ceiling) and ``au``, both paired by block where the
        compute ceiling was measured, and ``roof``, the most that ``au`` could be.
    """
    table = cells_with_ceilings(trials)
    known = table["load_ceiling"].gt(0) & table["compute_ceiling"].gt(0) & table["samples_per_s"].gt(0)
    found = table[known.fillna(False)].reset_index(drop=True)
    if not len(found):
        return found.reindex(columns=list(dict.fromkeys([*table.columns, *ROOFLINE_COLUMNS])))
    ids_of = [ceiling_ids(row) for row in rows_of(found)]
    ids = pd.DataFrame({stage: [each.get(stage, "") for each in ids_of] for stage in STAGES})
    intervals = table.set_index(KEYS)[list(ENDS)].astype("float64")
    columns: dict[str, Any] = {}
    for stage in STAGES:
        own = intervals.reindex(pd.MultiIndex.from_arrays([found["run_id"], ids[stage]], names=KEYS))
        columns |= {f"{stage}_lo": own["lo"].to_numpy(), f"{stage}_hi": own["hi"].to_numpy()}
        columns[f"{stage}_n"] = own["n"].fillna(0).to_numpy().astype(np.int64)
    copied = found["copy_ceiling"].lt(found["load_ceiling"]).fillna(False).to_numpy(dtype=bool)
    columns["feed"] = np.where(copied, "copy", "load")

    def of_feed(suffix: str, source: Mapping[str, Any] | pd.DataFrame) -> Any:
        return np.where(copied, source[f"copy_{suffix}"], source[f"load_{suffix}"]).astype(np.float64)

    columns["feed_ceiling"] = of_feed("ceiling", found)
    # Where not both sides were measured, only the numerator has an interval.
    compute = found["compute_ceiling"].to_numpy(dtype=np.float64)
    achieved = found[["samples_per_s", *ENDS]].astype("float64")
    columns |= {
        "headroom": columns["feed_ceiling"] / compute,
        "headroom_lo": of_feed("lo", columns) / compute,
        "headroom_hi": of_feed("hi", columns) / compute,
        "headroom_n": of_feed("n", columns),
        "au": achieved["samples_per_s"].to_numpy() / compute,
        "au_lo": achieved["lo"].to_numpy() / compute,
        "au_hi": achieved["hi"].to_numpy() / compute,
        "au_n": achieved["n"].to_numpy(copy=True),
    }
    fed = ids["load"].where(~copied, ids["copy"])
    at = np.flatnonzero(ids["compute"].ne("") & fed.ne(""))
    for name, above in (("headroom", fed), ("au", found["cell_id"])):
        ratios = blocks_of(trials).ratios(*(list(part.iloc[at]) for part in (found["run_id"], ids["compute"], above)))
        paired = ratios["n"].to_numpy() > 0
        for column, source in ((name, "ratio"), *((f"{name}_{end}", end) for end in ENDS)):
            columns[column][at[paired]] = ratios[source].to_numpy()[paired]
    columns["roof"] = np.minimum(1.0, columns["headroom"])
    added = pd.DataFrame(columns, index=found.index)[list(ROOFLINE_COLUMNS)]
    return pd.concat([found.drop(columns="au"), added], axis=1)
