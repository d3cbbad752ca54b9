"""How far a training cell stays below its roof: what feeds it, what its step could compute, and what it achieved.

The roofline model bounds a kernel by the smaller of what memory delivers and what the processor computes (S. Williams,
A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009). A training loop is bounded in the same way, by the smaller of
what feeds it (its loader, and its copies to the device, each alone) and what its step does alone on a resident batch.
Divided by the latter, cells of any task share one picture::

    headroom = feed / compute        au = achieved / compute <= min(1, headroom)

``au`` is MLPerf Storage's accelerator utilization. It does *not* follow that a cell could reach its roof: where workers
and model share the cores of a CPU, both ceilings cannot be had together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.analysis.blocks import KEYS, Blocks, Floats, blocks_of
from harness.analysis.ceilings import STAGES, ceiling_ids, judged
from harness.analysis.rows import rows_of

ENDS = ("lo", "hi", "n")
ADDED = (
    *(f"{stage}_{end}" for stage in STAGES for end in ENDS),
    "feed",
    "feed_ceiling",
    *("headroom", "headroom_lo", "headroom_hi", "headroom_n"),
    *("au", "au_lo", "au_hi", "au_n"),
    "roof",
)
"""Columns that :func:`roofline` adds to those of ``ceilings.judged``; ``au`` is paired by block here."""


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
    table = judged(trials)
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
