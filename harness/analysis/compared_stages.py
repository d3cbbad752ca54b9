"""Why one machine is faster than another: what each stage could do alone on either, and what holds training back.

Cells of the modes load, copy and compute show what each stage can do alone. Inside the loader the workers' stamps tell
reading from decoding; they are taken where one process loads at a time, if any cell does: with more workers than cores
a stamp holds the wait for a core too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pandas as pd

from harness import registry
from harness.analysis.blocks import good
from harness.analysis.contrasts import filled
from harness.analysis.estimates import AXIS_NAMES
from harness.analysis.machines import CELL, Overall, overall, ratios
from harness.axes import BY_NAME
from harness.traits import traits

ENDS = ("ratio", "lo", "hi")
CEILINGS = ("load_ceiling", "copy_ceiling", "compute_ceiling")
STAGE_COLUMNS = ("stage", "a", "b", *ENDS, "least", "most", "cells", "n_a", "n_b")
HELD_COLUMNS = (
    *CELL,
    *(f"{name}_{side}" for side in "ab" for name in ("bottleneck", *CEILINGS)),
    *AXIS_NAMES,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What is looked at alone."""

    name: str
    doc: str
    """What it is, as a row of a table."""
    mode: str
    """Of the cells in which it is looked at."""
    column: str = ""
    """Of ``records.TRIALS``: the workers' stamps that make its rate; empty where that is the cell's throughput."""
    page_cache: str = ""
    """The state of the page cache in these cells; empty for any."""
    encoded: bool = False
    """Whether only formats that store image files are looked at."""


STAGES = (
    Stage("load", "Loading alone, all workers", "load"),
    Stage("disk", "Reading, page cache cold (disk), one process", "load", "worker_read_ns", "cold"),
    Stage("cached", "Reading, page cache warm, one process", "load", "worker_read_ns", "warm"),
    Stage("decode", "Decoding image files, one process", "load", "worker_decode_ns", encoded=True),
    Stage("transform", "Transforming, one process", "load", "worker_transform_ns"),
    Stage("collate", "Collating, one process", "load", "worker_collate_ns"),
    Stage("copy", "Copying to the device alone", "copy"),
    Stage("compute", "The model's step alone", "compute"),
)


@cache
def encoded_formats() -> tuple[str, ...]:
    """Name the formats that store image files, whose samples are decoded."""
    return tuple(name for name in registry.names("harness.formats") if traits(name).encoded)


def equal(column: pd.Series, value: str) -> npt.NDArray[np.bool_]:
    """Say where a column has a value; null is no value.

    Args:
        column: any.
        value: to look for.
    """
    return column.eq(value).fillna(False).to_numpy(dtype=np.bool_)


def _looked(cells: pd.DataFrame, stage: Stage) -> pd.DataFrame:
    """The cells in which a stage is looked at; with stamps those where one process loads, if there are any."""
    wanted = equal(cells["mode"], stage.mode)
    if stage.page_cache:
        wanted = wanted & equal(filled(cells, BY_NAME["page_cache"]), stage.page_cache)
    if stage.encoded:
        wanted = wanted & cells["storage_format"].isin(encoded_formats()).to_numpy(dtype=bool)
    chosen = cells[wanted]
    alone = chosen[(chosen["num_workers"].astype("float64").fillna(0) <= 1).to_numpy(dtype=bool)]
    return alone if stage.column and len(alone) else chosen


def _rated(trials: pd.DataFrame, stage: Stage) -> pd.DataFrame:
    """Trials that ended well, the stage's rate in the place of their throughput."""
    ended = good(trials)
    if not stage.column:
        return ended
    samples, spent = (ended[name].astype("float64") for name in ("samples", stage.column))
    return ended.assign(samples_per_s=1e9 * (samples / spent))


def _over(each: pd.DataFrame) -> Overall:
    """One ratio of several cells; of a single one its own, with the interval of its blocks."""
    if len(each) > 1:
        return overall(each)
    ratio, lo, hi = (float(each[end].iloc[0]) for end in ENDS)
    return Overall(ratio, lo, hi, 1)


def stages(trials_a: pd.DataFrame, trials_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Hold every stage of two machines side by side.

    Args:
        trials_a: rows of ``records.TRIALS`` of one run.
        trials_b: of another.
        cells: rows of ``machines.compare`` of both.

    Returns:
        A row a stage with a cell in common, in the order of ``STAGES``: ``stage``, geometric means ``a`` and ``b`` over
        these cells (samples/s; of one process where the stage has a column), ``ratio`` (B ÷ A) with ``lo`` and ``hi``
        (as ``machines.overall`` has them; of the blocks, where there is one cell), the ``least`` and ``most`` of the
        cells' ratios, how many ``cells``, and the blocks ``n_a`` and ``n_b`` of a single one (else NaN).
    """
    found = []
    for stage in STAGES:
        own = _looked(cells, stage)
        if not len(own):
            continue
        each = ratios(_rated(trials_a, stage), _rated(trials_b, stage), own).dropna(subset=["ratio"])
        if len(each):
            over = _over(each)
            a, b = (float(np.exp(np.log(each[side]).mean())) for side in "ab")
            least, most = float(each["ratio"].min()), float(each["ratio"].max())
            blocks = [float(each[f"n_{side}"].iloc[0]) if len(each) == 1 else float("nan") for side in "ab"]
            found.append((stage.name, a, b, over.ratio, over.lo, over.hi, least, most, over.cells, *blocks))
    return pd.DataFrame(found, columns=list(STAGE_COLUMNS))


def held_back(judged_a: pd.DataFrame, judged_b: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Say what holds each compared training cell back on either machine.

    Args:
        judged_a: ``ceilings.judged`` of one run.
        judged_b: of another.
        cells: rows of ``machines.compare`` of both.

    Returns:
        A row a cell of mode train: ``HELD_COLUMNS``, ceilings in samples/s.
    """
    training = cells.loc[equal(cells["mode"], "train"), [*CELL, *AXIS_NAMES]]
    for side, judged in (("a", judged_a), ("b", judged_b)):
        names = {name: f"{name}_{side}" for name in ("bottleneck", *CEILINGS)}
        training = training.merge(judged[["cell_id", *names]].rename(columns=names), on="cell_id", how="left")
    return training[list(HELD_COLUMNS)].reset_index(drop=True)
